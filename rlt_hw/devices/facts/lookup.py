"""From a target to its facts, or to a refusal. Never to the facts of a neighbour."""

from __future__ import annotations

import re
from dataclasses import replace

from rlt_hw.devices.facts import amd, ascend, cpu, nvidia
from rlt_hw.devices.facts.record import TargetFacts
from rlt_hw.devices.target import Target
from rlt_hw.reasons import Code, Rejection

_FACTS: dict[Target, TargetFacts] = {
    row.target: row for table in (nvidia, amd, ascend, cpu) for row in table.TARGETS
}
_UNSUPPORTED = {"nvidia": nvidia.UNSUPPORTED, "amd": amd.UNSUPPORTED, "ascend": ascend.UNSUPPORTED}
_ALIASES: dict[str, Target] = {alias: row.target for row in _FACTS.values() for alias in row.aliases}
_ARCHS: dict[str, Target] = {
    target.arch.replace("_", ""): target
    for vendor, arches in _UNSUPPORTED.items()
    for target in (
        *(row for row in _FACTS if row.vendor == vendor),
        *(Target(vendor, arch) for arch in arches),
    )
}
_VENDOR_OF = {"sm": "nvidia", "gfx": "amd"}
_BRANDS = re.compile(r"^(nvidia|amd|huawei|ascend|geforce|radeon|instinct|tesla)+")


def known_targets() -> tuple[Target, ...]:
    """Every target with facts, in a stable order: NVIDIA, AMD, Ascend, CPU."""
    return tuple(_FACTS)


def facts(target: Target) -> TargetFacts | Rejection:
    """The facts of exactly this target, or ARCH_UNKNOWN.

    An emulated device (`emulated:NAME`, a torch device type of that name) borrows the CPU's.
    """
    if target.vendor == "cpu" and target.arch in cpu.ARCHS:
        return replace(_FACTS[Target("cpu", "any")], target=target)
    if target.vendor == "emulated":
        return TargetFacts(
            target, (f"emulated device {target.arch}",), "the host CPU", torch_device=target.arch
        )
    return _FACTS.get(target) or _unknown(target)


def find_target(text: str) -> Target:
    """A target from `vendor:arch`, an architecture ("sm90", "gfx942") or a product ("H200", "rtx 5090").

    Raises ConfigError when it is none of them. The architecture may still be unknown to `facts`.
    """
    if ":" not in text:
        squeezed = re.sub(r"[^a-z0-9]", "", text.lower())
        for name in (squeezed, _BRANDS.sub("", squeezed)):
            if name in _ALIASES or name in _ARCHS:
                return _ALIASES.get(name) or _ARCHS[name]
        unheard_of = re.fullmatch(r"(sm|gfx)\d+[a-f]?", squeezed)
        if unheard_of:
            return Target(_VENDOR_OF[unheard_of[1]], squeezed)
    return Target.parse(text)


def _unknown(target: Target) -> Rejection:
    known = [str(row) for row in _FACTS if row.vendor == target.vendor]
    what = _UNSUPPORTED.get(target.vendor, {}).get(target.arch)
    return Rejection(
        Code.ARCH_UNKNOWN,
        str(target),
        f"{target.arch}, {what}" if what else f"{target.arch}, which this release has no facts about",
        ", ".join(known) or ", ".join(str(row) for row in _FACTS),
        "Run on the CPU of this machine with `--device cpu`.",
    )
