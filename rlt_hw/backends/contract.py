"""What a backend from another package must declare, checked field by field before selection reads it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from rlt_hw.devices.target import Target
from rlt_hw.registry import (
    AUTO,
    CONTRACT_VERSION,
    GRAPH_LEVELS,
    PHASES,
    BackendSpec,
    Kind,
    Rank,
    Requirement,
    Sizes,
    Toolkit,
)

_WORDS = (
    "targets",
    "dtypes",
    "kv_dtypes",
    "phases",
    "kv_layouts",
    "tensor_layouts",
    "graph_levels",
    "features",
)
_SIZES = ("head_dims", "gqa_ratios", "page_sizes", "world_sizes")
_RECORDS = {"requirements": Requirement, "toolkits": Toolkit, "ranks": Rank}


def breach(spec: Any, taken: Iterable[str]) -> tuple[str, str] | None:
    """The first thing in a declaration that breaks the contract: (found, allowed). None if nothing does.

    taken: names that other backends have.
    """
    if not isinstance(spec, BackendSpec):
        return f"a {type(spec).__name__} as its spec", "a BackendSpec, or a module with one as SPEC"
    if spec.contract != CONTRACT_VERSION:
        return f"contract version {spec.contract!r}", f"contract version {CONTRACT_VERSION}"
    wrong = next(_wrong_fields(spec), None)
    if wrong is None and spec.name in {AUTO, *taken}:
        return f"the name {spec.name!r}, which is taken", "a name of its own"
    return wrong


def _wrong_fields(spec: Any) -> Iterator[tuple[str, str]]:
    """Every field whose value selection could not work with."""
    yield from _wrong_identity(spec)
    yield from _wrong_types(spec)
    for field, allowed in (("phases", PHASES), ("graph_levels", GRAPH_LEVELS)):
        if not set(getattr(spec, field)) <= set(allowed):
            yield f"{field} {getattr(spec, field)!r}", ", ".join(allowed)
    yield from _wrong_targets(spec.targets)


def _wrong_identity(spec: Any) -> Iterator[tuple[str, str]]:
    if not isinstance(spec.kind, Kind):
        yield f"kind {spec.kind!r}", ", ".join(f"Kind.{kind.name}" for kind in Kind)
    if not (isinstance(spec.name, str) and spec.name.isidentifier()):
        yield f"name {spec.name!r}", "letters, digits and underscores"
    if not (isinstance(spec.adapter, str) and spec.adapter.count(":") == 1):
        yield f"adapter {spec.adapter!r}", '"module:Class"'
    if spec.predicate is not None and not callable(spec.predicate):
        yield f"predicate {spec.predicate!r}", "a function, or None"


def _wrong_types(spec: Any) -> Iterator[tuple[str, str]]:
    for field in _WORDS:
        if not _all(getattr(spec, field), str, empty=field == "features"):
            yield f"{field} {getattr(spec, field)!r}", "a tuple of text, with something in it"
    for field in _SIZES:
        if not isinstance(getattr(spec, field), Sizes):
            yield f"{field} {getattr(spec, field)!r}", "Sizes(...)"
    for field, record in _RECORDS.items():
        if not _all(getattr(spec, field), record, empty=True):
            yield f"{field} {getattr(spec, field)!r}", f"a tuple of {record.__name__}"


def _wrong_targets(targets: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Patterns that name no vendor: such a backend would never be found, and nobody would know why."""
    for pattern in targets:
        if pattern != "*":
            try:
                Target.parse(pattern)
            except ValueError:
                yield f"target {pattern!r}", '"nvidia:sm90", "cpu", "*"'


def _all(values: Any, kind: type, *, empty: bool) -> bool:
    return (
        isinstance(values, tuple) and (empty or bool(values)) and all(isinstance(row, kind) for row in values)
    )
