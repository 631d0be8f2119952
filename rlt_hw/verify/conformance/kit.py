"""Runs the cases on backends of a device. What a selection would refuse is refused here, and not run."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from rlt_hw.backends.catalog import load_registry
from rlt_hw.backends.graphs.eager import Eager
from rlt_hw.devices.choice import choose_device
from rlt_hw.devices.detect import detect
from rlt_hw.devices.environment import Device, Environment
from rlt_hw.devices.platform import platform_for
from rlt_hw.devices.target import Target
from rlt_hw.errors import ConfigError
from rlt_hw.reasons import Rejection
from rlt_hw.registry import AUTO, BackendSpec, Kind, Need, Registry, assess
from rlt_hw.runtime.adapters import load_adapter
from rlt_hw.verify.conformance.attention import LONG, Plan, attention_cases
from rlt_hw.verify.conformance.contract import ContractCase
from rlt_hw.verify.conformance.operators import operator_cases
from rlt_hw.verify.conformance.result import CaseResult, Outcome
from rlt_hw.verify.conformance.subject import Case, Subject

logger = logging.getLogger(__name__)

KINDS = (Kind.ATTENTION, Kind.OPERATORS)
"""What there are cases for."""
DTYPES = ("float32", "bfloat16", "float16")
USUAL_PAGE = 16


@dataclass(frozen=True)
class Machine:
    """Where the cases run, and what there is to choose from. device: what torch calls `found`."""

    found: Device
    device: torch.device
    environment: Environment
    registry: Registry

    @property
    def target(self) -> Target:
        return self.found.target


def machine_here(device: str = AUTO, registry: Registry | None = None, *, use: bool = True) -> Machine:
    """This machine with the device a user names. Raises as `choose_device` and `require` do.

    use: make it this thread's device, for which some platforms take hold of it.
    """
    environment = detect()
    chosen = choose_device(device, environment).require()
    platform = platform_for(chosen.target)
    if use:
        platform.set_device(chosen.index)
    return Machine(chosen, platform.torch_device(chosen.index), environment, registry or load_registry())


def run(
    backend: str,
    device: str | Machine = AUTO,
    dtypes: Sequence[str] = DTYPES,
    *,
    long: int = LONG,
    seen: Callable[[CaseResult], None] = lambda _: None,
) -> list[CaseResult]:
    """Every case on one backend of the registry, whoever brought it.

    long: tokens of the long contexts. seen: called with each result as it comes. Raises ConfigError where no
    attention backend and no set of operators has the name.
    """
    machine = device if isinstance(device, Machine) else machine_here(device)
    found = []
    for dtype in dtypes:
        for row in results(backend, machine, dtype, long=long):
            seen(row)
            found.append(row)
    return found


def results(
    backend: str,
    machine: Machine,
    dtype: str,
    *,
    start: int = 0,
    long: int = LONG,
    among: Callable[[Case], bool] = lambda _: True,
) -> Iterator[CaseResult]:
    """One case after another, from number `start` on. among: which of these run."""
    spec = spec_of(backend, machine.registry)
    for case in list(cases_of(spec, long))[start:]:
        if among(case):
            yield _run(spec, case, dtype, machine)


def lost(backend: str, machine: Machine, dtype: str, number: int, why: str) -> CaseResult:
    """What a case came to whose process gave no result."""
    spec = spec_of(backend, machine.registry)
    return _result(spec, list(cases_of(spec))[number], dtype, "failed", error=why)


def cases_of(spec: BackendSpec, long: int = LONG) -> Iterator[Case]:
    yield ContractCase(spec)
    if spec.kind is Kind.OPERATORS:
        yield from operator_cases()
    else:
        yield from attention_cases(Plan(spec.preferred_page or USUAL_PAGE, long))


def spec_of(name: str, registry: Registry) -> BackendSpec:
    """The backend of a name. Raises ConfigError where there is none, or none with cases."""
    specs = {spec.name: spec for kind in KINDS for spec in registry.of(kind)}
    if name in specs:
        return specs[name]
    broken = next((row.rejection for row in registry.broken if row.name == name), None)
    raise ConfigError(
        "backend",
        found=f"{name!r}: {broken}" if broken else repr(name),
        allowed=", ".join(sorted(specs)),
        remedy="Run `rlt-hw probe` to see what is registered.",
    )


def _run(spec: BackendSpec, case: Case, dtype: str, machine: Machine) -> CaseResult:
    def result(outcome: Outcome, **found: Any) -> CaseResult:
        return _result(spec, case, dtype, outcome, **found)

    need = case.need(spec.name, dtype)
    try:
        chosen = _adapter(spec.kind, need, machine)
        graph = _adapter(Kind.GRAPH, need, machine) if case.captured else Eager
        for adapter in (chosen, graph):
            if isinstance(adapter, Rejection):
                return result("refused", rejection=adapter)
        error = case.check(Subject(chosen, graph, case, getattr(torch, dtype), machine.device))
    except Exception as fault:  # a backend may raise anything, and the other cases go on
        logger.debug("%s", case, exc_info=fault)
        return result("failed", error=f"{type(fault).__name__}: {fault}")
    return result("passed" if error <= case.tolerances[dtype] else "failed", max_error=error)


def _result(spec: BackendSpec, case: Case, dtype: str, outcome: Outcome, **found: Any) -> CaseResult:
    return CaseResult(
        spec.name,
        spec.kind.value,
        case.name,
        dtype,
        case.settings,
        outcome,
        case.tolerances[dtype],
        **found,
    )


def _adapter(kind: Kind, need: Need, machine: Machine) -> type[Any] | Rejection:
    """The class that selection gives for a need, or the first reason why there is none."""
    decision = assess(kind, machine.target, need, machine.environment, machine.registry)
    return decision.rejections[0] if decision.chosen is None else load_adapter(decision.chosen)
