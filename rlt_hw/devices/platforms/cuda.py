"""NVIDIA, and AMD under ROCm: there too torch's device type is "cuda"."""

from __future__ import annotations

from collections.abc import Callable

from rlt_hw.devices.platform import DeviceWork
from rlt_hw.devices.platforms.accelerator import AcceleratorPlatform
from rlt_hw.devices.platforms.refusals import no_device
from rlt_hw.reasons import Code, Rejection


class CudaPlatform(AcceleratorPlatform):
    """`vendor` is "nvidia" or "amd"; it decides which build of torch is right."""

    def __init__(self, vendor: str = "nvidia") -> None:
        super().__init__(name=vendor, device_type="cuda")

    def _refusal(self) -> Rejection | None:
        import torch

        wanted, built = ("CUDA", torch.version.cuda) if self.name == "nvidia" else ("ROCm", torch.version.hip)
        if built is None:
            return Rejection(
                Code.TORCH_BUILD,
                "torch",
                f"torch {torch.__version__}, not built for {wanted}",
                f"a {wanted} build of torch",
                "See `rlt-hw doctor`.",
            )
        if not torch.cuda.is_available():
            return no_device(self.name, "torch.cuda.is_available() is False")
        return None

    def profile(self, work: Callable[[], None]) -> DeviceWork | None:
        from torch._C._autograd import DeviceType
        from torch.profiler import ProfilerActivity, profile

        self.synchronize()
        with profile(activities=[ProfilerActivity.CUDA], acc_events=True) as found:
            work()
            self.synchronize()
        spans = sorted(
            (event.time_range.start, event.time_range.end)
            for event in found.events()
            if event.device_type == DeviceType.CUDA
        )
        if not spans:
            return None
        busy, until = 0.0, spans[0][0]
        for start, end in spans:
            busy += max(end - max(start, until), 0.0)
            until = max(until, end)
        return DeviceWork(len(spans), (until - spans[0][0]) / 1e6, busy / 1e6)
