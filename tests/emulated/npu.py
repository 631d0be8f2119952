"""The emulated device under the name `npu`, with a `torch_npu` that has its operators."""

from __future__ import annotations

import sys
from types import ModuleType

import torch

from rlt_hw.verify.contracts.published import published
from tests.emulated import npu_graph, npu_operators
from tests.emulated.device import DeviceModule, register


class NpuModule(DeviceModule):
    """What the platform seam asks of `torch.npu` besides."""

    NPUGraph = npu_graph.NPUGraph
    graph = staticmethod(npu_graph.graph)

    def is_current_stream_capturing(self) -> bool:
        return npu_graph.Capture.current is not None

    def mem_get_info(self, index: int = 0) -> tuple[int, int]:
        return 2**30, 2**30

    def reset_peak_memory_stats(self, index: int = 0) -> None: ...

    def empty_cache(self) -> None: ...

    def Stream(self, device: int = 0) -> torch.Stream:  # noqa: N802 - the vendor's
        return torch.Stream(device=torch.device("npu", device))

    def current_stream(self, index: int = 0) -> torch.Stream:
        return torch.accelerator.current_stream(torch.device("npu", index))

    def stream(self, stream: torch.Stream) -> torch.Stream:
        return stream

    def Event(self, enable_timing: bool = False) -> torch.Event:  # noqa: N802
        return torch.Event("npu", enable_timing=enable_timing)


def install() -> ModuleType:
    """`torch.npu` and `torch_npu` in this process. A call that the published signature refuses fails here."""
    made = ModuleType("torch_npu")
    made.npu = register("npu", NpuModule)
    (version,) = (row for row in published() if row.distribution == "torch-npu")
    for name, signature in version.calls.items():
        operator = getattr(npu_operators, name.removeprefix("torch_npu."), None)
        if operator is not None:
            setattr(made, operator.__name__, _bound(npu_graph.kept_whole(operator), signature))
    sys.modules["torch_npu"] = made
    return made


def _bound(operator, signature):
    def call(*args, **kwargs):
        return operator(**signature.bind(*args, **kwargs).arguments)

    return call
