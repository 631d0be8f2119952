"""A device on torch's PrivateUse1 key, by name: host memory that behaves as an accelerator.

It runs the whole engine in tests, so that an assumption about CUDA fails on a laptop.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rlt_hw.devices.platform import Memory
from rlt_hw.devices.platforms.accelerator import AcceleratorPlatform
from rlt_hw.devices.platforms.cpu import CpuPlatform, HostEvent
from rlt_hw.reasons import Code, Rejection

if TYPE_CHECKING:
    import torch


class EmulatedPlatform(AcceleratorPlatform):
    """Streams exist and are ordered, events take host time, memory is the host's."""

    pins_memory = False
    has_streams = False

    def __init__(self, device_type: str) -> None:
        super().__init__(name=f"emulated:{device_type}", device_type=device_type)

    def _refusal(self) -> Rejection | None:
        import torch

        if not hasattr(torch, self.device_type):
            return Rejection(
                Code.PLUGIN,
                self.name,
                f"torch has no device module {self.device_type!r}",
                "a PrivateUse1 backend renamed to it and registered with torch",
                "Import the module that registers the device before asking for it.",
            )
        return super()._refusal()

    def memory(self, index: int = 0) -> Memory:
        host, module = CpuPlatform().memory(), self.module()
        return Memory(
            host.free, host.total, module.memory_allocated(index), module.max_memory_allocated(index)
        )

    def reset_peak_memory(self, index: int = 0) -> None:
        """The emulated allocator keeps its peak."""

    def release_cached_memory(self) -> None:
        """It caches nothing."""

    def stream(self, index: int = 0) -> Any:
        import torch

        return torch.Stream(device=self.torch_device(index))

    def current_stream(self, index: int = 0) -> Any:
        import torch

        return torch.accelerator.current_stream(self.torch_device(index))

    def on_stream(self, stream: Any) -> Any:
        return stream

    def event(self, timing: bool = False) -> HostEvent:
        return HostEvent()

    def pin(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor
