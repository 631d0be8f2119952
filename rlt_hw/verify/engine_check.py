"""One check of a whole engine: what it is given, and what it comes to."""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rlt_hw.errors import UnsupportedError
from rlt_hw.registry import JointDecision, Kind
from rlt_hw.runtime.engine import Engine
from rlt_hw.verify.conformance.result import Outcome

logger = logging.getLogger(__name__)

CONTEXT = 256

Numbers = Mapping[str, float | int | str | None]


@dataclass(frozen=True)
class Bench:
    """Where a check opens its engines. asked: engine options that name backends. device: as in `Engine`."""

    model: str
    device: str
    asked: Mapping[str, str]

    def engine(self, **options: Any) -> Engine:
        given: dict[str, Any] = {"max_num_seqs": 64, "max_model_len": CONTEXT, **self.asked, **options}
        return Engine(self.model, device=self.device, **given)

    def first(self, *choices: Mapping[str, Any], **options: Any) -> tuple[Engine, Mapping[str, Any]]:
        """An engine of the first choice that selection does not refuse, and that choice.

        Raises UnsupportedError, the last choice's, where it refuses them all.
        """
        choice, *others = choices
        try:
            return self.engine(**options, **choice), choice
        except UnsupportedError:
            if not others:
                raise
        return self.first(*others, **options)


@dataclass(frozen=True)
class Finding:
    """What a check saw, and with which backends."""

    passed: bool
    decision: JointDecision
    numbers: Numbers


@dataclass(frozen=True)
class CheckResult:
    """One check on one model. refusal: why selection would never run it. error: what a failed one raised.

    parts: (kind, name) of every backend that ran.
    """

    check: str
    model: str
    asked: Mapping[str, str]
    outcome: Outcome
    numbers: Numbers = field(default_factory=dict)
    refusal: Mapping[str, Any] | None = None
    error: str | None = None
    parts: tuple[tuple[Kind, str], ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {
            "check": self.check,
            "model": self.model,
            "asked": dict(self.asked),
            "outcome": self.outcome,
            "numbers": dict(self.numbers),
            "found": self.found,
        }

    @property
    def found(self) -> str:
        """The numbers, or why there are none, in one line."""
        if self.refusal:
            return f"{self.refusal['code']}: {self.refusal['subject']}, found {self.refusal['found']}"
        return self.error or ", ".join(f"{name} {_short(value)}" for name, value in self.numbers.items())


def judge(name: str, check: Callable[[Bench], Finding], bench: Bench) -> CheckResult:
    """Run a check. What selection refuses is refused; any other error is a failure of this check alone."""
    try:
        found = check(bench)
    except UnsupportedError as refused:
        return CheckResult(name, bench.model, bench.asked, "refused", refusal=refused.to_json())
    except Exception as error:  # a device may raise anything, and the other checks go on
        logger.debug("%s on %s", name, bench.model, exc_info=error)
        text = f"{type(error).__name__}: {error}"
        return CheckResult(name, bench.model, bench.asked, "failed", error=text)
    finally:
        gc.collect()  # an engine that raised may hold most of the device's memory
    outcome: Outcome = "passed" if found.passed else "failed"
    parts = tuple((part.kind, part.chosen.name) for part in found.decision.parts if part.chosen)
    return CheckResult(name, bench.model, bench.asked, outcome, found.numbers, parts=parts)


def _short(value: float | str | None) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)
