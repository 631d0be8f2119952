"""The rules, one function each: a spec against a need on a target. Every broken rule is reported."""

from __future__ import annotations

from collections.abc import Iterator

from rlt_hw.devices.environment import Environment
from rlt_hw.devices.facts import TargetFacts, facts
from rlt_hw.devices.target import Target
from rlt_hw.reasons import Code, Rejection
from rlt_hw.registry.case import Case, Rule, rejection
from rlt_hw.registry.need import AUTO, Need
from rlt_hw.registry.requirements import packages, toolkits
from rlt_hw.registry.spec import IN_TREE, BackendSpec, Kind


def rejections(
    spec: BackendSpec, target: Target, need: Need, environment: Environment
) -> tuple[Rejection, ...]:
    """Why a spec cannot serve a need, every reason of it. The need's dtypes must be settled.

    A wrong architecture stands alone: the other limits say nothing where the backend cannot run.
    """
    case = Case(spec, target, need, environment)
    wrong_arch = tuple(_arch(case))
    if wrong_arch:
        return wrong_arch
    rules = (*_RULES[spec.kind], packages, toolkits, _predicate)
    return tuple(row for rule in rules for row in rule(case))


def _arch(case: Case) -> Iterator[Rejection]:
    if not case.spec.serves(case.target):
        yield rejection(
            Code.ARCH, case.spec, str(case.target), case.spec.target_list(), _other(case.spec.kind)
        )


def _phase(case: Case) -> Iterator[Rejection]:
    for phase in case.need.phases:
        if phase not in case.spec.phases:
            allowed = f"{', '.join(case.spec.phases)} only"
            yield rejection(
                Code.PHASE, case.spec, phase, allowed, f"Name another backend for {phase}, or leave it auto."
            )


def _dtype(case: Case) -> Iterator[Rejection]:
    if case.need.dtype not in case.spec.dtypes:
        yield rejection(
            Code.DTYPE,
            case.spec,
            case.need.dtype,
            ", ".join(case.spec.dtypes),
            _set("dtype", case.spec.dtypes[0]),
        )


def _kv_dtype(case: Case) -> Iterator[Rejection]:
    same = case.need.kv_dtype == case.need.dtype and "same" in case.spec.kv_dtypes
    if not same and case.need.kv_dtype not in case.spec.kv_dtypes:
        names = [f"{case.need.dtype} (the dtype)" if name == "same" else name for name in case.spec.kv_dtypes]
        yield rejection(
            Code.KV_DTYPE, case.spec, case.need.kv_dtype, ", ".join(names), _set("kv_cache_dtype", AUTO)
        )


def _head_dim(case: Case) -> Iterator[Rejection]:
    if case.need.head_dim not in case.spec.head_dims:
        yield rejection(
            Code.HEAD_DIM,
            case.spec,
            str(case.need.head_dim),
            str(case.spec.head_dims),
            _other(case.spec.kind),
        )


def _gqa_ratio(case: Case) -> Iterator[Rejection]:
    heads, kv_heads = case.need.num_heads, case.need.num_kv_heads
    if heads % kv_heads == 0 and heads // kv_heads not in case.spec.gqa_ratios:
        found = f"{heads // kv_heads} query heads a KV head"
        yield rejection(Code.GQA_RATIO, case.spec, found, str(case.spec.gqa_ratios), _other(case.spec.kind))


def _page_size(case: Case) -> Iterator[Rejection]:
    if case.need.page_size is not None and case.need.page_size not in case.spec.page_sizes:
        remedy = (
            _set("page_size", case.spec.preferred_page)
            if case.spec.preferred_page
            else "Leave page_size unset."
        )
        yield rejection(
            Code.PAGE_SIZE, case.spec, str(case.need.page_size), str(case.spec.page_sizes), remedy
        )


def _kv_layout(case: Case) -> Iterator[Rejection]:
    wanted = (case.need.kv_rule,) if case.need.kv_layout != AUTO else case.need.allowed_kv_layouts
    if not set(wanted) & set(case.spec.kv_layouts):
        allowed = ", ".join(case.spec.kv_layouts)
        yield rejection(Code.KV_LAYOUT, case.spec, ", ".join(wanted), allowed, _other(case.spec.kind))


