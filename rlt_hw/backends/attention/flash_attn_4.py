"""FlashAttention 4 (CuTe DSL) over paged KV: the fastest prefill on Hopper and datacentre Blackwell.

Source: flash_attn.cute.flash_attn_varlen_func of flash-attn-4 4.0.0b36. Where a page holds exactly one key
tile (128 tokens at some head sizes), that release loads the unused tail of a last page too, and a NaN there
spoils the result; such page sizes are left out here. Pages smaller than a tile need a head_dim
that 16 divides.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlt_hw.backends.attention.interface import AttentionBatch, AttentionGeometry
from rlt_hw.reasons import Code, Rejection
from rlt_hw.registry import BackendSpec, Kind, Need, Rank, Requirement, Sizes

if TYPE_CHECKING:
    import torch

    from rlt_hw.devices.environment import Environment
    from rlt_hw.devices.target import Target


def _blackwell_head_dims(target: Target, need: Need, _environment: Environment) -> Rejection | None:
    """sm100 takes up to 128, and 256; sm90 everything up to 256."""
    if target.arch != "sm100" or need.head_dim <= 128 or need.head_dim == 256:
        return None
    return Rejection(
        Code.HEAD_DIM,
        "flash_attn_4",
        f"{need.head_dim} on {target}",
        "multiples of 16 up to 128, 256",
        "Leave attention at auto, or name another backend.",
    )


SPEC = BackendSpec(
    kind=Kind.ATTENTION,
    name="flash_attn_4",
    adapter="rlt_hw.backends.attention.flash_attn_4:FlashAttn4",
    summary="FlashAttention 4, paged",
    targets=("nvidia:sm90", "nvidia:sm100"),
    dtypes=("bfloat16", "float16"),
    head_dims=Sizes(multiple=16, high=256),
    page_sizes=Sizes(values=(16, 32, 64)),
    preferred_page=16,
    requirements=(Requirement("flash-attn-4", ">=4.0.0b36", "flash_attn.cute"),),
    ranks=(
        Rank("nvidia:*", 55, "322 to 600 TFLOP/s of prefill on an H200 (b36); below Triton until it ran here",
             phases=("prefill",)),
        Rank("nvidia:*", 30, "decode without KV splits, up to 5 times Triton's time at batch 1 on an H200",
             phases=("decode",)),
    ),
    predicate=_blackwell_head_dims,
)  # fmt: skip


class FlashAttn4:
    """See `rlt_hw.backends.attention.interface.Attention`."""

    def __init__(self, geometry: AttentionGeometry) -> None:
        self._geometry = geometry

    def prepare(self, batch: AttentionBatch) -> None:
        self._batch = batch

    def attend(
        self, query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, out: torch.Tensor
    ) -> None:
        from flash_attn.cute import flash_attn_varlen_func

        if not len(query):
            return
        batch = self._batch
        result, _ = flash_attn_varlen_func(
            query,
            keys,
            values,
            cu_seqlens_q=batch.query_start,
            seqused_k=batch.seq_lens,
            max_seqlen_q=batch.max_query,
            max_seqlen_k=batch.max_seq,
            page_table=batch.page_table,
            softmax_scale=self._geometry.scale,
            causal=True,
        )
        out.copy_(result)
