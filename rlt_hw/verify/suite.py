"""A verify run: conformance of backends, then whole engines with them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from rlt_hw.devices.choice import torch_name
from rlt_hw.models.config import demo_names, read_spec
from rlt_hw.registry import AUTO, JointDecision, Kind, assess_jointly
from rlt_hw.runtime.planning import need_of
from rlt_hw.verify.conformance import DTYPES, KINDS, CaseResult, Machine, spec_of
from rlt_hw.verify.engine_check import Bench, CheckResult
from rlt_hw.verify.engine_checks import ACCURACY, CHECKS
from rlt_hw.verify.units import Cases, Check, Row, Unit

ALL = "all"


@dataclass(frozen=True)
class Run:
    """Everything that ran, in order. asked: "auto", "all" or names of backends."""

    machine: Machine
    asked: str
    conformance: tuple[CaseResult, ...]
    engine: tuple[CheckResult, ...]

    @property
    def good(self) -> bool:
        """Something passed and nothing failed."""
        outcomes = {*(row.outcome for row in self.conformance), *(row.outcome for row in self.engine)}
        return "passed" in outcomes and "failed" not in outcomes


def verify(
    machine: Machine,
    backends: str = AUTO,
    models: Sequence[str] = (),
    dtypes: Sequence[str] = DTYPES,
    *,
    work: Callable[[Unit], Iterable[Row]] | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> Run:
    """backends: "auto" for what engines would choose, "all" for whatever serves the target, or names.

    models: checkpoints to run, default every demo checkpoint. work: gives the rows of a unit, by default in
    this process. say: told what begins.
    """
    asked = {model: _asked(machine, model, backends) for model in tuple(models) or demo_names()}
    names = dict.fromkeys(name for rows in asked.values() for row in rows for name in row.values())
    units: list[Unit] = [Cases(name, dtype) for name in names for dtype in dtypes]
    units += _checks(machine, backends, asked)
    rows: list[Row] = []
    for unit in units:
        say(str(unit))
        rows += work(unit) if work else unit.rows(machine)
    cases = tuple(row for row in rows if isinstance(row, CaseResult))
    checks = tuple(row for row in rows if isinstance(row, CheckResult))
    return Run(machine, backends, cases, checks)


def _checks(machine: Machine, backends: str, asked: dict[str, list[dict[str, str]]]) -> Iterator[Check]:
    """Every check on every model; of "all" backends every check on one model, and accuracy on the others."""
    first = next(iter(asked))
    for model, rows in asked.items():
        for row in rows:
            for check in (ACCURACY,) if backends == ALL and model != first else CHECKS:
                yield Check(check, Bench(model, torch_name(machine.found), row))


def _asked(machine: Machine, model: str, backends: str) -> list[dict[str, str]]:
    """The backends that engines of a model are opened with, by option, a row a combination.

    What auto chooses is named, so that no check of a mode gets another backend.
    """
    if backends == AUTO:
        need = need_of(read_spec(model))
        decision = assess_jointly(machine.target, need, machine.environment, machine.registry)
        return [_names(decision)]
    if backends == ALL:
        known = (spec for kind in KINDS for spec in machine.registry.of(kind))
        specs = [spec for spec in known if spec.serves(machine.target)]
    else:
        specs = [spec_of(name, machine.registry) for name in backends.split(",")]
    options = {Kind.ATTENTION: "attention", Kind.OPERATORS: "operators"}
    return [{options[spec.kind]: spec.name} for spec in specs]


def _names(decision: JointDecision) -> dict[str, str]:
    """As engine options; attention only where both phases have the same."""
    prefill, decode, operators = decision.prefill.chosen, decision.decode.chosen, decision.operators.chosen
    names = {"attention": decode.name} if decode and decode is prefill else {}
    return names | ({"operators": operators.name} if operators else {})
