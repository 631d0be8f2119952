"""NVIDIA architectures. Exact compute capabilities: a larger number never implies a smaller one."""

from __future__ import annotations

from rlt_hw.devices.facts.record import Bandwidth, TargetFacts
from rlt_hw.devices.target import Target

_GUIDE = (
    "CUDA C++ Programming Guide, compute capability tables (warp size, shared memory per block); "
    "CUDA Toolkit release notes (first nvcc); CUDA math API, fp8 types"
)


def _nvidia(
    arch: str,
    products: tuple[str, ...],
    aliases: tuple[str, ...],
    shared_kib: int,
    bandwidth: Bandwidth,
    min_nvcc: str,
    min_torch_cuda: str,
    fp8: str | None = "e4m3fn",
) -> TargetFacts:
    return TargetFacts(
        Target("nvidia", arch),
        products,
        _GUIDE,
        aliases,
        wave_size=32,
        shared_memory=shared_kib * 1024,
        bandwidth=bandwidth,
        fp8=fp8,
        graph="cuda_graph",
        communication="nccl",
        torch_device="cuda",
        min_nvcc=min_nvcc,
        min_torch_cuda=min_torch_cuda,
    )


def _sheet(gb_per_s: float, product: str) -> Bandwidth:
    return Bandwidth(gb_per_s, product, f"NVIDIA {product} data sheet")


# Torch's wheels carry kernels for one architecture of each major number (8.0, 9.0, 10.0, 12.0), which
# the later minors of that major run too; hence min_torch_cuda is older than min_nvcc in places.
TARGETS = (
    _nvidia("sm80", ("A100", "A30"), ("a100", "a30", "a800"), 163, _sheet(2039, "A100 80GB SXM"), "11.0",
            "11.0", None),
    _nvidia("sm86", ("RTX 3090", "RTX A6000", "A40", "A10"),
            ("rtx3090", "rtx3080", "rtx3070", "rtx3060", "rtxa6000", "a40", "a10", "a10g", "a16", "a2"),
            99, _sheet(936, "GeForce RTX 3090"), "11.1", "11.0", None),
    _nvidia("sm87", ("Jetson AGX Orin",), ("orin", "jetsonorin", "jetsonagxorin"), 163,
            _sheet(204.8, "Jetson AGX Orin 64GB"), "11.4", "11.0", None),
    _nvidia("sm89", ("L40S", "L4", "RTX 4090"),
            ("l40s", "l40", "l4", "rtx4090", "rtx4080", "rtx4070", "rtx4060", "rtx6000ada"),
            99, _sheet(864, "L40S"), "11.8", "11.0"),
    _nvidia("sm90", ("H100", "H200", "GH200"), ("h100", "h200", "h800", "h20", "gh200"), 227,
            _sheet(4800, "H200 SXM"), "11.8", "11.8"),
    _nvidia("sm100", ("B200", "GB200"), ("b200", "gb200", "b100"), 227, _sheet(8000, "B200 SXM"), "12.8",
            "12.8"),
    _nvidia("sm103", ("B300", "GB300"), ("b300", "gb300"), 227, _sheet(8000, "B300 SXM"), "12.9", "12.8"),
    _nvidia("sm110", ("Jetson AGX Thor",), ("thor", "jetsonthor", "jetsonagxthor"), 227,
            _sheet(273, "Jetson T5000"), "13.0", "13.0"),
    _nvidia("sm120", ("RTX 5090", "RTX PRO 6000 Blackwell"),
            ("rtx5090", "rtx5080", "rtx5070", "rtx5060", "rtxpro6000", "rtxpro6000blackwell"),
            99, _sheet(1792, "GeForce RTX 5090"), "12.8", "12.8"),
    _nvidia("sm121", ("DGX Spark (GB10)",), ("gb10", "dgxspark"), 99, _sheet(273, "DGX Spark"), "12.9",
            "12.8"),
)  # fmt: skip

# Architectures that users ask for and that are refused by name.
UNSUPPORTED = {
    "sm60": "Pascal (P100)",
    "sm61": "Pascal (P40, GTX 10)",
    "sm70": "Volta (V100), which has no bfloat16",
    "sm72": "Volta (Jetson Xavier)",
    "sm75": "Turing (T4, RTX 20), which has no bfloat16 and no asynchronous copy",
    "sm101": "the name that toolkits before CUDA 13.0 use for sm110",
}
