"""Ascend, through torch_npu, which adds `torch.npu` when it is imported."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from rlt_hw.devices.platforms.accelerator import AcceleratorPlatform
from rlt_hw.reasons import Code, Rejection

if TYPE_CHECKING:
    import torch

SET_ENV = "`source /usr/local/Ascend/ascend-toolkit/set_env.sh`"
MATCHING = "torch-npu of torch's minor version"
FAULTS = (
    (r"No module named", Code.PKG_MISSING, MATCHING, "`pip install torch-npu` of that version"),
    (r"libascend_hal|libdcmi", Code.DRIVER, "the libraries of the Ascend driver",
     "In a container, mount /usr/local/Ascend/driver and put its lib64 on LD_LIBRARY_PATH."),
    (r"cannot open shared object", Code.PKG_BROKEN, "CANN's libraries on LD_LIBRARY_PATH", SET_ENV),
    (r"undefined symbol", Code.PKG_VERSION, MATCHING, "`pip install torch-npu` of that version"),
    (r"backend extension", Code.PKG_BROKEN, "a torch that loads without torch_npu",
     "`TORCH_DEVICE_BACKEND_AUTOLOAD=0 python -c 'import torch_npu'` shows the cause"),
)  # fmt: skip
"""Text of a failed import, and what it stands for; the first that fits counts."""


class NpuPlatform(AcceleratorPlatform):
    """`unavailable` carries the text of the failed import, because CANN is what is usually missing."""

    def __init__(self) -> None:
        super().__init__(name="ascend", device_type="npu")

    def module(self) -> Any:
        import torch_npu

        return torch_npu.npu

    def torch_device(self, index: int = 0) -> torch.device:
        self.module()  # torch knows the name once this is imported
        return super().torch_device(index)

    def _refusal(self) -> Rejection | None:
        try:
            self.module()
        except (ImportError, OSError, RuntimeError) as error:
            return fault(str(error))
        return super()._refusal()


def fault(text: str) -> Rejection:
    """Why torch_npu does not import."""
    for pattern, code, allowed, remedy in FAULTS:
        if re.search(pattern, text):
            return Rejection(code, "torch-npu", text, allowed, remedy)
    return Rejection(
        Code.PKG_BROKEN, "torch-npu", text, f"{MATCHING}, with CANN and its driver", "See `rlt-hw doctor`."
    )
