"""The CPU: name, memory and the instruction-set extensions that matter to inference."""

from __future__ import annotations

import re

from rlt_hw.devices.detect.machine import Machine
from rlt_hw.devices.detect.seen import Seen
from rlt_hw.devices.environment import Device
from rlt_hw.devices.target import Target

# As /proc/cpuinfo spells them on x86-64 and on Arm.
_EXTENSIONS = (
    "avx2",
    "f16c",
    "avx512f",
    "avx512_vnni",
    "avx512_bf16",
    "avx512_fp16",
    "amx_tile",
    "amx_bf16",
    "amx_int8",
    "asimd",
    "asimdhp",
    "bf16",
    "i8mm",
    "sve",
    "sve2",
)


def probe(machine: Machine) -> Seen:
    """Exactly one device, also where /proc says nothing."""
    info = machine.read("/proc/cpuinfo") or ""
    memory = machine.read("/proc/meminfo") or ""
    flags = set((_field(info, "flags") or _field(info, "Features") or "").split())
    arch = machine.system.rpartition("-")[2] or "any"
    return Seen(
        devices=(
            Device(
                Target("cpu", {"amd64": "x86_64", "arm64": "aarch64"}.get(arch, arch)),
                0,
                _field(info, "model name") or arch,
                memory_total=_kib(memory, "MemTotal"),
                memory_free=_kib(memory, "MemAvailable"),
                features=tuple(name for name in _EXTENSIONS if name in flags),
            ),
        )
    )


def _field(text: str, name: str) -> str | None:
    match = re.search(rf"^{name}\s*:\s*(.+)$", text, re.MULTILINE)
    return match.group(1).strip() if match else None


def _kib(text: str, name: str) -> int | None:
    match = re.search(rf"^{name}:\s+(\d+) kB", text, re.MULTILINE)
    return int(match.group(1)) * 1024 if match else None
