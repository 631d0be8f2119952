"""Paged attention in Triton, for NVIDIA and AMD: split-KV decode and causal prefill over pages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlt_hw.backends import triton_package
from rlt_hw.backends.attention.interface import AttentionBatch, AttentionGeometry, DecodeBatch
from rlt_hw.backends.targets import AMD, AMPERE_TO_BLACKWELL
from rlt_hw.registry import BackendSpec, Kind, Rank, Sizes

if TYPE_CHECKING:
    import torch

    from rlt_hw.backends.operators.interface import Projected

SPEC = BackendSpec(
    kind=Kind.ATTENTION,
    name="triton_paged",
    adapter="rlt_hw.backends.attention.triton_paged:TritonPaged",
    summary="paged decode and prefill in Triton",
    targets=AMPERE_TO_BLACKWELL + AMD,
    head_dims=Sizes(multiple=16, high=256),
    page_sizes=Sizes(values=(1,), multiple=16),
    preferred_page=16,
    graph_levels=("none", "piecewise", "full"),
    features=("batch_invariant",),
    requirements=(triton_package.REQUIREMENT,),
    toolkits=(triton_package.TOOLKIT,),
    ranks=(
        Rank("nvidia:sm90", 90, "fastest paged decode on an H200 in 7 of 10 cases (torch 2.11, triton 3.6)",
             phases=("decode",)),
        Rank("nvidia:sm90", 60, "185 to 258 TFLOP/s of varlen prefill on an H200", phases=("prefill",)),
        Rank("nvidia:*", 90, "as on nvidia:sm90; not measured here", phases=("decode",)),
        Rank("nvidia:*", 60, "as on nvidia:sm90; not measured here", phases=("prefill",)),
        Rank("amd:*", 60, "not measured"),
    ),
)  # fmt: skip


class TritonPaged:
    """See `rlt_hw.backends.attention.interface.Attention`.

    Single-token rows, which come first in a batch, go to the decode kernel, the others to prefill.
    Decode reads no device data on the host and allocates nothing, so it can be captured.
    """

    def __init__(self, geometry: AttentionGeometry) -> None:
        import torch

        from rlt_hw.backends.kernels.launch import Attending
        from rlt_hw.backends.kernels.tuning import Operands

        on_device = geometry.device.type != "cpu"
        properties = torch.cuda.get_device_properties(geometry.device) if on_device else None
        operands = Operands(
            geometry.head_dim,
            geometry.dtype.itemsize,
            warp_size=properties.warp_size if properties else 32,
            hip=torch.version.hip is not None,
        )
        self._kernels = Attending(geometry, operands)

    def prepare(self, batch: AttentionBatch) -> None:
        import numpy as np

        self._batch = batch
        self._singles = int((np.diff(batch.query_start_host) == 1).sum())

    def attend(
        self, query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, out: torch.Tensor
    ) -> None:
        batch, singles = self._batch, self._singles
        if singles:
            tables, lens = batch.page_table[:singles], batch.seq_lens[:singles]
            self._kernels.decode(query[:singles], keys, values, tables, lens, out[:singles])
        if singles < batch.rows:
            self._kernels.prefill(
                query,
                keys,
                values,
                batch.query_start[singles:],
                batch.page_table[singles:],
                batch.seq_lens[singles:],
                batch.max_query,
                out,
            )

    def attend_projected(
        self,
        batch: DecodeBatch,
        projected: Projected,
        keys: torch.Tensor,
        values: torch.Tensor,
        out: torch.Tensor,
    ) -> None:
        self._kernels.decode_projected(batch, projected, keys, values, out)
