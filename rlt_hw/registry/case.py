"""One spec to be judged, and the form of a judgement."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from rlt_hw.devices.environment import Environment
from rlt_hw.devices.target import Target
from rlt_hw.reasons import Code, Rejection
from rlt_hw.registry.need import Need
from rlt_hw.registry.spec import BackendSpec


@dataclass(frozen=True)
class Case:
    """One spec to be judged. The need's dtypes are settled."""

    spec: BackendSpec
    target: Target
    need: Need
    environment: Environment


Rule = Callable[[Case], Iterator[Rejection]]


def rejection(code: Code, spec: BackendSpec, found: str, allowed: str, remedy: str) -> Rejection:
    return Rejection(code, spec.name, found, allowed, remedy)
