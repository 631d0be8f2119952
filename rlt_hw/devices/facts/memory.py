"""Published memory of one representative product per target, for planning without the device.

The product is the one that `Bandwidth.product` names. Vendors print GB for what their tools report as
about as many GiB; what a driver leaves free is a little less.
"""

from __future__ import annotations

from dataclasses import dataclass

from rlt_hw.devices.target import Target

GIB = 1024**3


@dataclass(frozen=True)
class ProductMemory:
    """Memory of a product in bytes. `shared` where the host's CPU uses the same memory."""

    size: int
    product: str
    shared: bool = False


def _gib(size: int, product: str, *, shared: bool = False) -> ProductMemory:
    return ProductMemory(size * GIB, product, shared)


_MEMORY = {
    "nvidia:sm80": _gib(80, "A100 80GB SXM"),
    "nvidia:sm86": _gib(24, "GeForce RTX 3090"),
    "nvidia:sm87": _gib(64, "Jetson AGX Orin 64GB", shared=True),
    "nvidia:sm89": _gib(48, "L40S"),
    "nvidia:sm90": _gib(141, "H200 SXM"),
    "nvidia:sm100": _gib(180, "B200 SXM"),
    "nvidia:sm103": _gib(288, "B300 SXM"),
    "nvidia:sm110": _gib(128, "Jetson T5000", shared=True),
    "nvidia:sm120": _gib(32, "GeForce RTX 5090"),
    "nvidia:sm121": _gib(128, "DGX Spark", shared=True),
    "amd:gfx90a": _gib(64, "Instinct MI210"),
    "amd:gfx942": _gib(192, "Instinct MI300X"),
    "amd:gfx950": _gib(288, "Instinct MI355X"),
    "amd:gfx1100": _gib(24, "Radeon RX 7900 XTX"),
    "amd:gfx1101": _gib(16, "Radeon RX 7800 XT"),
    "amd:gfx1151": _gib(128, "Ryzen AI Max+ 395", shared=True),
    "amd:gfx1200": _gib(16, "Radeon RX 9060 XT"),
    "amd:gfx1201": _gib(16, "Radeon RX 9070 XT"),
    "ascend:910b": _gib(64, "Atlas 800I A2, one NPU"),
    "ascend:910_93": _gib(64, "Ascend 910C, one die"),
    "ascend:310p": _gib(24, "Atlas 300I Pro"),
    "ascend:950": _gib(128, "Ascend 950PR"),
}


def product_memory(target: Target) -> ProductMemory | None:
    """The memory of the target's representative product; None for a CPU, which has no published one."""
    return _MEMORY.get(str(target))
