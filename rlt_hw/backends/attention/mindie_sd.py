"""MindIE-SD's attention, which no language model with a paged cache can use: registered to say so.

Source: mindiesd 3.1.0, `attention_forward_varlen`: it raises "Unsupported parameters" where a block_table is
given and calls npu_fusion_attention on dense keys and values; its form of the fused inference operator takes
whole sequences too. There is no call for a token that follows a cache.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlt_hw.backends.npu_package import TARGETS, order
from rlt_hw.reasons import Code, Rejection
from rlt_hw.registry import BackendSpec, Kind, Need

if TYPE_CHECKING:
    from rlt_hw.devices.environment import Environment
    from rlt_hw.devices.target import Target


def _no_pages(_target: Target, _need: Need, _environment: Environment) -> Rejection:
    return Rejection(
        Code.KV_LAYOUT,
        "mindie_sd",
        "no paged KV and no incremental decode: attention_forward_varlen raises on a block_table",
        "an operator that reads pages",
        "Leave attention at auto.",
    )


SPEC = BackendSpec(
    kind=Kind.ATTENTION,
    name="mindie_sd",
    adapter="mindiesd:attention_forward_varlen",
    summary="MindIE-SD, for diffusion models; always refused",
    targets=TARGETS,
    dtypes=("bfloat16", "float16"),
    phases=("prefill",),
    ranks=order(0, "never chosen"),
    predicate=_no_pages,
)
