"""One kind: which backend serves a need on a target. A pure function over specs.

The order: what the user named, or a refusal; else the backends without a rejection, by rank and name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from rlt_hw.devices.environment import Environment
from rlt_hw.devices.target import Target
from rlt_hw.errors import ConfigError, UnsupportedError
from rlt_hw.reasons import Rejection
from rlt_hw.registry.decision import Candidate, Decision, JointDecision
from rlt_hw.registry.dtypes import settle_dtypes
from rlt_hw.registry.need import AUTO, Need
from rlt_hw.registry.obstacles import obstacles
from rlt_hw.registry.rules import rejections
from rlt_hw.registry.spec import UNRANKED, BackendSpec, Kind


@dataclass(frozen=True)
class BrokenPlugin:
    """An entry point that gave no spec. `source` is its package and version."""

    name: str
    source: str
    rejection: Rejection


@dataclass(frozen=True)
class Registry:
    """What selection chooses from: specs, plugins that could not be read, and levels of evidence.

    levels: (backend, target) -> level; what is absent is declared only.
    """

    specs: tuple[BackendSpec, ...]
    broken: tuple[BrokenPlugin, ...] = ()
    levels: Mapping[tuple[str, str], int] = field(default_factory=dict)

    def of(self, kind: Kind) -> tuple[BackendSpec, ...]:
        return tuple(spec for spec in self.specs if spec.kind is kind)

    def level(self, spec: BackendSpec, target: Target) -> int:
        return self.levels.get((spec.name, str(target)), 0)


def settle(target: Target, need: Need) -> Need:
    """The need with its dtypes decided."""
    dtype, kv_dtype = settle_dtypes(target, need)
    return replace(need, dtype=str(dtype.value), kv_dtype=str(kv_dtype.value))


def select(kind: Kind, target: Target, need: Need, environment: Environment, registry: Registry) -> Decision:
    """The decision for one kind. Attention is asked for `need.phases` together.

    Raises UnsupportedError, with the decision, when nothing serves the need or what the user named
    does not; ConfigError when the user named a backend that is not registered.
    """
    decision = assess(kind, target, need, environment, registry)
    if decision.chosen is None:
        raise unsupported(decision)
    return decision


def assess(kind: Kind, target: Target, need: Need, environment: Environment, registry: Registry) -> Decision:
    """The same without raising UnsupportedError: `chosen` is None where nothing serves the need."""
    decision = survey(kind, target, need, environment, registry)
    decision = replace(decision, obstacles=obstacles(target, settle(target, need), environment))
    usable = decision.usable()
    if not usable:
        return replace(decision, reason=refusal(decision))
    return choose(decision, usable[0], target)


def survey(kind: Kind, target: Target, need: Need, environment: Environment, registry: Registry) -> Decision:
    """Every candidate of a kind with its rejections, in order, and none of them chosen."""
    phase = need.phases[0] if kind is Kind.ATTENTION and len(need.phases) == 1 else None
    asked = need.asked(kind, phase)
    need = settle(target, need)
    rows = [
        Candidate(
            spec.name,
            spec.source,
            spec.rank(target, phase),
            registry.level(spec, target),
            rejections(spec, target, need, environment),
            spec,
        )
        for spec in registry.of(kind)
    ]
    rows += [Candidate(row.name, row.source, UNRANKED, 0, (row.rejection,)) for row in registry.broken]
    if asked != AUTO and asked not in {row.name for row in rows}:
        raise _not_registered(kind, asked, [row.name for row in rows])
    rows.sort(key=lambda row: (row.name != asked, -row.rank.value, row.name))
    return Decision(kind, phase, target, asked, None, "not resolved", tuple(rows))


def choose(decision: Decision, spec: BackendSpec, target: Target) -> Decision:
    """The decision with its choice and the reason of the order."""
    rank = spec.rank(target, decision.phase)
    by_rank = f"auto: rank {rank.value} on {target}, {rank.evidence}"
    return replace(decision, chosen=spec, reason="named by the user" if decision.asked != AUTO else by_rank)


def refusal(decision: Decision) -> str:
    """Why nothing is chosen, in a few words."""
    if decision.obstacles:
        return f"refused: {decision.obstacles[0].code}"
    return f"{decision.asked} refused" if decision.asked != AUTO else "every backend is rejected"


def unsupported(decision: Decision | JointDecision, first: Rejection | None = None) -> UnsupportedError:
    """The error that carries a decision; its code is the first rejection's."""
    assert first is not None or isinstance(decision, Decision)
    row = first or decision.rejections[0]  # type: ignore[union-attr]
    return UnsupportedError(
        row.subject,
        found=row.found,
        allowed=row.allowed,
        remedy=row.remedy,
        code=row.code,
        decision=decision,
    )


def _not_registered(kind: Kind, asked: str, names: list[str]) -> ConfigError:
    from difflib import get_close_matches

    close = get_close_matches(asked, names, 1)
    return ConfigError(
        f"{kind} backend",
        found=repr(asked),
        allowed=", ".join((AUTO, *sorted(names))),
        remedy=f"Did you mean {close[0]!r}?" if close else "Run `rlt-hw probe` to see what is registered.",
    )
