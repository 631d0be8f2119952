"""The support matrix: model x target x backend x feature, from the backends' specs and the records.

A cell is what the records give and nothing else: the level, its date and the record, or why selection
refuses the feature. What no record is about is declared. No torch, no device.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlt_hw.backends.catalog import in_tree
from rlt_hw.backends.evidence import RECORDS, level_of
from rlt_hw.devices.facts import known_targets
from rlt_hw.devices.target import Target
from rlt_hw.models.config import published_names, read_spec
from rlt_hw.models.spec import ModelSpec
from rlt_hw.reasons import Code, Rejection
from rlt_hw.registry import LEVELS, BackendSpec, Kind, Registry, assess
from rlt_hw.runtime.assumed import assumed_environment
from rlt_hw.runtime.planning import need_of
from rlt_hw.verify.features import FEATURES

EXECUTED = len(LEVELS) - 1
OF_KIND = {
    Kind.ATTENTION: ("prefill", "decode", "graph", "batch_invariant"),
    Kind.OPERATORS: ("runs", "batch_invariant"),
}
RUNS = ("runs",)
"""What backends of the other kinds can be asked for."""
COLUMNS = ("runs", "prefill", "decode", "graph", "batch_invariant")
BY_COMPILER = ("runs", "prefill", "decode")
"""What calls that match and kernels that compile are evidence for."""
OF_THE_MACHINE = {
    Code.PKG_MISSING, Code.PKG_VERSION, Code.PKG_BROKEN, Code.TOOLCHAIN, Code.DRIVER, Code.TORCH_BUILD,
}  # fmt: skip
"""Refusals that an installation cures."""


@dataclass(frozen=True)
class Record:
    """A file of evidence. name: without folder and ending."""

    name: str
    data: Mapping[str, Any]

    @property
    def level(self) -> int:
        return level_of(self.data)

    def shows(self, backend: str, feature: str, model: ModelSpec) -> bool:
        """Whether it is about this feature of a backend, with this model's family and head size."""
        if backend not in self.data["backends"]:
            return False
        if "proven" in self.data:
            proof = self.data["proven"][backend]
            sizes = proof["features"].get(feature, ())
            return model.family in proof["families"] and (
                feature == "runs" or 0 in sizes or model.head_dim in sizes
            )
        if self.level == EXECUTED - 1:
            rows = (row for row in self.data["rows"] if row["backend"] == backend and row["passed"])
            return feature == "runs" or feature in {FEATURES.get(row["case"]) for row in rows}
        return feature in BY_COMPILER


@dataclass(frozen=True)
class Cell:
    """record: None where nothing but the spec says so. refusal: why selection would never run it."""

    target: str
    kind: str
    backend: str
    model: str
    feature: str
    level: int = 0
    record: Record | None = None
    refusal: Rejection | None = None

    def to_json(self) -> dict[str, Any]:
        return {
            "target": self.target,
            "kind": self.kind,
            "backend": self.backend,
            "model": self.model,
            "feature": self.feature,
            "level": self.level,
            "level_name": LEVELS[self.level],
            "record": self.record.name if self.record else None,
            "date": self.record.data["date"] if self.record else None,
            "refusal": self.refusal.to_json() if self.refusal else None,
        }


def read_records(folder: Path = RECORDS) -> tuple[Record, ...]:
    return tuple(
        Record(path.stem, json.loads(path.read_text(encoding="utf-8")))
        for path in sorted(folder.glob("*.json"))
    )


def matrix(folder: Path = RECORDS, specs: Iterable[BackendSpec] | None = None) -> Iterator[Cell]:
    """Every cell of a backend that serves a target, known or recorded, for one published model a family."""
    records = read_records(folder)
    registry = Registry(tuple(in_tree() if specs is None else specs))
    models = {spec.family: spec for spec in map(read_spec, reversed(published_names()))}
    for target in _targets(records):
        mine = [record for record in records if record.data["target"] == str(target)]
        for spec in sorted(registry.specs, key=lambda spec: (list(Kind).index(spec.kind), spec.name)):
            if spec.serves(target):
                for model in models.values():
                    for feature in OF_KIND.get(spec.kind, RUNS):
                        yield _cell(target, spec, model, feature, mine, registry)


def _targets(records: Iterable[Record]) -> list[Target]:
    """Known ones, then a CPU of its own kind where a record has one; never an emulated one."""
    recorded = {Target.parse(record.data["target"]) for record in records}
    machines = sorted(target for target in recorded if target.vendor == "cpu")
    known = [target for target in known_targets() if not (machines and target.vendor == "cpu")]
    return known + machines


def _cell(
    target: Target,
    spec: BackendSpec,
    model: ModelSpec,
    feature: str,
    records: Iterable[Record],
    registry: Registry,
) -> Cell:
    place = (str(target), spec.kind.value, spec.name, model.name, feature)
    refusal = _refusal(target, spec, model, feature, registry)
    if refusal:
        return Cell(*place, refusal=refusal)
    about = [record for record in records if record.shows(spec.name, feature, model)]
    best = max(about, key=lambda record: (record.level, record.data["date"], record.name), default=None)
    return Cell(*place, best.level if best else 0, best)


def _refusal(
    target: Target, spec: BackendSpec, model: ModelSpec, feature: str, registry: Registry
) -> Rejection | None:
    """Why the feature is refused on any machine with the target."""
    asked: dict[str, Any] = {}
    if feature in ("prefill", "decode"):
        asked["phases"] = (feature,)
    elif feature == "graph":
        asked.update(phases=("decode",), graph="full")
    elif feature == "batch_invariant":
        asked.update(phases=spec.phases, batch_invariant=True)
    elif 1 not in spec.world_sizes:
        asked["tensor_parallel"] = min(n for n in range(2, 65) if model.num_kv_heads % n == 0)
    decision = assess(spec.kind, target, need_of(model, **asked), assumed_environment(target), registry)
    (candidate,) = (row for row in decision.candidates if row.name == spec.name)
    return next((row for row in candidate.rejections if row.code not in OF_THE_MACHINE), None)


def lines(cells: Iterable[Cell], link: Callable[[str, str], str] = lambda text, _: text) -> Iterator[str]:
    """As Markdown, a table a target. link(text, place): place is the name of a record or a code."""
    by_target: dict[str, dict[tuple[str, str], list[Cell]]] = {}
    for cell in cells:
        by_target.setdefault(cell.target, {}).setdefault((cell.kind, cell.backend), []).append(cell)
    for target, rows in by_target.items():
        yield from ("", f"## {target}", "")
        yield f"| kind | backend | {' | '.join(COLUMNS)} |"
        yield f"|{' --- |' * (2 + len(COLUMNS))}"
        for (kind, backend), mine in rows.items():
            texts = [_text([cell for cell in mine if cell.feature == name], link) for name in COLUMNS]
            yield f"| {kind} | {backend} | {' | '.join(texts)} |"


def _text(cells: list[Cell], link: Callable[[str, str], str]) -> str:
    """A feature for every model; once where all are alike."""
    found: dict[str, list[str]] = {}
    for cell in cells:
        found.setdefault(_verdict(cell, link), []).append(cell.model)
    if len(found) == 1:
        return next(iter(found))
    return "; ".join(f"{verdict} ({', '.join(models)})" for verdict, models in found.items())


def _verdict(cell: Cell, link: Callable[[str, str], str]) -> str:
    if cell.refusal:
        return f"no: {link(str(cell.refusal.code), str(cell.refusal.code))}"
    if cell.record is None:
        return LEVELS[0]
    return f"{link(LEVELS[cell.level], cell.record.name)} {cell.record.data['date']}"
