"""Devices that are host memory under another name. Whoever registers one with torch says so in a variable.

What runs on such a device shows that code is right, never that hardware is: its records stop at level 3.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from rlt_hw.devices.choice import torch_name
from rlt_hw.devices.environment import Device
from rlt_hw.devices.target import Target
from rlt_hw.devices.variables import EMULATED


def marked(devices: tuple[Device, ...], variables: Mapping[str, str]) -> tuple[Device, ...]:
    """The devices with those of the emulated torch device type marked; with one more where there is none."""
    kind = variables.get(EMULATED, "")
    if not kind:
        return devices
    found = [replace(row, emulated=True) if _kind(row) == kind else row for row in devices]
    if not any(row.emulated for row in found):
        found.append(Device(Target("emulated", kind), 0, f"emulated {kind}", emulated=True))
    return tuple(found)


def _kind(device: Device) -> str:
    return torch_name(device).partition(":")[0]
