"""A backend from another package: dense attention in float64, one row and head at a time, on the CPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlt_hw.registry import BackendSpec, Kind, Rank

if TYPE_CHECKING:
    import torch

    from rlt_hw.backends.attention.interface import AttentionBatch, AttentionGeometry

SPEC = BackendSpec(
    kind=Kind.ATTENTION,
    name="toy_dense",
    adapter="toy_attention:ToyDense",
    summary="dense attention in float64",
    targets=("cpu",),
    dtypes=("float32",),
    preferred_page=8,
    ranks=(Rank("cpu", 2, "slow on purpose"),),
)


class ToyDense:
    def __init__(self, geometry: AttentionGeometry) -> None:
        self.geometry = geometry

    def prepare(self, batch: AttentionBatch) -> None:
        self.batch = batch

    def attend(
        self, query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, out: torch.Tensor
    ) -> None:
        import torch

        geometry, batch = self.geometry, self.batch
        group = geometry.num_heads // geometry.num_kv_heads
        for row in range(batch.rows):
            first, last = batch.query_start_host[row : row + 2].tolist()
            positions = torch.arange(int(batch.seq_lens_host[row]))
            pages = batch.page_table[row].long()[positions // geometry.page_size]
            slots = pages * geometry.page_size + positions % geometry.page_size
            unseen = positions > positions[len(positions) - (last - first) :, None]
            for head in range(geometry.num_heads):
                key = keys.flatten(0, 1)[slots, head // group].double()
                value = values.flatten(0, 1)[slots, head // group].double()
                scores = query[first:last, head].double() @ key.T * geometry.scale
                weights = scores.masked_fill(unseen, float("-inf")).softmax(-1)
                out[first:last, head] = (weights @ value).to(out.dtype)
