"""What platforms with a torch module of their own (`torch.cuda`, `torch.npu`, …) have in common.

The vendors' modules repeat the CUDA module's names, which is what makes one implementation enough.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from rlt_hw.devices.platform import DeviceWork, Memory
from rlt_hw.devices.platforms.refusals import no_device, torch_missing
from rlt_hw.reasons import Rejection

if TYPE_CHECKING:
    import torch


class AcceleratorPlatform:
    """A platform over the torch module of `device_type`. Subclasses say how the module is loaded."""

    pins_memory = True
    has_streams = True

    def __init__(self, name: str, device_type: str) -> None:
        self.name = name
        self.device_type = device_type

    def module(self) -> Any:
        """The vendor's torch module. Raises ImportError or AttributeError when there is none."""
        import torch

        return getattr(torch, self.device_type)

    def unavailable(self) -> Rejection | None:
        return torch_missing() or self._refusal()

    def _refusal(self) -> Rejection | None:
        if not self.module().is_available():
            return no_device(self.name, f"torch.{self.device_type}.is_available() is False")
        return None

    def device_count(self) -> int:
        return int(self.module().device_count())

    def torch_device(self, index: int = 0) -> torch.device:
        import torch

        return torch.device(self.device_type, index)

    def set_device(self, index: int) -> None:
        self.module().set_device(index)

    def memory(self, index: int = 0) -> Memory:
        module = self.module()
        free, total = module.mem_get_info(index)
        return Memory(free, total, module.memory_allocated(index), module.max_memory_allocated(index))

    def reset_peak_memory(self, index: int = 0) -> None:
        self.module().reset_peak_memory_stats(index)

    def release_cached_memory(self) -> None:
        self.module().empty_cache()

    def synchronize(self, index: int = 0) -> None:
        self.module().synchronize(index)

    def stream(self, index: int = 0) -> Any:
        return self.module().Stream(device=index)

    def current_stream(self, index: int = 0) -> Any:
        return self.module().current_stream(index)

    def on_stream(self, stream: Any) -> AbstractContextManager[Any]:
        context: AbstractContextManager[Any] = self.module().stream(stream)
        return context

    def event(self, timing: bool = False) -> Any:
        return self.module().Event(enable_timing=timing)

    def profile(self, work: Callable[[], None]) -> DeviceWork | None:
        work()
        self.synchronize()
        return None

    def pin(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.pin_memory()
