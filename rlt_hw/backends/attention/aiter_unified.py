"""AITER's unified attention in Triton: decode and prefill over pages in one call, any head size from 32 up.

Source: aiter 0.1.7, aiter/ops/triton/unified_attention.py, later aiter/ops/triton/attention/. A decode tile
is a whole page, so pages are powers of two that fit a tile, and what stands in a last page after the last
token is multiplied by zero, which a NaN survives: those slots are cleared first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rlt_hw.backends import triton_package
from rlt_hw.backends.attention.aiter_package import REQUIREMENT, TOOLKIT, lacks, tail_slots
from rlt_hw.backends.attention.interface import AttentionBatch, AttentionGeometry
from rlt_hw.devices.versions import older
from rlt_hw.reasons import Code, Rejection
from rlt_hw.registry import BackendSpec, Kind, Need, Rank, Sizes

if TYPE_CHECKING:
    import torch

    from rlt_hw.devices.environment import Environment
    from rlt_hw.devices.target import Target

LISTED_LATER = ("gfx1151", "gfx1201")
"""Named by the README after 0.1.7 (experimental); `jit/core.py` of 0.1.7 refuses to build for them."""


def _listed(target: Target, _need: Need, environment: Environment) -> Rejection | None:
    version = environment.version("amd-aiter") or environment.version("aiter")
    if target.arch not in LISTED_LATER or version is None or not older(version, "0.1.8"):
        return None
    return Rejection(
        Code.PKG_VERSION,
        "aiter_unified",
        f"amd-aiter {version}, which does not build for {target.arch}",
        "amd-aiter >= 0.1.8",
        "`pip install --upgrade 'amd-aiter>=0.1.8'`, or leave attention at auto.",
    )


SPEC = BackendSpec(
    kind=Kind.ATTENTION,
    name="aiter_unified",
    adapter="rlt_hw.backends.attention.aiter_unified:AiterUnified",
    summary="AITER unified attention in Triton",
    targets=("amd:gfx90a", "amd:gfx942", "amd:gfx950", "amd:gfx1100", "amd:gfx1151", "amd:gfx1201"),
    dtypes=("bfloat16", "float16"),
    head_dims=Sizes(multiple=8, low=32, high=256),
    page_sizes=Sizes(values=(16, 32, 64)),
    preferred_page=16,
    requirements=(REQUIREMENT, triton_package.REQUIREMENT),
    toolkits=(TOOLKIT, triton_package.TOOLKIT),
    ranks=(
        Rank("amd:gfx942", 70, "not measured; vLLM takes it for CDNA 3 and later, behind the two above"),
        Rank("amd:gfx950", 70, "not measured; vLLM takes it for CDNA 3 and later, behind the two above"),
        Rank("amd:*", 50, "not measured; its tile shapes are for CDNA 3 and spill on gfx1100 (0.1.7)"),
    ),
    predicate=_listed,
)


class AiterUnified:
    """See `rlt_hw.backends.attention.interface.Attention`."""

    @staticmethod
    def refusal() -> Rejection | None:
        return lacks(_entry(), "seqused_k", "window_size", "block_table", "softcap", "q_descale")

    def __init__(self, geometry: AttentionGeometry) -> None:
        self._geometry = geometry
        self._unified = _entry()

    def prepare(self, batch: AttentionBatch) -> None:
        self._batch = batch
        self._tails = tail_slots(batch, self._geometry.page_size)

    def attend(
        self, query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, out: torch.Tensor
    ) -> None:
        batch = self._batch
        if not batch.rows:
            return
        values.flatten(0, 1).index_fill_(0, self._tails, 0)
        self._unified(
            q=query,
            k=keys,
            v=values,
            out=out,
            cu_seqlens_q=batch.query_start,
            max_seqlen_q=batch.max_query,
            seqused_k=batch.seq_lens,
            max_seqlen_k=batch.max_seq,
            softmax_scale=self._geometry.scale,
            causal=True,
            window_size=(-1, -1),
            block_table=batch.page_table,
            softcap=0.0,
            q_descale=None,
            k_descale=None,
            v_descale=None,
        )


def _entry() -> Callable[..., Any]:
    try:
        from aiter.ops.triton.attention.unified_attention import unified_attention
    except ModuleNotFoundError:
        from aiter.ops.triton.unified_attention import unified_attention
    function: Callable[..., Any] = unified_attention
    return function
