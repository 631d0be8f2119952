"""AMD architectures by LLVM gfx name. On ROCm torch's device type is `cuda` and RCCL answers to `nccl`."""

from __future__ import annotations

from rlt_hw.devices.facts.record import Bandwidth, TargetFacts
from rlt_hw.devices.target import Target

_GUIDE = "LLVM AMDGPU usage guide (wavefront size); ROCm GPU hardware specifications (LDS, memory, fp8 types)"


def _amd(
    arch: str,
    products: tuple[str, ...],
    aliases: tuple[str, ...],
    wave_size: int,
    bandwidth: tuple[float, str],
    fp8: str | None,
    lds_kib: int = 64,
) -> TargetFacts:
    gb_per_s, product = bandwidth
    return TargetFacts(
        Target("amd", arch),
        products,
        _GUIDE,
        aliases,
        wave_size=wave_size,
        shared_memory=lds_kib * 1024,
        bandwidth=Bandwidth(gb_per_s, product, f"AMD {product} product page"),
        fp8=fp8,
        graph="hip_graph",
        communication="nccl",
        torch_device="cuda",
    )


TARGETS = (
    _amd("gfx90a", ("Instinct MI210", "Instinct MI250X"), ("mi210", "mi250", "mi250x"), 64,
         (1638, "Instinct MI210"), None),
    _amd("gfx942", ("Instinct MI300X", "Instinct MI325X", "Instinct MI300A"),
         ("mi300x", "mi325x", "mi300a", "mi308x"), 64, (5300, "Instinct MI300X"), "e4m3fnuz"),
    _amd("gfx950", ("Instinct MI350X", "Instinct MI355X"), ("mi350x", "mi355x"), 64,
         (8000, "Instinct MI355X"), "e4m3fn", lds_kib=160),
    _amd("gfx1100", ("Radeon RX 7900 XTX", "Radeon PRO W7900"),
         ("rx7900xtx", "rx7900xt", "w7900", "w7800"), 32, (960, "Radeon RX 7900 XTX"), None),
    _amd("gfx1101", ("Radeon RX 7800 XT", "Radeon PRO W7700"), ("rx7800xt", "rx7700xt", "w7700"), 32,
         (624, "Radeon RX 7800 XT"), None),
    _amd("gfx1151", ("Ryzen AI Max+ 395 (Radeon 8060S)",), ("strixhalo", "ryzenaimax395", "radeon8060s"), 32,
         (256, "Ryzen AI Max+ 395"), None),
    _amd("gfx1200", ("Radeon RX 9060 XT",), ("rx9060xt",), 32, (320, "Radeon RX 9060 XT"), "e4m3fn"),
    _amd("gfx1201", ("Radeon RX 9070 XT", "Radeon AI PRO R9700"), ("rx9070xt", "rx9070", "r9700"), 32,
         (640, "Radeon RX 9070 XT"), "e4m3fn"),
)  # fmt: skip

UNSUPPORTED = {
    "gfx900": "Vega (MI25)",
    "gfx906": "Vega 20 (MI50, MI60)",
    "gfx908": "CDNA1 (MI100)",
    "gfx1010": "RDNA1 (RX 5000)",
    "gfx1030": "RDNA2 (RX 6000)",
    "gfx1102": "RDNA3 (RX 7600)",
    "gfx1103": "RDNA3 (Radeon 780M)",
    "gfx1150": "RDNA3.5 (Strix Point)",
    "gfx1250": "an architecture newer than this release",
}
