"""The shape of what is known about a target, before any machine is looked at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rlt_hw.devices.target import Target


@dataclass(frozen=True)
class Bandwidth:
    """Published peak memory bandwidth in GB/s (1e9 bytes) of one named product."""

    gb_per_s: float
    product: str
    source: str


@dataclass(frozen=True)
class TargetFacts:
    """Facts of one architecture. None means that it has no such thing or that nobody published it.

    products: representative product names. aliases: lower-case short names for the command line.
    wave_size: threads that run in lockstep. shared_memory: bytes one block may use (opt-in limit).
    bfloat16: whether bfloat16 arithmetic is native. fp8: the native 8-bit float flavour.
    graph: "cuda_graph", "hip_graph", "acl_graph" or "none".
    communication: the process-group backend to ask torch for.
    torch_device: the device type torch uses.
    min_nvcc: the first CUDA toolkit that compiles for this exact architecture.
    min_torch_cuda: the first CUDA version of a torch build whose own kernels run here.
    """

    target: Target
    products: tuple[str, ...]
    source: str
    aliases: tuple[str, ...] = ()
    wave_size: int | None = None
    shared_memory: int | None = None
    bandwidth: Bandwidth | None = None
    bfloat16: bool = True
    fp8: str | None = None
    graph: str = "none"
    communication: str = "gloo"
    torch_device: str = "cpu"
    min_nvcc: str | None = None
    min_torch_cuda: str | None = None

    def to_json(self) -> dict[str, Any]:
        from dataclasses import asdict

        data = asdict(self)
        data["target"] = str(self.target)
        data["products"] = list(self.products)
        data["aliases"] = list(self.aliases)
        return data
