"""Ascend, through torch_npu, which adds `torch.npu` when it is imported."""

from __future__ import annotations

from typing import Any

from rlt_hw.devices.platforms.accelerator import AcceleratorPlatform
from rlt_hw.reasons import Code, Rejection


class NpuPlatform(AcceleratorPlatform):
    """`unavailable` carries the text of the failed import, because CANN is what is usually missing."""

    def __init__(self) -> None:
        super().__init__(name="ascend", device_type="npu")

    def module(self) -> Any:
        import torch_npu

        return torch_npu.npu

    def _refusal(self) -> Rejection | None:
        try:
            self.module()
        except (ImportError, OSError, RuntimeError) as error:
            missing = isinstance(error, ModuleNotFoundError)
            return Rejection(
                Code.PKG_MISSING if missing else Code.PKG_BROKEN,
                "torch-npu",
                str(error),
                "torch-npu of torch's minor version, with CANN's libraries on LD_LIBRARY_PATH",
                "See `rlt-hw doctor`.",
            )
        return super()._refusal()
