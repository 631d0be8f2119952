"""NVIDIA devices, by `nvidia-smi`: it creates no context and answers in milliseconds."""

from __future__ import annotations

import re

from rlt_hw.devices.detect.machine import Machine, Ran, number
from rlt_hw.devices.detect.seen import Seen
from rlt_hw.devices.detect.timebox import timed_out
from rlt_hw.devices.detect.visibility import visible
from rlt_hw.devices.environment import Device
from rlt_hw.devices.target import Target
from rlt_hw.reasons import Code, Rejection

TIMEOUT_S = 5.0
_FIELDS = ("uuid", "name", "compute_cap", "memory.total", "memory.free", "driver_version", "mig.mode.current")
QUERY = ("nvidia-smi", f"--query-gpu={','.join(_FIELDS)}", "--format=csv,noheader,nounits")
LIST = ("nvidia-smi", "-L")
MIB = 1024 * 1024

# Jetson modules before JetPack 7 have no usable nvidia-smi; their device tree names the chip.
_TEGRA = {"nvidia,tegra234": "sm87", "nvidia,tegra264": "sm110"}


def probe(machine: Machine) -> Seen:
    """The NVIDIA devices that this process sees, with the index torch gives them."""
    ran = machine.run(*QUERY, timeout=TIMEOUT_S)
    rows = [row for row in map(_row, ran.output.splitlines()) if row] if ran.ok else []
    if not rows:
        return _jetson(machine) or Seen(findings=_why_nothing(machine, ran))
    drivers = {"nvidia": rows[0]["driver_version"]}
    identifiers = [row["uuid"] for row in rows]
    shown = visible("CUDA_VISIBLE_DEVICES", _without_mig(machine), identifiers)
    devices = tuple(_device(rows[position], index) for index, position in enumerate(shown.order))
    return Seen(devices=devices, drivers=drivers, findings=(*shown.findings, *_order(machine, rows)))


def _row(line: str) -> dict[str, str] | None:
    values = [value.strip() for value in line.split(",")]
    if len(values) != len(_FIELDS) or not re.fullmatch(r"\d+\.\d+", values[2]):
        return None
    return dict(zip(_FIELDS, values, strict=True))


def _device(row: dict[str, str], index: int) -> Device:
    major, minor = row["compute_cap"].split(".")
    mig = row["mig.mode.current"] == "Enabled"
    total, free = number(row["memory.total"]), number(row["memory.free"])
    return Device(
        Target("nvidia", f"sm{major}{minor}"),
        index,
        row["name"],
        # A slice's memory is not that of the whole GPU, which is all this query knows.
        memory_total=total * MIB if total and not mig else None,
        memory_free=free * MIB if free is not None and not mig else None,
        driver=row["driver_version"],
        features=("mig",) if mig else (),
    )


def _without_mig(machine: Machine) -> str | None:
    """CUDA_VISIBLE_DEVICES with each MIG slice replaced by the GPU that holds it."""
    value = machine.variables.get("CUDA_VISIBLE_DEVICES")
    if value is None or "MIG-" not in value:
        return value
    parents: dict[str, str] = {}
    parent = ""
    for line in machine.run(*LIST, timeout=TIMEOUT_S).output.splitlines():
        found = re.search(r"UUID:\s*((?:GPU|MIG)-[\w/-]+)", line)
        if found and found.group(1).startswith("GPU-"):
            parent = found.group(1)
        elif found:
            parents[found.group(1)] = parent
    # CUDA shows a process one slice at most.
    first = value.split(",")[0].strip()
    return next((parents[slice_] for slice_ in parents if slice_.startswith(first)), first)


def _order(machine: Machine, rows: list[dict[str, str]]) -> tuple[Rejection, ...]:
    """Unlike GPUs without PCI order: CUDA numbers the fastest first, nvidia-smi by PCI address."""
    names = sorted({row["name"] for row in rows})
    if len(names) < 2 or machine.variables.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID":
        return ()
    return (
        Rejection(
            Code.MIXED_DEVICES,
            "CUDA_DEVICE_ORDER",
            f"unlike GPUs ({', '.join(names)}), numbered by speed in CUDA and by PCI address in nvidia-smi",
            "CUDA_DEVICE_ORDER=PCI_BUS_ID, so that an index means the same device everywhere",
            "`export CUDA_DEVICE_ORDER=PCI_BUS_ID`",
        ),
    )


def _jetson(machine: Machine) -> Seen | None:
    chips = (machine.read("/proc/device-tree/compatible") or "").split("\0")
    arch = next((_TEGRA[chip] for chip in chips if chip in _TEGRA), None)
    if arch is None:
        return None
    name = (machine.read("/proc/device-tree/model") or "NVIDIA Jetson").strip("\0 \n")
    total = re.search(r"MemTotal:\s+(\d+) kB", machine.read("/proc/meminfo") or "")
    return Seen(
        devices=(
            Device(
                Target("nvidia", arch), 0, name, memory_total=int(total.group(1)) * 1024 if total else None
            ),
        )
    )


def _why_nothing(machine: Machine, ran: Ran) -> tuple[Rejection, ...]:
    """No device came of it: silent where no driver is loaded, a finding where one is."""
    if ran.status == "timeout":
        return (timed_out("nvidia-smi", TIMEOUT_S),)
    loaded = machine.exists("/proc/driver/nvidia/version") or machine.exists("/dev/nvidiactl")
    if ran.status == "missing":
        if not loaded:
            return ()
        return (
            Rejection(
                Code.DRIVER,
                "nvidia",
                "the NVIDIA kernel driver is loaded, but nvidia-smi is not on the PATH",
                "nvidia-smi beside the driver (in a container: the `utility` capability)",
                "`docker run --gpus all -e NVIDIA_DRIVER_CAPABILITIES=compute,utility …`",
            ),
        )
    if ran.ok and not ran.output.strip() and not loaded:
        return ()
    return (
        Rejection(
            Code.DRIVER,
            "nvidia-smi",
            ran.complaint,
            "a list of GPUs with their compute capability",
            "Load the driver, or reboot after an update of it: `sudo modprobe nvidia`",
        ),
    )
