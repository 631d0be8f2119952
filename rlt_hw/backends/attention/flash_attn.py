"""FlashAttention 2 over paged KV, for decode and prefill with one call.

Source: flash_attn.flash_attn_varlen_func; its block_table takes pages that are multiples of 256 tokens. On
ROCm the kernels are Composable Kernel's, built for three architectures (setup.py of 2.8.3); the Triton
kernels that FLASH_ATTENTION_TRITON_AMD_ENABLE puts in their place take a block_table and ignore it.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from rlt_hw.backends.attention.interface import AttentionBatch, AttentionGeometry
from rlt_hw.backends.targets import AMPERE_TO_BLACKWELL
from rlt_hw.reasons import Code, Rejection
from rlt_hw.registry import BackendSpec, Kind, Need, Rank, Requirement, Sizes

if TYPE_CHECKING:
    import torch

    from rlt_hw.devices.environment import Environment
    from rlt_hw.devices.target import Target

TRITON_ON_ROCM = "FLASH_ATTENTION_TRITON_AMD_ENABLE"


def _reads_pages(target: Target, _need: Need, environment: Environment) -> Rejection | None:
    if target.vendor != "amd" or environment.variables.get(TRITON_ON_ROCM) != "TRUE":
        return None
    return _ignores_pages(f"{TRITON_ON_ROCM}=TRUE", f"`unset {TRITON_ON_ROCM}`")


def _ignores_pages(found: str, remedy: str) -> Rejection:
    return Rejection(
        Code.KV_LAYOUT,
        "flash_attn",
        f"{found}: Triton kernels that ignore the page table",
        "flash-attn's compiled extension",
        remedy,
    )


SPEC = BackendSpec(
    kind=Kind.ATTENTION,
    name="flash_attn",
    adapter="rlt_hw.backends.attention.flash_attn:FlashAttn",
    summary="FlashAttention 2, pages of 256 tokens",
    targets=(*AMPERE_TO_BLACKWELL, "amd:gfx90a", "amd:gfx942", "amd:gfx950"),
    dtypes=("bfloat16", "float16"),
    head_dims=Sizes(multiple=8, high=256),
    page_sizes=Sizes(multiple=256),
    preferred_page=256,
    requirements=(Requirement("flash-attn", ">=2.6,<3", "flash_attn"),),
    ranks=(
        Rank("nvidia:*", 40, "not measured; its pages waste up to 255 tokens a request"),
        Rank("amd:*", 40, "not measured; its pages waste up to 255 tokens a request"),
    ),
    predicate=_reads_pages,
)


class FlashAttn:
    """See `rlt_hw.backends.attention.interface.Attention`."""

    @staticmethod
    def refusal() -> Rejection | None:
        import torch

        if torch.version.hip is None or find_spec("flash_attn_2_cuda"):
            return None
        return _ignores_pages(
            "no flash_attn_2_cuda", "Build flash-attn for this GPU, or leave attention at auto."
        )

    def __init__(self, geometry: AttentionGeometry) -> None:
        self._geometry = geometry

    def prepare(self, batch: AttentionBatch) -> None:
        import torch

        self._batch = batch
        self._key_start = torch.zeros(batch.rows + 1, dtype=torch.int32, device=batch.seq_lens.device)
        torch.cumsum(batch.seq_lens, 0, dtype=torch.int32, out=self._key_start[1:])

    def attend(
        self, query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, out: torch.Tensor
    ) -> None:
        from flash_attn import flash_attn_varlen_func

        if not len(query):
            return
        batch = self._batch
        result = flash_attn_varlen_func(
            query,
            keys,
            values,
            cu_seqlens_q=batch.query_start,
            cu_seqlens_k=self._key_start,
            max_seqlen_q=batch.max_query,
            max_seqlen_k=batch.max_seq,
            softmax_scale=self._geometry.scale,
            causal=True,
            block_table=batch.page_table,
        )
        out.copy_(result)