def _loop_planes(case: Case) -> Iterator[Rejection]:
    if not case.spec.loop_planes and case.need.loops > 1 and case.need.kv_layout != "shared":
        found = f"one plane a layer for {case.need.loops} loops"
        yield rejection(Code.LOOP_KV, case.spec, found, "a plane for each loop", _other(case.spec.kind))


def _graph(case: Case) -> Iterator[Rejection]:
    """Attention decides in decode only: a prefill step is never captured."""
    decides = case.spec.kind is not Kind.ATTENTION or "decode" in case.need.phases
    if decides and case.need.graph != AUTO and case.need.graph not in case.spec.graph_levels:
        levels = ", ".join(case.spec.graph_levels)
        yield rejection(
            Code.GRAPH,
            case.spec,
            f"graph {case.need.graph}",
            levels,
            _set("graph", case.spec.graph_levels[-1]),
        )


def _batch_invariant(case: Case) -> Iterator[Rejection]:
    if case.need.batch_invariant and BATCH_INVARIANT not in case.spec.features:
        remedy = (
            f"Leave batch_invariant off, or {_other(case.spec.kind)[0].lower()}{_other(case.spec.kind)[1:]}"
        )
        found = "results that depend on the batch"
        yield rejection(Code.COMBINATION, case.spec, found, "the same result in every batch", remedy)


def _world_size(case: Case) -> Iterator[Rejection]:
    if case.need.tensor_parallel not in case.spec.world_sizes:
        found = f"{case.need.tensor_parallel} process{'es' if case.need.tensor_parallel > 1 else ''}"
        yield rejection(Code.COMM, case.spec, found, str(case.spec.world_sizes), _other(case.spec.kind))


def _shared_memory(case: Case) -> Iterator[Rejection]:
    """The smallest tile, keys and values, with the head padded to a power of two."""
    known = facts(case.target)
    limit = known.shared_memory if isinstance(known, TargetFacts) else None
    padded = 1 << (case.need.head_dim - 1).bit_length()
    needed = 2 * case.spec.tile_tokens * padded * _ITEMSIZE.get(case.need.dtype, 4)
    if limit is not None and needed > limit:
        found = (
            f"{needed // 1024} KiB of shared memory for head_dim {case.need.head_dim} in {case.need.dtype}"
        )
        allowed = f"{limit // 1024} KiB on {case.target}"
        yield rejection(Code.RESOURCE, case.spec, found, allowed, _other(case.spec.kind))


def _predicate(case: Case) -> Iterator[Rejection]:
    """An exception of a predicate from outside becomes its row; one of ours is a fault and surfaces."""
    if case.spec.predicate is None:
        return
    try:
        row = case.spec.predicate(case.target, case.need, case.environment)
        if row is not None and not isinstance(row, Rejection):
            raise TypeError(f"predicate returned {type(row).__name__}, not a Rejection")
    except Exception as error:  # a plugin may raise anything, and must not take selection down
        if case.spec.source == IN_TREE:
            raise
        found = f"its predicate raised {type(error).__name__}: {error}"
        row = rejection(
            Code.PLUGIN, case.spec, found, "a Rejection or None", f"Report this to {case.spec.source}."
        )
    if row is not None:
        yield row


def _set(name: str, value: object) -> str:
    return f"Set {name}={value!r}, or name another backend."


def _other(kind: Kind) -> str:
    return f"Leave {kind} at auto, or name another backend."


BATCH_INVARIANT = "batch_invariant"
_ITEMSIZE = {"float32": 4, "bfloat16": 2, "float16": 2}
_ATTENTION = (
    _phase,
    _head_dim,
    _gqa_ratio,
    _dtype,
    _kv_dtype,
    _page_size,
    _kv_layout,
    _graph,
    _batch_invariant,
    _shared_memory,
)
_RULES: dict[Kind, tuple[Rule, ...]] = {
    Kind.ATTENTION: _ATTENTION,
    Kind.KV: (_dtype, _kv_dtype, _page_size, _kv_layout, _loop_planes),
    Kind.OPERATORS: (_dtype, _graph, _batch_invariant),
    Kind.GRAPH: (_graph,),
    Kind.COMMUNICATION: (_world_size, _graph),
}
