"""The five kinds together: brute force over a stable order, so that no choice hides inside another.

Backends are tried best first, decode attention before prefill before KV before operators before graph
before communication: the first combination whose parts suit each other is taken. Prefill is never
captured in a graph, so the graph level is the lowest of the graph backend, decode attention, operators
and communication.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import product
from math import lcm

from rlt_hw.devices.environment import Environment
from rlt_hw.devices.target import Target
from rlt_hw.reasons import Code, Rejection
from rlt_hw.registry.decision import Decision, Derived, JointDecision
from rlt_hw.registry.dtypes import settle_dtypes
from rlt_hw.registry.need import AUTO, Need
from rlt_hw.registry.obstacles import obstacles
from rlt_hw.registry.select import Registry, choose, refusal, settle, survey, unsupported
from rlt_hw.registry.spec import GRAPH_LEVELS, BackendSpec, Kind

USUAL_PAGES = (16, 32, 64, 128, 256, 512, 1024, 8, 4, 2, 1)
BY_USER = "set by the user"


@dataclass(frozen=True)
class _Together:
    """A combination that works, with the values that follow from it."""

    specs: tuple[BackendSpec, ...]
    derived: Mapping[str, Derived]


def resolve(target: Target, need: Need, environment: Environment, registry: Registry) -> JointDecision:
    """The joint decision. Raises UnsupportedError that carries it when the need cannot be served."""
    decision = assess_jointly(target, need, environment, registry)
    if not decision.supported:
        raise unsupported(decision, first_rejection(decision))
    return decision


def assess_jointly(target: Target, need: Need, environment: Environment, registry: Registry) -> JointDecision:
    """The same without raising UnsupportedError."""
    settled = settle(target, need)
    kinds = (
        (Kind.ATTENTION, replace(settled, phases=("decode",))),
        (Kind.ATTENTION, replace(settled, phases=("prefill",))),
        (Kind.KV, settled),
        (Kind.OPERATORS, settled),
        (Kind.GRAPH, settled),
        (Kind.COMMUNICATION, settled),
    )
    parts = [survey(kind, target, asked, environment, registry) for kind, asked in kinds]
    stopped = obstacles(target, settled, environment)
    conflicts: dict[tuple[Code, str], Rejection] = {}
    together = None
    for specs in product(*(part.usable() for part in parts)) if not stopped else ():
        outcome = _fit(specs, settled)
        if isinstance(outcome, _Together):
            together = outcome
            break
        conflicts.setdefault((outcome.code, outcome.subject), outcome)
    if together:
        parts = [choose(part, spec, target) for part, spec in zip(parts, together.specs, strict=True)]
    else:
        parts = [replace(part, reason=_why_not(part, stopped)) for part in parts]
    decode, prefill, kv, operators, graph, communication = parts
    dtypes = dict(zip(("dtype", "kv_dtype"), settle_dtypes(target, need), strict=True))
    return JointDecision(
        target,
        prefill=prefill,
        decode=decode,
        kv=kv,
        operators=operators,
        graph=graph,
        communication=communication,
        derived={**dtypes, **(together.derived if together else {})},
        obstacles=stopped,
        conflicts=tuple(conflicts.values()),
    )


def first_rejection(decision: JointDecision) -> Rejection:
    """What an error says first: an obstacle, a kind that has nothing to offer, or a conflict."""
    if decision.obstacles:
        return decision.obstacles[0]
    for part in decision.parts:
        if not part.usable() and part.rejections:
            return part.rejections[0]
    if decision.conflicts:
        return decision.conflicts[0]
    empty = next(part for part in decision.parts if not part.usable())
    return Rejection(Code.ARCH, empty.title, "no backend registered", "at least one", "Reinstall rlt-hw.")


def _why_not(part: Decision, stopped: tuple[Rejection, ...]) -> str:
    if stopped:
        return f"refused: {stopped[0].code}"
    return "no combination" if part.usable() else refusal(part)


def _fit(specs: tuple[BackendSpec, ...], need: Need) -> _Together | Rejection:
    """What follows from a combination, or the first reason why its parts do not suit each other."""
    decode, prefill, kv, operators, graph, communication = specs
    readers = (decode, prefill, kv)
    values = {
        "page_size": _common_page(readers, need),
        "kv_layout": _common_kv_layout(readers, need),
        "tensor_layout": _common_tensor_layout(readers),
        "graph_level": _graph_level(graph, (decode, operators, communication), need),
    }
    derived: dict[str, Derived] = {}
    for name, value in values.items():
        if isinstance(value, Rejection):
            return value
        derived[name] = value
    return _Together(specs, derived)


def _common_tensor_layout(readers: tuple[BackendSpec, ...]) -> Derived | Rejection:
    *attention, kv = readers
    for layout in kv.tensor_layouts:
        if all(layout in spec.tensor_layouts for spec in attention):
            return Derived(layout, f"stored by {kv.name}")
    other = next(
        (spec for spec in attention if not set(spec.tensor_layouts) & set(kv.tensor_layouts)), attention[0]
    )
    return _conflict(other, kv, "KV tensor layout", other.tensor_layouts, kv.tensor_layouts)


def _common_kv_layout(readers: tuple[BackendSpec, ...], need: Need) -> Derived | Rejection:
    if need.kv_layout != AUTO and all(need.kv_rule in spec.kv_layouts for spec in readers):
        return Derived(need.kv_layout, BY_USER)
    for layout in need.allowed_kv_layouts if need.kv_layout == AUTO else ():
        if all(layout in spec.kv_layouts for spec in readers):
            return Derived(layout, "preferred by the model")
    decode, _, kv = readers
    return _conflict(decode, kv, "KV layout", decode.kv_layouts, kv.kv_layouts)


def _common_page(readers: tuple[BackendSpec, ...], need: Need) -> Derived | Rejection:
    if need.page_size is not None:
        return Derived(need.page_size, BY_USER)
    for spec in readers:
        page = spec.preferred_page
        if page and all(page in other.page_sizes for other in readers):
            return Derived(page, f"from {spec.name}")
    multiples = [spec.page_sizes.multiple for spec in readers if spec.page_sizes.multiple]
    listed = [value for spec in readers for value in spec.page_sizes.values]
    for page in (*USUAL_PAGES, *sorted(listed), lcm(*multiples)):
        if all(page in spec.page_sizes for spec in readers):
            names = ", ".join(dict.fromkeys(spec.name for spec in readers))
            return Derived(page, f"the first that suits {names}")
    left, right = _furthest_apart(readers)
    return _conflict(left, right, "page size", (str(left.page_sizes),), (str(right.page_sizes),))


def _furthest_apart(readers: tuple[BackendSpec, ...]) -> tuple[BackendSpec, BackendSpec]:
    """The first two that share none of the usual page sizes."""
    pairs = [(left, right) for left in readers for right in readers if left is not right]
    for left, right in pairs:
        if not any(page in left.page_sizes and page in right.page_sizes for page in USUAL_PAGES):
            return left, right
    return readers[0], readers[1]


def _graph_level(graph: BackendSpec, parts: tuple[BackendSpec, ...], need: Need) -> Derived | Rejection:
    levels = {spec.name: GRAPH_LEVELS.index(spec.graph_levels[-1]) for spec in (graph, *parts)}
    if need.graph != AUTO:
        return Derived(need.graph, BY_USER)
    lowest = min(levels, key=lambda name: levels[name])
    level = GRAPH_LEVELS[levels[lowest]]
    if level not in graph.graph_levels:
        return Rejection(
            Code.COMBINATION,
            f"{graph.name} with {lowest}",
            f"{lowest} can be captured at level {level}",
            ", ".join(graph.graph_levels),
            f"Name another backend than {lowest}, or leave graph at auto.",
        )
    return Derived(level, f"from {graph.name}" if lowest == graph.name else f"the most {lowest} allows")


def _conflict(
    left: BackendSpec, right: BackendSpec, what: str, has: tuple[str, ...], wants: tuple[str, ...]
) -> Rejection:
    return Rejection(
        Code.COMBINATION,
        f"{left.name} with {right.name}",
        f"{what} {', '.join(has)} for {left.name}",
        f"{', '.join(wants)} for {right.name}",
        "Leave one of them at auto.",
    )
