"""FlashInfer's XQA decode kernels: the ones of that package that are right at head_dim 96."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlt_hw.backends.attention.interface import AttentionBatch, AttentionGeometry
from rlt_hw.registry import BackendSpec, Kind, Rank, Requirement, Sizes, Toolkit

if TYPE_CHECKING:
    import torch

WORKSPACE_BYTES = 128 * 2**20

SPEC = BackendSpec(
    kind=Kind.ATTENTION,
    name="flashinfer_xqa",
    adapter="rlt_hw.backends.attention.flashinfer_xqa:FlashInferXqa",
    summary="FlashInfer XQA paged decode",
    targets=("nvidia:sm90", "nvidia:sm100", "nvidia:sm103", "nvidia:sm120", "nvidia:sm121"),
    dtypes=("bfloat16", "float16"),
    head_dims=Sizes(values=(96, 128)),
    page_sizes=Sizes(values=(16, 32, 64, 128)),
    preferred_page=16,
    phases=("decode",),
    requirements=(Requirement("flashinfer-python", ">=0.7", "flashinfer"),),
    toolkits=(Toolkit("nvcc"), Toolkit("cxx")),
    ranks=(
        Rank("nvidia:sm90", 70, "6 to 24% behind Triton's paged decode in 8 of 10 cases on an H200 (0.7.4)"),
        Rank("nvidia:*", 70, "as on nvidia:sm90; not measured here"),
    ),
)


class FlashInferXqa:
    """See `rlt_hw.backends.attention.interface.Attention`; rows of a single token only."""

    def __init__(self, geometry: AttentionGeometry) -> None:
        import torch

        self._geometry = geometry
        self._workspace = torch.zeros(WORKSPACE_BYTES, dtype=torch.uint8, device=geometry.device)

    def prepare(self, batch: AttentionBatch) -> None:
        self._batch = batch

    def attend(
        self, query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, out: torch.Tensor
    ) -> None:
        """The layout is named, since the package's entry points differ in their default; the query is made
        contiguous, since the kernels read it without strides. An empty batch is not theirs to take.
        """
        from flashinfer.decode import xqa_batch_decode_with_kv_cache

        batch = self._batch
        if not batch.rows:
            return
        xqa_batch_decode_with_kv_cache(
            query.contiguous(),
            (keys, values),
            self._workspace,
            batch.page_table,
            batch.seq_lens,
            batch.max_seq,
            bmm1_scale=self._geometry.scale,
            bmm2_scale=1.0,
            out=out,
            kv_layout="NHD",
        )
