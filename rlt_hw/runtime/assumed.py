"""The machine that planning assumes where the target is not here: its packages at the versions we pin."""

from __future__ import annotations

from dataclasses import replace

from rlt_hw.devices.environment import Device, Environment, Package, TorchBuild
from rlt_hw.devices.facts.memory import product_memory
from rlt_hw.devices.target import Target

_BASE = Environment(toolkits={"cxx": "12"})
_MACHINES = {
    "nvidia": replace(
        _BASE,
        torch=TorchBuild("2.11.0+cu130", cuda="13.0"),
        packages={"triton": Package("triton", "3.6.0"),
                  "flashinfer-python": Package("flashinfer-python", "0.7.4")},
        drivers={"nvidia": "580.159.04"},
        toolkits={"nvcc": "13.0", "cxx": "12"},
    ),
    "amd": replace(
        _BASE,
        torch=TorchBuild("2.11.0+rocm7.1", hip="7.1"),
        packages={"triton-rocm": Package("triton-rocm", "3.6.0")},
    ),
    "ascend": replace(
        _BASE,
        torch=TorchBuild("2.13.0+cpu"),
        packages={"torch-npu": Package("torch-npu", "2.13.0")},
        toolkits={"cxx": "12", "cann": "9.1.0"},
    ),
    "cpu": replace(_BASE, torch=TorchBuild("2.13.0+cpu")),
}  # fmt: skip


def assumed_environment(target: Target) -> Environment:
    """A machine with one device of the target and everything of the target's extra installed."""
    machine = _MACHINES.get(target.vendor, _MACHINES["cpu"])
    assert machine.torch is not None
    memory = product_memory(target)
    device = Device(
        target,
        0,
        memory.product if memory else str(target),
        memory_total=memory.size if memory else None,
        driver=machine.drivers.get(target.vendor),
        emulated=target.vendor == "emulated",
    )
    packages = {"torch": Package("torch", machine.torch.version), **machine.packages}
    return replace(machine, packages=packages, devices=(device,))


def assumptions(environment: Environment) -> tuple[str, ...]:
    """What an assumed environment stands for, one phrase each: "triton 3.6.0"."""
    packages = [f"{package.name} {package.version}" for package in environment.packages.values()]
    toolkits = [f"{name} {version}" for name, version in environment.toolkits.items()]
    drivers = [f"{vendor} driver {version}" for vendor, version in environment.drivers.items()]
    return (*packages, *toolkits, *drivers)
