"""The platform seam: what the runtime may ask of a device, the same words for every vendor.

Nothing outside `devices` and `backends` names a vendor's torch module. Torch is imported inside methods.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from rlt_hw.devices.target import Target
from rlt_hw.reasons import Rejection

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Memory:
    """Bytes of a device. `allocated` and `peak` count what this process holds through torch."""

    free: int
    total: int
    allocated: int
    peak: int


@dataclass(frozen=True)
class DeviceWork:
    """What a device did while some host code ran. seconds: from the start of the first kernel to the end of
    the last. busy: of these, with at least one kernel running."""

    kernels: int
    seconds: float
    busy: float


class Event(Protocol):
    """A point in a stream's work. Times are known after `synchronize`."""

    def record(self) -> None: ...

    def synchronize(self) -> None: ...

    def elapsed_time(self, later: Any) -> float:
        """Milliseconds from this event to a later one; both need `timing=True`."""
        ...


class Platform(Protocol):
    """One vendor's devices. `index` is the index torch uses."""

    name: str
    pins_memory: bool
    """Whether `pin` returns page-locked memory, from which copies can be asynchronous."""
    has_streams: bool
    """Whether work on two streams can overlap. Where False, streams and events still work."""

    def unavailable(self) -> Rejection | None:
        """Why torch cannot use this platform here, or None when it can."""
        ...

    def device_count(self) -> int: ...

    def torch_device(self, index: int = 0) -> torch.device: ...

    def set_device(self, index: int) -> None:
        """Make the device current for this thread."""
        ...

    def memory(self, index: int = 0) -> Memory: ...

    def reset_peak_memory(self, index: int = 0) -> None: ...

    def release_cached_memory(self) -> None:
        """Give memory that torch caches back to the device."""
        ...

    def synchronize(self, index: int = 0) -> None:
        """Wait for all work of the device."""
        ...

    def stream(self, index: int = 0) -> Any:
        """A new stream, for `on_stream`."""
        ...

    def current_stream(self, index: int = 0) -> Any: ...

    def on_stream(self, stream: Any) -> AbstractContextManager[Any]:
        """Within the context, work goes to this stream."""
        ...

    def event(self, timing: bool = False) -> Event: ...

    def profile(self, work: Callable[[], None]) -> DeviceWork | None:
        """Run host code to its end on the device, and what the device did; None where nothing can tell."""
        ...

    def pin(self, tensor: torch.Tensor) -> torch.Tensor:
        """The same values in page-locked memory; the tensor itself where there is no such thing."""
        ...


def platform_for(target: Target) -> Platform:
    """The platform that runs a target's devices. It may still be `unavailable` here."""
    if target.vendor in ("nvidia", "amd"):
        from rlt_hw.devices.platforms.cuda import CudaPlatform

        return CudaPlatform(target.vendor)
    if target.vendor == "ascend":
        from rlt_hw.devices.platforms.npu import NpuPlatform

        return NpuPlatform()
    if target.vendor == "emulated":
        from rlt_hw.devices.platforms.emulated import EmulatedPlatform

        return EmulatedPlatform(target.arch)
    from rlt_hw.devices.platforms.cpu import CpuPlatform

    return CpuPlatform()
