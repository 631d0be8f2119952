"""Dense attention in float32, one row at a time: the oracle every other backend is compared with.

A row's result depends on nothing else in the batch. Slow; it runs wherever torch runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlt_hw.backends.attention.interface import AttentionBatch, AttentionGeometry, DecodeBatch
from rlt_hw.registry import BackendSpec, Kind, Rank

if TYPE_CHECKING:
    import torch

    from rlt_hw.backends.operators.interface import Projected

SPEC = BackendSpec(
    kind=Kind.ATTENTION,
    name="torch_reference",
    adapter="rlt_hw.backends.attention.torch_reference:TorchReference",
    summary="dense attention in float32, one row at a time; exact and slow",
    targets=("*",),
    kv_dtypes=("float32", "bfloat16", "float16"),
    features=("batch_invariant",),
    preferred_page=16,
    ranks=(Rank("*", 1, "the oracle; last, because it is slow by design"),),
)


class TorchReference:
    """See `rlt_hw.backends.attention.interface.Attention`. Row by row, dense, in float32; where results must
    not depend on the batch, token by token, because a prompt's chunks follow from what else runs."""

    def __init__(self, geometry: AttentionGeometry) -> None:
        self._geometry = geometry

    def prepare(self, batch: AttentionBatch) -> None:
        import torch

        page_size = self._geometry.page_size
        self._rows = []
        for row in range(batch.rows):
            first, last = (int(edge) for edge in batch.query_start_host[row : row + 2])
            length = int(batch.seq_lens_host[row])
            positions = torch.arange(length, device=batch.page_table.device)
            pages = batch.page_table[row].long()[positions // page_size]
            slots = pages * page_size + positions % page_size
            visible = positions <= positions[length - (last - first) :, None]
            if not self._geometry.batch_invariant:
                self._rows.append((slice(first, last), slots, visible))
                continue
            for token in range(first, last):
                seen = length - (last - 1 - token)
                self._rows.append(
                    (slice(token, token + 1), slots[:seen], visible[token - first, None, :seen])
                )

    def attend(
        self, query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, out: torch.Tensor
    ) -> None:
        geometry = self._geometry
        group = geometry.num_heads // geometry.num_kv_heads
        keys, values = keys.flatten(0, 1), values.flatten(0, 1)
        for tokens, slots, visible in self._rows:
            if tokens.start == tokens.stop:
                continue
            queries = query[tokens].float().transpose(0, 1)
            row_keys = keys[slots].float().transpose(0, 1).repeat_interleave(group, 0)
            row_values = values[slots].float().transpose(0, 1).repeat_interleave(group, 0)
            scores = queries @ row_keys.transpose(1, 2) * geometry.scale
            weights = scores.masked_fill(~visible, float("-inf")).softmax(-1)
            out[tokens] = (weights @ row_values).transpose(0, 1).to(out.dtype)

    def attend_projected(
        self,
        batch: DecodeBatch,
        projected: Projected,
        keys: torch.Tensor,
        values: torch.Tensor,
        out: torch.Tensor,
    ) -> None:
        """As `DecodeAttention` asks, but with the lengths read on the host: it cannot be captured."""
        import torch

        from rlt_hw.backends.operators.torch_native import rotated

        page_size = self._geometry.page_size
        lengths = batch.seq_lens.tolist()
        query, key, value = rotated(projected)
        out.zero_()
        self._rows = []
        for row, length in enumerate(lengths):
            if not length:
                continue
            positions = torch.arange(length, device=keys.device)
            pages = batch.page_table[row].long()[positions // page_size]
            slots = (pages + int(batch.planes[row]) * batch.plane_pages) * page_size + positions % page_size
            keys.flatten(0, 1)[slots[-1]] = key[row].to(keys.dtype)
            values.flatten(0, 1)[slots[-1]] = value[row].to(values.dtype)
            self._rows.append((slice(row, row + 1), slots, positions[None] < length))
        self.attend(query, keys, values, out)
