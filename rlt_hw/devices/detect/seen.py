"""What one probe saw."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from rlt_hw.devices.environment import Device, Package, TorchBuild
from rlt_hw.reasons import Rejection


@dataclass(frozen=True)
class Seen:
    """A part of an environment. Parts are joined by `detect`."""

    devices: tuple[Device, ...] = ()
    packages: Mapping[str, Package] = field(default_factory=dict)
    torch: TorchBuild | None = None
    drivers: Mapping[str, str] = field(default_factory=dict)
    toolkits: Mapping[str, str] = field(default_factory=dict)
    findings: tuple[Rejection, ...] = ()
