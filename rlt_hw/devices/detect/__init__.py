"""Look at a machine and write down what is there. Never fails, never waits long, imports no torch.

Every probe is time-boxed and runs beside the others; what is broken, hidden or contradictory becomes a
finding. No device context is created in this process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TypeVar

from rlt_hw.devices.consistency import consistency
from rlt_hw.devices.detect import amd, ascend, cpu, nvidia, packages, toolkits
from rlt_hw.devices.detect.emulated import marked
from rlt_hw.devices.detect.machine import LocalMachine, Machine, Ran
from rlt_hw.devices.detect.seen import Seen
from rlt_hw.devices.detect.timebox import Probe, run_probes
from rlt_hw.devices.environment import Environment
from rlt_hw.devices.variables import relevant, unknown

__all__ = ["LocalMachine", "Machine", "Ran", "detect"]

TIME_LIMIT_S = 12.0
PROBES: Mapping[str, Probe] = {
    "nvidia": nvidia.probe,
    "amd": amd.probe,
    "ascend": ascend.probe,
    "cpu": cpu.probe,
    "packages": packages.probe,
    "toolkits": toolkits.probe,
}
T = TypeVar("T")


def detect(
    machine: Machine | None = None, *, deep: bool = False, seconds: float = TIME_LIMIT_S
) -> Environment:
    """The environment of a machine, by default of this one.

    deep: also import each vendor package in a process of its own (seconds to a minute).
    seconds: the limit for all probes together.
    """
    machine = machine or LocalMachine()
    seen = run_probes(PROBES, machine, seconds).values()
    environment = Environment(
        system=machine.system,
        python=machine.python,
        packages=_joined(seen, lambda part: part.packages),
        torch=next((part.torch for part in seen if part.torch), None),
        devices=marked(tuple(device for part in seen for device in part.devices), machine.variables),
        drivers=_joined(seen, lambda part: part.drivers),
        toolkits=_joined(seen, lambda part: part.toolkits),
        variables=relevant(machine.variables),
    )
    if deep:
        from rlt_hw.devices.detect.imports import check_imports

        environment = check_imports(machine, environment)
    looked = [finding for part in seen for finding in part.findings]
    found = (*looked, *environment.findings, *consistency(environment), *unknown(machine.variables))
    return replace(environment, findings=tuple(dict.fromkeys(found)))


def _joined(seen: Iterable[Seen], pick: Callable[[Seen], Mapping[str, T]]) -> dict[str, T]:
    return {name: value for part in seen for name, value in pick(part).items()}
