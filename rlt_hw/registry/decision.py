"""The outcome of selection as a value: what was chosen, and everything that was not, with reasons."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rlt_hw.devices.target import Target
from rlt_hw.reasons import Rejection
from rlt_hw.registry.spec import BackendSpec, Kind, Rank

LEVELS = ("declared", "contract", "compiled", "interpreted", "executed")


@dataclass(frozen=True)
class Derived:
    """A value with where it came from: "16", "from triton_paged"."""

    value: str | int
    origin: str

    def __str__(self) -> str:
        return f"{self.value}, {self.origin}"

    def to_json(self) -> dict[str, Any]:
        return {"value": self.value, "origin": self.origin}


@dataclass(frozen=True)
class Candidate:
    """One backend that was looked at. `spec` is None for a plugin that could not be read.

    level: the evidence for this backend on this target, an index into LEVELS.
    """

    name: str
    source: str
    rank: Rank
    level: int = 0
    rejections: tuple[Rejection, ...] = ()
    spec: BackendSpec | None = None

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "source": self.source,
            "rank": self.rank.value,
            "rank_evidence": self.rank.evidence,
            "level": self.level,
            "level_name": LEVELS[self.level],
            "rejections": [rejection.to_json() for rejection in self.rejections],
        }


@dataclass(frozen=True)
class Decision:
    """One kind, and for attention one phase. `chosen` is None where nothing serves the need.

    asked: the user's word, "auto" or a backend's name. obstacles: what stands in the way of every
    candidate. candidates: all of them, in the order of the choice.
    """

    kind: Kind
    phase: str | None
    target: Target
    asked: str
    chosen: BackendSpec | None
    reason: str
    candidates: tuple[Candidate, ...]
    obstacles: tuple[Rejection, ...] = ()

    @property
    def title(self) -> str:
        return f"{self.kind} ({self.phase})" if self.phase else str(self.kind)

    @property
    def rejections(self) -> tuple[Rejection, ...]:
        """Obstacles, then every candidate's reasons; the named or best-ranked candidate's first."""
        return (*self.obstacles, *(row for candidate in self.candidates for row in candidate.rejections))

    def usable(self) -> tuple[BackendSpec, ...]:
        """The candidates that could be chosen, best first. One where the user named it."""
        if self.obstacles:
            return ()
        fitting = [row for row in self.candidates if not row.rejections]
        return tuple(row.spec for row in fitting if row.spec is not None and self.asked in ("auto", row.name))

    def table(self) -> str:
        return "\n".join((*(f"  ! {row}" for row in self.obstacles), *self._lines()))

    def _lines(self) -> Iterator[str]:
        chosen = self.chosen.name if self.chosen else "nothing"
        yield f"{self.title}: {chosen} ({self.reason})"
        for row in self.candidates:
            mark = "*" if self.chosen and row.name == self.chosen.name else "x" if row.rejections else "-"
            origin = "" if row.spec and row.source == "rlt-hw" else f" [{row.source}]"
            yield f"  {mark} {row.name}{origin}, rank {row.rank.value}, {LEVELS[row.level]}"
            helps = self.chosen is None or row.name == self.asked
            yield from (f"      {rejection if helps else _brief(rejection)}" for rejection in row.rejections)

    def to_json(self) -> dict[str, Any]:
        return {
            "kind": self.kind.value,
            "phase": self.phase,
            "target": str(self.target),
            "asked": self.asked,
            "chosen": self.chosen.name if self.chosen else None,
            "reason": self.reason,
            "obstacles": [row.to_json() for row in self.obstacles],
            "candidates": [row.to_json() for row in self.candidates],
        }


def _brief(row: Rejection) -> str:
    """Without the subject, which the line above names, and without a remedy that nobody needs."""
    return f"{row.code}: found {row.found}; allowed {row.allowed}"


@dataclass(frozen=True)
class JointDecision:
    """The five kinds together.

    derived: the values that follow, each with its origin; dtype and kv_dtype always, the others where
    the need is served. obstacles: what rules out the target, the model or the memory whatever the
    backends. conflicts: backends that are fine alone and not together.
    """

    target: Target
    prefill: Decision
    decode: Decision
    kv: Decision
    operators: Decision
    graph: Decision
    communication: Decision
    derived: Mapping[str, Derived]
    obstacles: tuple[Rejection, ...] = ()
    conflicts: tuple[Rejection, ...] = ()

    @property
    def supported(self) -> bool:
        return not self.obstacles and all(part.chosen for part in self.parts)

    @property
    def parts(self) -> tuple[Decision, ...]:
        return (self.prefill, self.decode, self.kv, self.operators, self.graph, self.communication)

    @property
    def dtype(self) -> Derived:
        """Of weights and activations: "float32", "bfloat16" or "float16"."""
        return self.derived["dtype"]

    @property
    def kv_dtype(self) -> Derived:
        return self.derived["kv_dtype"]

    @property
    def page_size(self) -> Derived:
        """Tokens a page. This and the following are there in a supported decision only."""
        return self.derived["page_size"]

    @property
    def kv_layout(self) -> Derived:
        """Which loop's KV is kept: "full", "last_exited" or "shared"."""
        return self.derived["kv_layout"]

    @property
    def tensor_layout(self) -> Derived:
        """How a plane lies in memory: "NHD"."""
        return self.derived["tensor_layout"]

    @property
    def graph_level(self) -> Derived:
        """What is captured: "none", "piecewise" or "full"."""
        return self.derived["graph_level"]

    def table(self) -> str:
        """Everything as text: the values, then each kind with all its candidates."""
        lines = [f"target: {self.target}"]
        lines += [f"  ! {row}" for row in self.obstacles]
        lines += [f"{name}: {value}" for name, value in self.derived.items()]
        lines += [part.table() for part in self.parts]
        lines += [f"conflict: {row}" for row in self.conflicts]
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        return {
            "target": str(self.target),
            "supported": self.supported,
            "obstacles": [row.to_json() for row in self.obstacles],
            "derived": {name: value.to_json() for name, value in self.derived.items()},
            "kinds": [part.to_json() for part in self.parts],
            "conflicts": [row.to_json() for row in self.conflicts],
        }
