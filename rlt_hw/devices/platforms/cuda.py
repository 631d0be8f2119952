"""NVIDIA, and AMD under ROCm: there too torch's device type is "cuda"."""

from __future__ import annotations

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
