"""The CPU as a platform: work is done when a call returns, so streams and waits are empty."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlt_hw.devices.platform import DeviceWork, Memory
from rlt_hw.reasons import Rejection

if TYPE_CHECKING:
    import torch


class HostEvent:
    """An event of a platform whose work is finished when the call returns."""

    def __init__(self) -> None:
        self._at: float | None = None

    def record(self) -> None:
        self._at = time.perf_counter()

    def synchronize(self) -> None:
        """Nothing to wait for."""

    def elapsed_time(self, later: HostEvent) -> float:
        """Milliseconds between two recorded events. Raises ValueError when one was not recorded."""
        if self._at is None or later._at is None:
            raise ValueError("elapsed_time needs two recorded events")
        return (later._at - self._at) * 1000.0


class CpuPlatform:
    """Memory figures are the machine's and this process's; 0 where /proc does not say."""

    name = "cpu"
    pins_memory = False
    has_streams = False

    def unavailable(self) -> Rejection | None:
        from rlt_hw.devices.platforms.refusals import torch_missing

        return torch_missing()

    def device_count(self) -> int:
        return 1

    def torch_device(self, index: int = 0) -> torch.device:
        import torch

        return torch.device("cpu")

    def set_device(self, index: int) -> None:
        """There is one."""

    def memory(self, index: int = 0) -> Memory:
        machine = _kib("/proc/meminfo")
        process = _kib("/proc/self/status")
        return Memory(
            free=machine.get("MemAvailable", 0),
            total=machine.get("MemTotal", 0),
            allocated=process.get("VmRSS", 0),
            peak=process.get("VmHWM", 0),
        )

    def reset_peak_memory(self, index: int = 0) -> None:
        """The kernel keeps a process's peak; it cannot be reset without privileges."""

    def release_cached_memory(self) -> None:
        """Torch caches no host memory."""

    def synchronize(self, index: int = 0) -> None:
        """Work is done when a call returns."""

    def stream(self, index: int = 0) -> Any:
        return None

    def current_stream(self, index: int = 0) -> Any:
        return None

    def on_stream(self, stream: Any) -> AbstractContextManager[Any]:
        return nullcontext(stream)

    def event(self, timing: bool = False) -> HostEvent:
        return HostEvent()

    def profile(self, work: Callable[[], None]) -> DeviceWork | None:
        work()
        return None

    def pin(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor


def _kib(path: str) -> dict[str, int]:
    """The `Name: 123 kB` lines of a /proc file, in bytes."""
    try:
        with Path(path).open(encoding="ascii", errors="replace") as file:
            rows = (line.split() for line in file)
            return {row[0].rstrip(":"): int(row[1]) * 1024 for row in rows if row[-1:] == ["kB"]}
    except OSError:
        return {}
