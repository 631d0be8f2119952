"""Which device an engine runs on: the one the user named, or the first that torch can use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rlt_hw.devices.consistency import obstacles
from rlt_hw.devices.environment import Device, Environment
from rlt_hw.devices.facts import TargetFacts, facts
from rlt_hw.errors import ConfigError, UnsupportedError
from rlt_hw.reasons import Rejection


@dataclass(frozen=True)
class PassedOver:
    """A device that was wanted before the chosen one, and why it cannot be used."""

    device: Device
    reasons: tuple[Rejection, ...]


@dataclass(frozen=True)
class DeviceChoice:
    """The chosen device, or None; and every device that came before it with its reasons."""

    wanted: str
    device: Device | None
    passed_over: tuple[PassedOver, ...] = ()

    def require(self) -> Device:
        """The device. Raises UnsupportedError with the reason of the one that was wanted most."""
        if self.device is None:
            raise UnsupportedError.from_rejection(self.passed_over[0].reasons[0])
        return self.device

    def to_json(self) -> dict[str, Any]:
        return {
            "wanted": self.wanted,
            "device": self.device.to_json() if self.device else None,
            "torch_device": torch_name(self.device) if self.device else None,
            "passed_over": [
                {"device": row.device.to_json(), "reasons": [reason.to_json() for reason in row.reasons]}
                for row in self.passed_over
            ],
        }


def choose_device(wanted: str, environment: Environment) -> DeviceChoice:
    """Choose for "auto", a torch device ("cuda", "cuda:1", "npu", "cpu") or a target ("nvidia:sm90").

    "auto" takes accelerators before the CPU, in the order of detection. A named device is that one or
    none. Raises ConfigError when the name fits no device of this machine.
    """
    passed_over: list[PassedOver] = []
    for device in _candidates(wanted, environment):
        reasons = obstacles(device, environment)
        if not reasons:
            return DeviceChoice(wanted, device, tuple(passed_over))
        passed_over.append(PassedOver(device, reasons))
    return DeviceChoice(wanted, None, tuple(passed_over))


def torch_name(device: Device) -> str:
    """The string that names this device to torch, such as "cuda:1"."""
    known = facts(device.target)
    kind = known.torch_device if isinstance(known, TargetFacts) else device.target.vendor
    return kind if kind == "cpu" else f"{kind}:{device.index}"


def _candidates(wanted: str, environment: Environment) -> list[Device]:
    ordered = sorted(environment.devices, key=lambda device: device.target.vendor == "cpu")
    if wanted == "auto":
        return ordered
    name = wanted.strip().lower()
    exact = [device for device in ordered if _names(device) & {name}]
    if not exact:
        raise ConfigError(
            "device",
            found=repr(wanted),
            allowed=", ".join(["auto", *(f"{torch_name(device)} ({device.target})" for device in ordered)]),
            remedy="Run `rlt-hw probe` to see the devices of this machine.",
        )
    return exact[:1]


def _names(device: Device) -> set[str]:
    name = torch_name(device)
    return {name, str(device.target), *({name.partition(":")[0]} if device.index == 0 else ())}
