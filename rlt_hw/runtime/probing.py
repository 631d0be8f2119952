"""What is here and what would run on it: the machine, each backend's rung, and what "auto" chooses.

Needs no torch and no weights. The machine is an argument, so a recorded one gives the same report.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlt_hw.backends.catalog import load_registry
from rlt_hw.devices.choice import DeviceChoice, choose_device
from rlt_hw.devices.detect import detect
from rlt_hw.devices.environment import Environment
from rlt_hw.devices.target import Target
from rlt_hw.models.config import read_spec
from rlt_hw.reasons import Code, Rejection
from rlt_hw.registry import (
    LEVELS,
    BackendSpec,
    Candidate,
    Decision,
    JointDecision,
    Registry,
    assess_jointly,
)
from rlt_hw.registry.requirements import installed
from rlt_hw.runtime.planning import need_of

DEFAULT_MODEL = "Ouro-1.4B"

RUNGS = ("registered", "importable", "device present", "compatible", "verified")

# Which rung a rejection keeps a backend from; any other code keeps it from "compatible".
_KEEPS_FROM = {
    **dict.fromkeys((Code.PLUGIN, Code.PKG_MISSING, Code.PKG_VERSION, Code.PKG_BROKEN), "importable"),
    **dict.fromkeys((Code.TORCH_BUILD, Code.TOOLCHAIN), "importable"),
    **dict.fromkeys((Code.ARCH, Code.ARCH_UNKNOWN, Code.DRIVER, Code.VISIBILITY), "device present"),
}


@dataclass(frozen=True)
class BackendRow:
    """One backend on one target: how far it comes, and why not further.

    kind: "plugin" for one that could not be read. rung: the last of RUNGS that it reaches. chosen_for: what
    "auto" takes it for ("prefill", "decode", "kv", ...). reasons: the target's obstacles first.
    """

    kind: str
    name: str
    source: str
    rung: str
    level: int
    chosen_for: tuple[str, ...] = ()
    reasons: tuple[Rejection, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "name": self.name,
            "source": self.source,
            "rung": self.rung,
            "level": self.level,
            "level_name": LEVELS[self.level],
            "chosen_for": list(self.chosen_for),
            "reasons": [reason.to_json() for reason in self.reasons],
        }


@dataclass(frozen=True)
class Outlook:
    """What would serve the model on one target of this machine."""

    target: Target
    decision: JointDecision
    backends: tuple[BackendRow, ...]

    def to_json(self) -> dict[str, Any]:
        return {
            "target": str(self.target),
            "decision": self.decision.to_json(),
            "backends": [row.to_json() for row in self.backends],
        }


@dataclass(frozen=True)
class ProbeReport:
    """The machine, the device that "auto" takes, and an outlook for each different target.

    model: the checkpoint whose need the backends were held against.
    """

    environment: Environment
    model: str
    choice: DeviceChoice
    outlooks: tuple[Outlook, ...]

    @property
    def findings(self) -> tuple[Rejection, ...]:
        """What is wrong with the machine, then plugins that could not be read."""
        rows = self.outlooks[0].backends if self.outlooks else ()
        plugins = (row.reasons[-1] for row in rows if row.kind == "plugin")
        return (*self.environment.findings, *plugins)

    @property
    def outlook(self) -> Outlook | None:
        """The outlook of the device that "auto" takes; None when it takes none."""
        device = self.choice.device
        return next((row for row in self.outlooks if device and row.target == device.target), None)

    def to_json(self) -> dict[str, Any]:
        return {
            "environment": self.environment.to_json(),
            "model": self.model,
            "choice": self.choice.to_json(),
            "targets": [outlook.to_json() for outlook in self.outlooks],
            "findings": [finding.to_json() for finding in self.findings],
        }


def probe(
    model: str | Path = DEFAULT_MODEL,
    *,
    environment: Environment | None = None,
    registry: Registry | None = None,
    deep: bool = False,
) -> ProbeReport:
    """Look at this machine, or judge a recorded `environment`, with the need of a model.

    deep: also import every vendor package in a process of its own, which takes seconds. Raises
    CheckpointError when there is no such model; a machine is never an error, what is broken is a finding.
    """
    environment = environment or detect(deep=deep)
    registry = registry or load_registry()
    spec = read_spec(model)
    need = need_of(spec)
    targets = dict.fromkeys(device.target for device in environment.devices)
    decisions = [assess_jointly(target, need, environment, registry) for target in targets]
    outlooks = [Outlook(row.target, row, tuple(_rows(row, environment))) for row in decisions]
    return ProbeReport(environment, spec.name, choose_device("auto", environment), tuple(outlooks))


def _rows(decision: JointDecision, environment: Environment) -> Iterator[BackendRow]:
    """The candidates of all kinds, those of the two attention phases as one row each."""
    seen: dict[tuple[str, str], list[tuple[Decision, Candidate]]] = {}
    for part in decision.parts:
        for candidate in part.candidates:
            kind = part.kind.value if candidate.spec else "plugin"
            seen.setdefault((kind, candidate.name), []).append((part, candidate))
    for (kind, name), found in seen.items():
        # A backend of one phase only is as good as it is in that phase.
        best = min((candidate for _, candidate in found), key=lambda candidate: len(candidate.rejections))
        reasons = tuple(dict.fromkeys((*decision.obstacles, *best.rejections)))
        chosen_for = [part.phase or kind for part, _ in found if part.chosen and part.chosen.name == name]
        yield BackendRow(
            kind,
            name,
            best.source,
            _rung(best, reasons, environment),
            best.level,
            tuple(chosen_for),
            reasons,
        )


def _rung(candidate: Candidate, reasons: tuple[Rejection, ...], environment: Environment) -> str:
    if not reasons:
        return "verified" if candidate.level == len(LEVELS) - 1 else "compatible"
    # Selection stops at a target that a backend does not serve, so its packages are looked at here.
    if candidate.spec and not _importable(candidate.spec, environment):
        return "registered"
    return RUNGS[min(RUNGS.index(_KEEPS_FROM.get(row.code, "compatible")) for row in reasons) - 1]


def _importable(spec: BackendSpec, environment: Environment) -> bool:
    found = [installed(requirement, environment) for requirement in spec.requirements]
    return environment.torch is not None and all(package and not package.error for package in found)
