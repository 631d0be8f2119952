"""FlashAttention 2 over paged KV, for decode and prefill with one call.

Source: flash_attn.flash_attn_varlen_func; its block_table takes pages that are multiples of 256 tokens.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlt_hw.backends.attention.interface import AttentionBatch, AttentionGeometry
from rlt_hw.backends.targets import AMPERE_TO_BLACKWELL
from rlt_hw.registry import BackendSpec, Kind, Rank, Requirement, Sizes

if TYPE_CHECKING:
    import torch

SPEC = BackendSpec(
    kind=Kind.ATTENTION,
    name="flash_attn",
    adapter="rlt_hw.backends.attention.flash_attn:FlashAttn",
    summary="FlashAttention 2, pages of 256 tokens",
    targets=AMPERE_TO_BLACKWELL,
    dtypes=("bfloat16", "float16"),
    head_dims=Sizes(multiple=8, high=256),
    page_sizes=Sizes(multiple=256),
    preferred_page=256,
    requirements=(Requirement("flash-attn", ">=2.6,<3", "flash_attn"),),
    ranks=(Rank("nvidia:*", 40, "not measured; its pages waste up to 255 tokens a request"),),
)


class FlashAttn:
    """See `rlt_hw.backends.attention.interface.Attention`."""

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
