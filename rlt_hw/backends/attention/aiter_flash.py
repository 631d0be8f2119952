"""AITER's FlashAttention for prefill, over keys and values gathered from their pages.

Source: aiter 0.1.7, csrc/py_itfs_ck/mha_varlen_fwd_kernels.cu. Its own paged form takes pages that are
multiples of 128 tokens, which the paged decode kernels of the same package do not; the gather costs one more
pass over the context. Head sizes are those that vLLM's ROCM_AITER_FA runs; the source allows multiples of 8
up to 256.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlt_hw.backends.attention.aiter_package import REQUIREMENT, TOOLKIT, cache_slots, lacks
from rlt_hw.backends.attention.interface import AttentionBatch, AttentionGeometry
from rlt_hw.registry import BackendSpec, Kind, Rank, Sizes

if TYPE_CHECKING:
    import torch

    from rlt_hw.reasons import Rejection

SPEC = BackendSpec(
    kind=Kind.ATTENTION,
    name="aiter_flash",
    adapter="rlt_hw.backends.attention.aiter_flash:AiterFlash",
    summary="AITER FlashAttention prefill over gathered pages",
    targets=("amd:gfx942", "amd:gfx950"),
    dtypes=("bfloat16", "float16"),
    head_dims=Sizes(values=(64, 128, 256)),
    phases=("prefill",),
    requirements=(REQUIREMENT,),
    toolkits=(TOOLKIT,),
    ranks=(Rank("amd:*", 80, "not measured; AITER's README and vLLM's and SGLang's order on these GPUs"),),
)


class AiterFlash:
    """See `rlt_hw.backends.attention.interface.Attention`."""

    @staticmethod
    def refusal() -> Rejection | None:
        from aiter import flash_attn_varlen_func

        return lacks(flash_attn_varlen_func, "cu_seqlens_k", "max_seqlen_k", "softmax_scale", "causal")

    def __init__(self, geometry: AttentionGeometry) -> None:
        self._geometry = geometry

    def prepare(self, batch: AttentionBatch) -> None:
        import numpy as np
        import torch

        lengths = batch.seq_lens_host.astype(np.int64)
        ends = np.cumsum(lengths)
        row = np.repeat(np.arange(len(lengths)), lengths)
        position = np.arange(len(row)) - np.repeat(ends - lengths, lengths)
        self._batch = batch
        self._slots = cache_slots(batch, row, position, self._geometry.page_size)
        starts = np.concatenate(([0], ends)).astype(np.int32)
        self._key_start = torch.from_numpy(starts).to(batch.page_table.device)

    def attend(
        self, query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, out: torch.Tensor
    ) -> None:
        from aiter import flash_attn_varlen_func

        if not len(query):
            return
        batch = self._batch
        keys, values = (plane.flatten(0, 1).index_select(0, self._slots) for plane in (keys, values))
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
        )
        out.copy_(result)
