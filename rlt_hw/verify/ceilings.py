"""What a device can read and multiply at most, measured: the ceilings that a step is held against."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass

import torch

from rlt_hw.devices.platform import Platform

REPEATS = 20


@dataclass(frozen=True)
class Ceilings:
    """read_bandwidth: bytes a second of the fastest of several reads. matrix_rate: floating-point operations
    a second of one large square product in `dtype`."""

    read_bandwidth: float
    matrix_rate: float
    dtype: str


def measure_ceilings(platform: Platform, device: torch.device, dtype: torch.dtype) -> Ceilings:
    """Takes about a second. Reads far more than caches hold; medians of repeats."""
    small = device.type == "cpu"
    side = 1024 if small else 8192
    left, right = (torch.randn(side, side, device=device).to(dtype) for _ in range(2))
    product = _seconds(platform, lambda: torch.mm(left, right))
    values = torch.zeros(2**26 if small else 2**28, dtype=torch.float32, device=device)
    fastest = min(_seconds(platform, read) for read in _reads(values, small))
    return Ceilings(values.nbytes / fastest, 2 * side**3 / product, str(dtype).removeprefix("torch."))


def _reads(values: torch.Tensor, small: bool) -> list[Callable[[], object]]:
    reads: list[Callable[[], object]] = [values.sum, values.amax]
    if not small and importlib.util.find_spec("triton") is not None:
        from rlt_hw.backends.kernels.reading import read

        reads.append(lambda: read(values))
    return reads


def _seconds(platform: Platform, work: Callable[[], object]) -> float:
    """The median of repeats."""
    for _ in range(3):
        work()
    times = []
    for _ in range(REPEATS):
        begin, end = platform.event(timing=True), platform.event(timing=True)
        begin.record()
        work()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end))
    return sorted(times)[REPEATS // 2] / 1e3
