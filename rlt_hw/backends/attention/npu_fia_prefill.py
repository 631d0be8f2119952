"""Ascend's fused attention for prompts and later chunks (layout BSND), one call a row.

Host integers that the operator takes: a row's new tokens and its keys. With more than one query a row it
reads pages of 128 to 512 tokens in steps of 128.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from rlt_hw.backends.attention.interface import AttentionBatch, AttentionGeometry
from rlt_hw.backends.attention.npu_limits import (
    RIGHT_ALIGNED,
    block_table,
    causal_mask,
    check_elements,
    too_many_heads,
    too_wide,
)
from rlt_hw.backends.npu_package import REQUIREMENT, TARGETS, order
from rlt_hw.registry import BackendSpec, Kind, Need, Sizes

if TYPE_CHECKING:
    import torch

    from rlt_hw.devices.environment import Environment
    from rlt_hw.devices.target import Target
    from rlt_hw.reasons import Rejection


def _limits(_target: Target, need: Need, _environment: Environment) -> Rejection | None:
    return too_wide("npu_fia_prefill", need) or too_many_heads("npu_fia_prefill", need)


SPEC = BackendSpec(
    kind=Kind.ATTENTION,
    name="npu_fia_prefill",
    adapter="rlt_hw.backends.attention.npu_fia_prefill:NpuFiaPrefill",
    summary="npu_fused_infer_attention_score, one prompt a call",
    targets=TARGETS,
    dtypes=("bfloat16", "float16"),
    head_dims=Sizes(multiple=16, high=512),
    gqa_ratios=Sizes(multiple=1, high=64),
    page_sizes=Sizes(multiple=128, high=512),
    preferred_page=128,
    phases=("prefill",),
    requirements=(REQUIREMENT,),
    ranks=order(70, "SGLang's form of it, a call a prompt"),
    predicate=_limits,
)


class NpuFiaPrefill:
    """See `rlt_hw.backends.attention.interface.Attention`; rows of more than one token only."""

    def __init__(self, geometry: AttentionGeometry) -> None:
        self._geometry = geometry
        self._mask = causal_mask(geometry.device)

    def prepare(self, batch: AttentionBatch) -> None:
        self._page_table = block_table(batch, self._geometry.page_size)
        self._edges = list(pairwise(batch.query_start_host.tolist()))
        self._lengths = batch.seq_lens_host.tolist()

    def attend(
        self, query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, out: torch.Tensor
    ) -> None:
        import torch_npu

        check_elements(keys)
        geometry = self._geometry
        for row, (first, last) in enumerate(self._edges):
            result, _ = torch_npu.npu_fused_infer_attention_score(
                query=query[first:last].contiguous().unsqueeze(0),
                key=keys.flatten(2),
                value=values.flatten(2),
                atten_mask=self._mask,
                actual_seq_lengths=[last - first],
                actual_seq_lengths_kv=[self._lengths[row]],
                block_table=self._page_table[row : row + 1],
                num_heads=geometry.num_heads,
                scale=geometry.scale,
                input_layout="BSND",
                num_key_value_heads=geometry.num_kv_heads,
                sparse_mode=RIGHT_ALIGNED,
                block_size=geometry.page_size,
            )
            out[first:last].copy_(result.squeeze(0))
