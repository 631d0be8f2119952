"""Ascend devices, by `npu-smi info`; /dev/davinci* tells when the tool is what is missing."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise

from rlt_hw.devices.detect.machine import Machine, Ran
from rlt_hw.devices.detect.seen import Seen
from rlt_hw.devices.detect.timebox import timed_out
from rlt_hw.devices.detect.visibility import visible
from rlt_hw.devices.environment import Device
from rlt_hw.devices.target import Target
from rlt_hw.reasons import Code, Rejection

TIMEOUT_S = 10.0
INFO = ("npu-smi", "info")
MIB = 1024 * 1024
_USED_OF_TOTAL = re.compile(r"(\d+)\s*/\s*(\d+)")

# Names as npu-smi and CANN spell them. "910B" without a number is the first generation, not 910B1 to 4.
_NAMES = (
    (re.compile(r"910B$"), "910"),
    (re.compile(r"910B[1-9]"), "910b"),
    (re.compile(r"910_93\d\d"), "910_93"),
    (re.compile(r"310P"), "310p"),
    (re.compile(r"950"), "950"),
)


@dataclass(frozen=True)
class _Chip:
    npu: str
    chip: str
    name: str
    used: int
    total: int


def soc_arch(name: str) -> str:
    """The architecture of a SoC name: "Ascend910B3" -> 910b, "Ascend910_9391" -> 910_93."""
    short = name.removeprefix("Ascend").strip()
    known = next((arch for pattern, arch in _NAMES if pattern.match(short)), None)
    return known or short.lower().replace(" ", "") or "unknown"


def board(npu: str, chip: str) -> tuple[str, ...]:
    """The command that tells a chip's full name where the table prints only "Ascend910"."""
    return ("npu-smi", "info", "-t", "board", "-i", npu, "-c", chip)


def probe(machine: Machine) -> Seen:
    """The Ascend devices that this process sees, with the index torch_npu gives them."""
    ran = machine.run(*INFO, timeout=TIMEOUT_S)
    chips = _chips(ran.output) if ran.ok else []
    toolkits = _toolkits(machine)
    if not chips:
        return Seen(toolkits=toolkits, findings=_why_nothing(machine, ran))
    version = re.search(r"Version:\s*(\S+)", ran.output)
    drivers = {"ascend": version.group(1)} if version else {}
    variable = "ASCEND_RT_VISIBLE_DEVICES"
    shown = visible(variable, machine.variables.get(variable), [""] * len(chips), ascending=True)
    first_of = {chip.name: chip for chip in reversed(chips)}
    names = {name: _full_name(machine, chip) for name, chip in first_of.items()}
    devices = tuple(
        _device(chips[position], index, names, drivers.get("ascend"))
        for index, position in enumerate(shown.order)
    )
    return Seen(devices=devices, drivers=drivers, toolkits=toolkits, findings=shown.findings)


def _chips(table: str) -> list[_Chip]:
    """Rows come in pairs: NPU and name, then chip with bus address and memory in MB."""
    rows = [[cell.strip() for cell in line.strip("| \n").split("|")] for line in table.splitlines()]
    chips = []
    for first, second in pairwise(rows):
        if len(first) < 3 or len(second) < 3 or not re.match(r"[0-9a-fA-F]{4,}:", second[1]):
            continue
        head = first[0].split()
        pairs = [(int(used), int(total)) for used, total in _USED_OF_TOTAL.findall(second[2])]
        used, total = next((pair for pair in reversed(pairs) if pair[1]), (0, 0))
        chips.append(_Chip(head[0], second[0].split()[0], " ".join(head[1:]), used, total))
    return chips


def _full_name(machine: Machine, chip: _Chip) -> str:
    if chip.name not in ("Ascend910", "910"):
        return chip.name
    ran = machine.run(*board(chip.npu, chip.chip), timeout=TIMEOUT_S)
    revision = re.search(r"NPU Name\s*:\s*(\d+)", ran.output)
    return f"Ascend910_{revision.group(1)}" if revision else chip.name


def _device(chip: _Chip, index: int, names: dict[str, str], driver: str | None) -> Device:
    name = names[chip.name]
    return Device(
        Target("ascend", soc_arch(name)),
        index,
        name if name.startswith("Ascend") else f"Ascend {name}",
        memory_total=chip.total * MIB or None,
        memory_free=(chip.total - chip.used) * MIB if chip.total else None,
        driver=driver,
    )


def _toolkits(machine: Machine) -> dict[str, str]:
    root = machine.variables.get("ASCEND_HOME_PATH") or "/usr/local/Ascend/ascend-toolkit/latest"
    processor = machine.system.rpartition("-")[2]
    text = machine.read(f"{root}/{processor}-linux/ascend_toolkit_install.info") or ""
    version = re.search(r"^version=(\S+)", text, re.MULTILINE)
    return {"cann": version.group(1)} if version else {}


def _why_nothing(machine: Machine, ran: Ran) -> tuple[Rejection, ...]:
    if ran.status == "timeout":
        return (timed_out("npu-smi", TIMEOUT_S),)
    nodes = [name for name in machine.list("/dev") if re.fullmatch(r"davinci\d+", name)]
    if not nodes and ran.status in ("missing", "ok"):
        return ()
    missing = "npu-smi is not on the PATH" if ran.status == "missing" else ran.complaint
    return (
        Rejection(
            Code.DRIVER,
            "ascend",
            f"{len(nodes)} /dev/davinci node(s), but {missing}",
            "npu-smi of the Ascend driver, able to list the chips",
            "In a container, mount the driver: `docker run -v /usr/local/bin/npu-smi:/usr/local/bin/npu-smi"
            " -v /usr/local/Ascend/driver:/usr/local/Ascend/driver --device /dev/davinci_manager …`",
        ),
    )
