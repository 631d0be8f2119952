"""Simulated machines: one per target, with everything installed, and with one thing changed."""

from __future__ import annotations

from dataclasses import replace

from rlt_hw.devices.environment import Environment, Package, TorchBuild
from rlt_hw.devices.target import Target
from rlt_hw.registry import Need
from rlt_hw.runtime.assumed import assumed_environment

MORE = {
    "nvidia": {"flash-attn": "2.8.3", "flash-attn-4": "4.0.0b36"},
    "amd": {"flash-attn": "2.8.3", "amd-aiter": "0.1.7.post2.dev18"},
}
TOOLKITS = {"amd": {"hipcc": "7.1"}}
MACHINES = (
    *(f"nvidia:sm{sm}" for sm in (75, 80, 86, 89, 90, 100, 103, 120, 121)),
    *(f"amd:gfx{gfx}" for gfx in ("90a", "942", "950", "1100", "1201")),
    "ascend:910b",
    "cpu",
)
CHANGES = {
    "nvidia": (
        "none", "-triton", "triton==3.2.0", "!triton", "-flashinfer-python", "-flash-attn", "-flash-attn-4",
        "-nvcc", "nvcc==12.4", "-cxx", "-torch", "torch-cpu", "driver==525.60",
    ),
    "amd": (
        "none", "!triton-rocm", "-triton-rocm", "-amd-aiter", "!amd-aiter", "amd-aiter==0.1.8",
        "amd-aiter==0.1.6", "-flash-attn", "-hipcc", "-cxx", "torch-cpu", "-torch",
    ),
    "ascend": ("-torch-npu", "!torch-npu", "-torch"),
    "cpu": ("none", "-torch"),
}  # fmt: skip


def machine(target: Target, change: str = "all") -> Environment:
    """A machine of the target: "all", "none" (torch alone), "-NAME", "NAME==VERSION" or "!NAME" (broken)."""
    full = assumed_environment(target)
    more = {name: Package(name, version) for name, version in MORE.get(target.vendor, {}).items()}
    toolkits = {**full.toolkits, **TOOLKITS.get(target.vendor, {})}
    full = replace(full, packages={**full.packages, **more}, toolkits=toolkits)
    name, _, version = change.lstrip("-!").partition("==")
    if change == "all":
        return full
    if change == "none":
        return replace(full, packages={"torch": full.packages["torch"]})
    if change == "torch-cpu":
        return replace(full, torch=TorchBuild("2.13.0+cpu"))
    if change == "driver==525.60":
        return replace(full, devices=tuple(replace(row, driver="525.60.13") for row in full.devices))
    if change == "-torch":
        return replace(full, torch=None, packages=_without(full.packages, "torch"))
    if name in full.toolkits:
        others = _without(full.toolkits, name)
        return replace(full, toolkits={**others, **({name: version} if version else {})})
    if change.startswith("!"):
        broken = replace(full.packages[name], error="libcudart.so.12: cannot open shared object file")
        return replace(full, packages={**full.packages, name: broken})
    others = _without(full.packages, name)
    return replace(full, packages={**others, **({name: Package(name, version)} if version else {})})


def need(**fields) -> Need:
    """Ouro's need, with changes."""
    ouro = {
        "num_heads": 16,
        "num_kv_heads": 16,
        "head_dim": 128,
        "allowed_kv_layouts": ("last_exited", "full", "shared"),
        "loops": 4,
        "exit_rules": ("gate",),
    }
    return Need(**{**ouro, **fields})


def _without(table, name):
    return {key: value for key, value in table.items() if key != name}
