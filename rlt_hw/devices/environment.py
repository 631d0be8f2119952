"""What is installed and visible on a machine, as one immutable value.

An environment is an argument of every selection, so that each rule can be tested for
hardware that is not here. Detection builds one (`rlt_hw.devices.detect`), a recorded one is
read from JSON. Nothing in this module looks at the machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rlt_hw.devices.target import Target
from rlt_hw.reasons import Rejection


@dataclass(frozen=True)
class Package:
    """An installed distribution. `error` is the text of a failed import, None while unknown."""

    name: str
    version: str
    error: str | None = None


@dataclass(frozen=True)
class TorchBuild:
    """What the installed torch was built for: `cuda` and `hip` are runtime versions or None."""

    version: str
    cuda: str | None = None
    hip: str | None = None


@dataclass(frozen=True)
class Device:
    """A target that is here. Memory in bytes; None where the vendor's tools did not say."""

    target: Target
    index: int
    name: str
    memory_total: int | None = None
    memory_free: int | None = None
    driver: str | None = None
    runtime: str | None = None
    emulated: bool = False


@dataclass(frozen=True)
class Environment:
    """A machine as selection sees it.

    packages: by canonical distribution name ("torch", "triton", "flashinfer-python").
    toolkits: compiler or toolkit versions by name ("nvcc", "hipcc", "cann", "cxx").
    drivers: driver version by vendor.
    variables: the visibility and RLT_HW_* variables that are set.
    findings: what is broken or hidden, found while looking.
    """

    system: str = "linux-x86_64"
    python: str = "3.11"
    packages: Mapping[str, Package] = field(default_factory=dict)
    torch: TorchBuild | None = None
    devices: tuple[Device, ...] = ()
    drivers: Mapping[str, str] = field(default_factory=dict)
    toolkits: Mapping[str, str] = field(default_factory=dict)
    variables: Mapping[str, str] = field(default_factory=dict)
    findings: tuple[Rejection, ...] = ()

    def version(self, package: str) -> str | None:
        found = self.packages.get(package)
        return found.version if found else None

    def to_json(self) -> dict[str, Any]:
        raise NotImplementedError

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Environment:
        raise NotImplementedError
