"""Ascend's fused attention on packed rows (layout TND): prompts, later chunks and decode in one call.

Host integers that the operator takes: where each row's queries end, and how many keys each row has. Its
documents disagree on whether TND reads pages and grouped heads, which follows CANN's version: `refusal` runs
both on the device. Head sizes are 128, and 64 where every query head has its own keys; 96 is none of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlt_hw.backends.attention.interface import AttentionBatch, AttentionGeometry, DecodeBatch
from rlt_hw.backends.attention.npu_limits import (
    RIGHT_ALIGNED,
    block_table,
    causal_mask,
    check_elements,
    check_rows,
    too_wide,
)
from rlt_hw.backends.attention.npu_step import NpuStep
from rlt_hw.backends.npu_package import REQUIREMENT, TARGETS, order
from rlt_hw.reasons import Code, Rejection
from rlt_hw.registry import BackendSpec, Kind, Need, Sizes

if TYPE_CHECKING:
    import torch

    from rlt_hw.backends.operators.interface import Projected
    from rlt_hw.devices.environment import Environment
    from rlt_hw.devices.target import Target

GROUPED_HEAD_DIM = 128


def _limits(_target: Target, need: Need, _environment: Environment) -> Rejection | None:
    if need.num_heads != need.num_kv_heads and need.head_dim != GROUPED_HEAD_DIM:
        return Rejection(
            Code.HEAD_DIM,
            "npu_fia",
            f"{need.head_dim} for heads that share keys",
            f"{GROUPED_HEAD_DIM}; 64 where none do",
            "Leave attention at auto: npu_fia_decode and npu_fia_prefill take multiples of 16.",
        )
    return too_wide("npu_fia", need)


SPEC = BackendSpec(
    kind=Kind.ATTENTION,
    name="npu_fia",
    adapter="rlt_hw.backends.attention.npu_fia:NpuFia",
    summary="npu_fused_infer_attention_score on packed rows",
    targets=TARGETS,
    dtypes=("bfloat16", "float16"),
    head_dims=Sizes(values=(64, 128)),
    gqa_ratios=Sizes(multiple=1, high=64),
    page_sizes=Sizes(multiple=16, high=1024),
    preferred_page=128,
    graph_levels=("none", "full"),
    requirements=(REQUIREMENT,),
    ranks=order(80, "vllm-ascend calls it for every phase"),
    predicate=_limits,
)


class NpuFia:
    """See `rlt_hw.backends.attention.interface.Attention`."""

    @staticmethod
    def refusal() -> Rejection | None:
        from rlt_hw.backends.attention.npu_probe import reads_pages

        return reads_pages(NpuFia, "npu_fia")

    def __init__(self, geometry: AttentionGeometry) -> None:
        check_rows(geometry)
        self._geometry = geometry
        self._mask = causal_mask(geometry.device)
        self._step = NpuStep(geometry.page_size)

    def prepare(self, batch: AttentionBatch) -> None:
        self._page_table = block_table(batch, self._geometry.page_size)
        self._ends = batch.query_start_host[1:].tolist()
        self._lengths = batch.seq_lens_host.tolist()

    def attend(
        self, query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, out: torch.Tensor
    ) -> None:
        if len(query):
            out.copy_(self._attend(query, keys, values, self._ends, self._lengths, self._page_table))

    def attend_projected(
        self,
        batch: DecodeBatch,
        projected: Projected,
        keys: torch.Tensor,
        values: torch.Tensor,
        out: torch.Tensor,
    ) -> None:
        query, rows = self._step.write(batch, projected, keys, values)
        ends = list(range(1, len(query) + 1))
        out.copy_(rows.only_active(self._attend(query, keys, values, ends, rows.lengths, rows.page_table)))

    def _attend(
        self,
        query: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
        ends: list[int],
        lengths: list[int],
        page_table: torch.Tensor,
    ) -> torch.Tensor:
        import torch_npu

        check_elements(keys)
        geometry = self._geometry
        result: torch.Tensor = torch_npu.npu_fused_infer_attention_score(
            query=query.contiguous(),
            key=keys.flatten(2),
            value=values.flatten(2),
            atten_mask=self._mask,
            actual_seq_lengths=ends,
            actual_seq_lengths_kv=lengths,
            block_table=page_table,
            num_heads=geometry.num_heads,
            scale=geometry.scale,
            input_layout="TND",
            num_key_value_heads=geometry.num_kv_heads,
            sparse_mode=RIGHT_ALIGNED,
            block_size=geometry.page_size,
        )[0]
        return result
