"""AITER's paged decode kernel, which reads the canonical cache as it is.

Source: aiter 0.1.7, csrc/cpp_itfs/pa. It gives 16 values of the head to each of 4 waves in turn, so a
head_dim that 64 does not divide loses its rest without a word; a page has at most 32 tokens. It multiplies
what stands in a last page after the last token by zero, which a NaN survives: those slots are cleared first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlt_hw.backends.attention.aiter_package import REQUIREMENT, TOOLKIT, lacks, tail_slots
from rlt_hw.backends.attention.interface import AttentionBatch, AttentionGeometry
from rlt_hw.registry import BackendSpec, Kind, Rank, Sizes

if TYPE_CHECKING:
    import torch

    from rlt_hw.reasons import Rejection

PARTITION = 256
"""Tokens of context that one block of threads reads."""

SPEC = BackendSpec(
    kind=Kind.ATTENTION,
    name="aiter_paged",
    adapter="rlt_hw.backends.attention.aiter_paged:AiterPaged",
    summary="AITER paged decode",
    targets=("amd:gfx942", "amd:gfx950"),
    dtypes=("bfloat16", "float16"),
    head_dims=Sizes(values=(64, 128)),
    gqa_ratios=Sizes(multiple=1, high=16),
    page_sizes=Sizes(values=(16, 32)),
    preferred_page=16,
    phases=("decode",),
    requirements=(REQUIREMENT,),
    toolkits=(TOOLKIT,),
    ranks=(Rank("amd:*", 80, "not measured; AITER's README and vLLM's and SGLang's order on these GPUs"),),
)


class AiterPaged:
    """See `rlt_hw.backends.attention.interface.Attention`; rows of a single token only."""

    @staticmethod
    def refusal() -> Rejection | None:
        from aiter import paged_attention_v1

        return lacks(paged_attention_v1, "workspace_buffer", "cu_query_lens", "kv_cache_layout", "k_scale")

    def __init__(self, geometry: AttentionGeometry) -> None:
        import torch

        self._geometry = geometry
        self._unscaled = torch.ones(1, dtype=torch.float32, device=geometry.device)

    def prepare(self, batch: AttentionBatch) -> None:
        """One workspace a loop: a sum and a maximum (float32) and a partial result for each partition."""
        import torch

        geometry = self._geometry
        partitions = -(-batch.max_seq // PARTITION)
        items = batch.rows * geometry.num_heads * partitions
        size = items * (geometry.head_dim * geometry.dtype.itemsize + 2 * 4)
        self._batch = batch
        self._workspace = torch.empty(size, dtype=torch.uint8, device=geometry.device)
        self._tails = tail_slots(batch, geometry.page_size)

    def attend(
        self, query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, out: torch.Tensor
    ) -> None:
        from aiter import paged_attention_v1

        batch = self._batch
        if not batch.rows:
            return
        values.flatten(0, 1).index_fill_(0, self._tails, 0)
        paged_attention_v1(
            out=out,
            workspace_buffer=self._workspace,
            query=query,
            key_cache=keys,
            value_cache=values,
            scale=self._geometry.scale,
            block_tables=batch.page_table.contiguous(),
            cu_query_lens=None,
            context_lens=batch.seq_lens,
            max_context_len=batch.max_seq,
            alibi_slopes=None,
            kv_cache_dtype="auto",
            kv_cache_layout="NHD",
            logits_soft_cap=0.0,
            k_scale=self._unscaled,
            v_scale=self._unscaled,
        )
