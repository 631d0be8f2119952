"""Graphs of the emulated `npu`: what ran during a capture, operator by operator, to be run again on the same
tensors. As on the device, a capture holds no copy between host and device, and a call of the fused operator
waits in each run for the lengths of `update`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

READS = {"_local_scalar_dense", "nonzero", "masked_select", "equal", "is_nonzero", "repeat_interleave.Tensor"}
KEPT_APART = "npu_fused_infer_attention_score"


class NPUGraph:
    """The names are torch_npu's."""

    auto_dispatch_capture = False
    replays = 0
    """Of all graphs of the process."""

    def __init__(self) -> None:
        self.calls: list[list[Any]] = []
        self._updated = False

    def pool(self) -> tuple[int, int]:
        return (0, 1)

    def reset(self) -> None:
        self.calls.clear()

    def update(self, cpu_update_input: list[dict[str, Any]]) -> None:
        assert self.auto_dispatch_capture
        fused = [call for call in self.calls if call[0].__name__ == KEPT_APART]
        given = cpu_update_input * len(fused) if len(cpu_update_input) == 1 else cpu_update_input
        assert len(given) == len(fused)
        for call, values in zip(fused, given, strict=True):
            assert values.keys() <= call[2].keys()
            call[2].update(values)
        self._updated = True

    @torch.inference_mode()
    def replay(self) -> None:
        assert self._updated, "the graph would wait forever for its lengths"
        self._updated = False
        NPUGraph.replays += 1
        for function, args, kwargs, results in self.calls:
            for old, new in zip(results, tree_leaves(function(*args, **kwargs)), strict=True):
                if isinstance(old, torch.Tensor) and old.data_ptr() != new.data_ptr():
                    old.copy_(new)


class Capture(TorchDispatchMode):
    current: ClassVar[Capture | None] = None

    def __init__(self, graph: NPUGraph) -> None:
        super().__init__()
        self.graph = graph

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        kinds = {row.device.type for row in tree_leaves((args, kwargs)) if isinstance(row, torch.Tensor)}
        to = kwargs.get("device")
        if to is not None and torch.device(to).type != "npu" and "npu" in kinds:
            raise RuntimeError(f"a graph cannot hold a copy to the host: {func}")
        if func._schema.name.removeprefix("aten::") in READS or (func._opname == "copy_" and len(kinds) > 1):
            raise RuntimeError(f"a graph cannot hold {func}")
        return self.keep(func, args, kwargs)

    def keep(self, function, args, kwargs):
        result = function(*args, **kwargs)
        self.graph.calls.append([function, args, dict(kwargs), tree_leaves(result)])
        return result


@contextmanager
def graph(npu_graph: NPUGraph, pool: Any = None, auto_dispatch_capture: bool = False) -> Iterator[None]:
    npu_graph.auto_dispatch_capture = auto_dispatch_capture
    Capture.current = Capture(npu_graph)
    try:
        with Capture.current:
            yield
    finally:
        Capture.current = None


def kept_whole(operator):
    """A capture holds a vendor's operator as one call, and not what its double does."""

    def call(*args, **kwargs):
        capture = Capture.current
        if capture is None:
            return operator(*args, **kwargs)
        with torch._C._DisableTorchDispatch():
            return capture.keep(operator, args, kwargs)

    call.__name__ = operator.__name__
    return call
