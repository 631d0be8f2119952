"""FlashInfer's paged decode and prefill (its FA2 kernels), compiled for the device when first used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlt_hw.backends.attention.flashinfer_pages import CompressedPages
from rlt_hw.backends.attention.interface import AttentionBatch, AttentionGeometry
from rlt_hw.registry import BackendSpec, Kind, Rank, Requirement, Sizes, Toolkit

if TYPE_CHECKING:
    import torch

WORKSPACE_BYTES = 128 * 2**20
TENSOR_CORE_RATIO = 4
"""Query heads to a KV head from which on decode uses the tensor-core kernels."""

SPEC = BackendSpec(
    kind=Kind.ATTENTION,
    name="flashinfer",
    adapter="rlt_hw.backends.attention.flashinfer:FlashInfer",
    summary="FlashInfer paged decode and prefill",
    targets=(
        "nvidia:sm80",
        "nvidia:sm86",
        "nvidia:sm89",
        "nvidia:sm90",
        "nvidia:sm100",
        "nvidia:sm103",
        "nvidia:sm120",
        "nvidia:sm121",
    ),
    dtypes=("bfloat16", "float16"),
    # 96 compiles and then faults with an illegal memory access (0.7.4 on an H200).
    head_dims=Sizes(values=(64, 128, 256)),
    preferred_page=16,
    requirements=(Requirement("flashinfer-python", ">=0.7", "flashinfer"),),
    toolkits=(Toolkit("nvcc"), Toolkit("cxx")),
    ranks=(
        Rank("nvidia:sm90", 80, "paged decode within 16% of Triton's on an H200 (0.7.4)", phases=("decode",)),
        Rank("nvidia:sm90", 50, "217 to 310 TFLOP/s of prefill on an H200; below Triton until it ran here",
             phases=("prefill",)),
        Rank("nvidia:*", 80, "as on nvidia:sm90; not measured here", phases=("decode",)),
        Rank("nvidia:*", 50, "as on nvidia:sm90; not measured here", phases=("prefill",)),
    ),
)  # fmt: skip


class FlashInfer:
    """See `rlt_hw.backends.attention.interface.Attention`.

    Single-token rows go to the decode wrapper, the others to the prefill wrapper; both are planned on the
    host once a loop and run for each of its layers. Both name their kernels: "auto" may choose cuDNN's.
    A plan is copied to the device from one pinned buffer that the next plan overwrites, so the tables are
    handed over on the device: fetching them makes `plan` wait until the copy before is through.
    """

    def __init__(self, geometry: AttentionGeometry) -> None:
        import flashinfer
        import torch

        self._geometry = geometry
        ratio = geometry.num_heads // geometry.num_kv_heads
        work = torch.zeros(WORKSPACE_BYTES, dtype=torch.uint8, device=geometry.device)
        self._decode = flashinfer.BatchDecodeWithPagedKVCacheWrapper(
            work, "NHD", use_tensor_cores=ratio >= TENSOR_CORE_RATIO, backend="fa2"
        )
        self._prefill = flashinfer.BatchPrefillWithPagedKVCacheWrapper(
            torch.zeros_like(work), "NHD", backend="fa2"
        )

    def prepare(self, batch: AttentionBatch) -> None:
        import numpy as np

        geometry, rows = self._geometry, batch.rows
        self._singles = singles = int((np.diff(batch.query_start_host) == 1).sum())
        self._rows = rows
        shape = (geometry.num_heads, geometry.num_kv_heads, geometry.head_dim, geometry.page_size)
        types = {
            "q_data_type": geometry.dtype,
            "kv_data_type": geometry.dtype,
            "sm_scale": geometry.scale,
        }
        if singles:
            pages = CompressedPages.build(batch, 0, singles, geometry.page_size)
            self._decode.plan(pages.indptr, pages.indices, pages.last_page_len, *shape, **types)
        if singles < rows:
            pages = CompressedPages.build(batch, singles, rows, geometry.page_size)
            starts = batch.query_start[singles:] - singles
            self._prefill.plan(
                starts, pages.indptr, pages.indices, pages.last_page_len, *shape, causal=True, **types
            )

    def attend(
        self, query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, out: torch.Tensor
    ) -> None:
        singles = self._singles
        if singles:
            self._decode.run(query[:singles], (keys, values), out=out[:singles])
        if singles < self._rows:
            self._prefill.run(query[singles:], (keys, values), out=out[singles:])
