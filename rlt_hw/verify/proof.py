"""What a verify run proves, backend by backend.

A backend is proven when an engine ran with it and, where there are cases for its kind, the cases did too.
Nothing is proven that failed anywhere in the run.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from rlt_hw.models.config import read_spec
from rlt_hw.verify.conformance import KINDS, CaseResult
from rlt_hw.verify.engine_check import CheckResult
from rlt_hw.verify.features import FEATURES


@dataclass(frozen=True)
class Proof:
    """models, families: what engines ran with it. features: feature -> head sizes whose cases passed; 0
    stands for cases without one."""

    backend: str
    models: tuple[str, ...]
    families: tuple[str, ...]
    features: dict[str, tuple[int, ...]]

    def to_json(self) -> dict[str, Any]:
        return {
            "models": list(self.models),
            "families": list(self.families),
            "features": {name: list(sizes) for name, sizes in self.features.items()},
        }


def proofs(conformance: Iterable[CaseResult], engine: Iterable[CheckResult]) -> dict[str, Proof]:
    """By backend, those that an engine ran with and that nothing failed with."""
    cases, checks = tuple(conformance), tuple(engine)
    failed = {row.backend for row in cases if row.outcome == "failed"}
    failed |= {name for row in checks if row.outcome == "failed" for name in _blamed(row)}
    tested = {row.backend for row in cases}
    found: dict[str, dict[str, None]] = {}
    for row in checks:
        if row.outcome == "passed":
            for kind, name in row.parts:
                if kind not in KINDS or name in tested:
                    found.setdefault(name, {})[row.model] = None
    return {
        name: Proof(name, tuple(models), _families(models), _features(name, cases))
        for name, models in sorted(found.items())
        if name not in failed
    }


def _blamed(row: CheckResult) -> Iterator[str]:
    """The backends that were named, else every part of the engine."""
    return iter(row.asked.values()) if row.asked else (name for _, name in row.parts)


def _families(models: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(read_spec(model).family for model in models))


def _features(backend: str, cases: Iterable[CaseResult]) -> dict[str, tuple[int, ...]]:
    sizes: dict[str, dict[int, None]] = {}
    for row in cases:
        if row.backend == backend and row.outcome == "passed" and row.case in FEATURES:
            sizes.setdefault(FEATURES[row.case], {})[row.settings.get("head_dim", 0)] = None
    return {feature: tuple(sorted(found)) for feature, found in sizes.items()}
