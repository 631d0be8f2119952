"""Ascend's fused attention for decode (layout BSND): head sizes that packed rows do not take, 96 among them.

Host integers that the operator takes: how many keys each row has.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlt_hw.backends.attention.interface import AttentionBatch, AttentionGeometry, DecodeBatch
from rlt_hw.backends.attention.npu_limits import block_table, check_elements, too_many_heads, too_wide
from rlt_hw.backends.attention.npu_step import NpuStep
from rlt_hw.backends.npu_package import REQUIREMENT, TARGETS, order
from rlt_hw.registry import BackendSpec, Kind, Need, Sizes

if TYPE_CHECKING:
    import torch

    from rlt_hw.backends.operators.interface import Projected
    from rlt_hw.devices.environment import Environment
    from rlt_hw.devices.target import Target
    from rlt_hw.reasons import Rejection


def _limits(_target: Target, need: Need, _environment: Environment) -> Rejection | None:
    return too_wide("npu_fia_decode", need) or too_many_heads("npu_fia_decode", need)


SPEC = BackendSpec(
    kind=Kind.ATTENTION,
    name="npu_fia_decode",
    adapter="rlt_hw.backends.attention.npu_fia_decode:NpuFiaDecode",
    summary="npu_fused_infer_attention_score, one token a row",
    targets=TARGETS,
    dtypes=("bfloat16", "float16"),
    head_dims=Sizes(multiple=16, high=512),
    gqa_ratios=Sizes(multiple=1, high=64),
    page_sizes=Sizes(multiple=16, high=512),
    preferred_page=128,
    phases=("decode",),
    graph_levels=("none", "full"),
    requirements=(REQUIREMENT,),
    ranks=order(70, "behind the packed call, which serves both phases at once"),
    predicate=_limits,
)


class NpuFiaDecode:
    """See `rlt_hw.backends.attention.interface.Attention`; rows of a single token only."""

    def __init__(self, geometry: AttentionGeometry) -> None:
        self._geometry = geometry
        self._step = NpuStep(geometry.page_size)

    def prepare(self, batch: AttentionBatch) -> None:
        self._page_table = block_table(batch, self._geometry.page_size)
        self._lengths = batch.seq_lens_host.tolist()

    def attend(
        self, query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, out: torch.Tensor
    ) -> None:
        if len(query):
            out.copy_(self._attend(query, keys, values, self._lengths, self._page_table))

    def attend_projected(
        self,
        batch: DecodeBatch,
        projected: Projected,
        keys: torch.Tensor,
        values: torch.Tensor,
        out: torch.Tensor,
    ) -> None:
        query, rows = self._step.write(batch, projected, keys, values)
        out.copy_(rows.only_active(self._attend(query, keys, values, rows.lengths, rows.page_table)))

    def _attend(
        self,
        query: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
        lengths: list[int],
        page_table: torch.Tensor,
    ) -> torch.Tensor:
        import torch_npu

        check_elements(keys)
        geometry = self._geometry
        result: torch.Tensor = torch_npu.npu_fused_infer_attention_score(
            query=query.contiguous().unsqueeze(1),
            key=keys.flatten(2),
            value=values.flatten(2),
            actual_seq_lengths_kv=lengths,
            block_table=page_table,
            num_heads=geometry.num_heads,
            scale=geometry.scale,
            input_layout="BSND",
            num_key_value_heads=geometry.num_kv_heads,
            block_size=geometry.page_size,
        )[0]
        return result.squeeze(1)
