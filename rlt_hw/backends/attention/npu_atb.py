"""Paged decode attention of Ascend's transformer library (ATB), where the fused operator is not wanted.

It reads the canonical cache as it is. `context_lens` is an int32 tensor in host memory, as SGLang and
torch_npu's own tests pass it. It needs NNAL's libatb beside CANN. Limits: torch_npu 2.13.0,
`_atb_api_docs.py`, where the second form of the operator has them; every id of a table must name a page.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlt_hw.backends.attention.interface import AttentionBatch, AttentionGeometry
from rlt_hw.backends.attention.npu_limits import block_table
from rlt_hw.backends.npu_package import REQUIREMENT, TARGETS, order
from rlt_hw.reasons import Code, Rejection
from rlt_hw.registry import BackendSpec, Kind, Sizes

if TYPE_CHECKING:
    import torch

SPEC = BackendSpec(
    kind=Kind.ATTENTION,
    name="npu_atb",
    adapter="rlt_hw.backends.attention.npu_atb:NpuAtb",
    summary="ATB paged attention, one token a row",
    targets=TARGETS,
    dtypes=("bfloat16", "float16"),
    head_dims=Sizes(multiple=16, high=256),
    page_sizes=Sizes(multiple=16, high=128),
    preferred_page=128,
    phases=("decode",),
    requirements=(REQUIREMENT,),
    ranks=order(60, "vllm-ascend takes it for some decode shapes only"),
)


class NpuAtb:
    """See `rlt_hw.backends.attention.interface.Attention`; rows of a single token only."""

    @staticmethod
    def refusal() -> Rejection | None:
        import torch_npu

        if hasattr(torch_npu, "_npu_paged_attention"):
            return None
        return Rejection(
            Code.PKG_BROKEN,
            "npu_atb",
            "torch_npu without _npu_paged_attention",
            "NNAL beside CANN",
            "Install NNAL, then `source /usr/local/Ascend/nnal/atb/set_env.sh`.",
        )

    def __init__(self, geometry: AttentionGeometry) -> None:
        self._geometry = geometry

    def prepare(self, batch: AttentionBatch) -> None:
        import torch

        self._page_table = block_table(batch, self._geometry.page_size)
        self._lengths = torch.from_numpy(batch.seq_lens_host).int()

    def attend(
        self, query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, out: torch.Tensor
    ) -> None:
        import torch_npu

        if not len(query):
            return
        geometry = self._geometry
        torch_npu._npu_paged_attention(
            query=query.contiguous(),
            key_cache=keys,
            value_cache=values,
            num_kv_heads=geometry.num_kv_heads,
            num_heads=geometry.num_heads,
            scale_value=geometry.scale,
            block_table=self._page_table,
            context_lens=self._lengths,
            out=out,
        )
