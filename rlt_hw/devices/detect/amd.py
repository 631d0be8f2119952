"""AMD devices, by the kernel's compute topology in /sys: no tool and no ROCm installation is needed."""

from __future__ import annotations

from rlt_hw.devices.detect.machine import Machine, number
from rlt_hw.devices.detect.seen import Seen
from rlt_hw.devices.detect.visibility import visible
from rlt_hw.devices.environment import Device
from rlt_hw.devices.facts import TargetFacts, facts
from rlt_hw.devices.target import Target
from rlt_hw.reasons import Code, Rejection

NODES = "/sys/class/kfd/kfd/topology/nodes"
KFD = "/dev/kfd"


def probe(machine: Machine) -> Seen:
    """The AMD devices that this process sees, with the index torch gives them."""
    nodes = [node for node in (_node(machine, name) for name in _names(machine)) if node]
    toolkits = _toolkits(machine)
    if not nodes:
        return Seen(toolkits=toolkits)
    drivers = {"amd": _driver(machine)}
    if not machine.writable(KFD):
        return Seen(drivers=drivers, toolkits=toolkits, findings=(_closed(machine, len(nodes)),))
    order, findings = _order(machine, [f"GPU-{node['unique_id']:x}" for node in nodes])
    devices = tuple(
        _device(machine, nodes[position], index, drivers["amd"]) for index, position in enumerate(order)
    )
    return Seen(
        devices=devices, drivers=drivers, toolkits=toolkits, findings=(*findings, *_override(machine))
    )


def gfx_name(version: int) -> str:
    """The LLVM name of the kernel's `gfx_target_version`: 90402 -> gfx942, 90010 -> gfx90a."""
    major, minor, step = version // 10000, version // 100 % 100, version % 100
    return f"gfx{major}{minor:x}{step:x}"


def _names(machine: Machine) -> list[str]:
    return sorted((name for name in machine.list(NODES) if name.isdecimal()), key=int)


def _node(machine: Machine, name: str) -> dict[str, int] | None:
    """The properties of a GPU node; None for a CPU node or one this process may not read."""
    text = machine.read(f"{NODES}/{name}/properties") or ""
    pairs = (line.split() for line in text.splitlines())
    node = {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdecimal()}
    node.setdefault("unique_id", 0)
    return node if node.get("gfx_target_version") else None


def _device(machine: Machine, node: dict[str, int], index: int, driver: str) -> Device:
    target = Target("amd", gfx_name(node["gfx_target_version"]))
    folder = f"/sys/class/drm/renderD{node.get('drm_render_minor', 0)}/device"
    total = number(machine.read(f"{folder}/mem_info_vram_total"))
    used = number(machine.read(f"{folder}/mem_info_vram_used"))
    known = facts(target)
    class_name = f"AMD {known.products[0]} class" if isinstance(known, TargetFacts) else f"AMD {target.arch}"
    return Device(
        target,
        index,
        (machine.read(f"{folder}/product_name") or "").strip() or class_name,
        memory_total=total,
        memory_free=total - used if total is not None and used is not None else None,
        driver=driver,
    )


def _order(machine: Machine, identifiers: list[str]) -> tuple[tuple[int, ...], tuple[Rejection, ...]]:
    """ROCr hides first and renumbers; HIP then chooses among what is left."""
    get = machine.variables.get
    below = visible("ROCR_VISIBLE_DEVICES", get("ROCR_VISIBLE_DEVICES"), identifiers)
    findings = list(below.findings)
    hip, cuda = get("HIP_VISIBLE_DEVICES"), get("CUDA_VISIBLE_DEVICES")
    variable = "HIP_VISIBLE_DEVICES" if hip is not None or cuda is None else "CUDA_VISIBLE_DEVICES"
    if hip is not None and cuda is not None and hip != cuda:
        findings.append(_conflict(hip, cuda))
    above = visible(variable, get(variable), [identifiers[position] for position in below.order])
    return tuple(below.order[position] for position in above.order), (*findings, *above.findings)


def _conflict(hip: str, cuda: str) -> Rejection:
    return Rejection(
        Code.VISIBILITY,
        "HIP_VISIBLE_DEVICES",
        f"HIP_VISIBLE_DEVICES={hip!r} and CUDA_VISIBLE_DEVICES={cuda!r} differ; HIP reads the first",
        "one of them, or the same value in both",
        "`unset CUDA_VISIBLE_DEVICES`",
    )


def _override(machine: Machine) -> tuple[Rejection, ...]:
    value = machine.variables.get("HSA_OVERRIDE_GFX_VERSION")
    if not value:
        return ()
    return (
        Rejection(
            Code.ARCH,
            "HSA_OVERRIDE_GFX_VERSION",
            f"HSA_OVERRIDE_GFX_VERSION={value}, which makes a GPU pose as another architecture",
            "the GPU's own architecture; kernels are chosen for exactly that",
            "`unset HSA_OVERRIDE_GFX_VERSION`",
        ),
    )


def _driver(machine: Machine) -> str:
    own = machine.read("/sys/module/amdgpu/version")
    return (own or f"kernel {machine.read('/proc/sys/kernel/osrelease') or 'unknown'}").strip()


def _toolkits(machine: Machine) -> dict[str, str]:
    root = machine.variables.get("ROCM_PATH") or "/opt/rocm"
    version = (machine.read(f"{root}/.info/version") or "").strip()
    found = {"rocm": version} if version else {}
    if version and machine.exists(f"{root}/bin/hipcc"):
        found["hipcc"] = version
    return found


def _closed(machine: Machine, count: int) -> Rejection:
    if machine.exists(KFD):
        found, remedy = "/dev/kfd, which this user may not open", "`sudo usermod -aG render,video $USER`"
    else:
        found, remedy = "no /dev/kfd", "`docker run --device /dev/kfd --device /dev/dri …`"
    return Rejection(
        Code.DRIVER,
        "amd",
        f"{count} AMD GPU(s) in /sys, but {found}",
        "/dev/kfd open for reading and writing",
        remedy,
    )
