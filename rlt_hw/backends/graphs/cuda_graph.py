"""CUDA graphs, which on ROCm are HIP graphs: a step in one launch, on tensors that stay where they are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rlt_hw.backends.graphs.interface import Lengths, Step
from rlt_hw.backends.targets import AMD, AMPERE_TO_BLACKWELL
from rlt_hw.registry import BackendSpec, Kind, Rank

if TYPE_CHECKING:
    import torch

SPEC = BackendSpec(
    kind=Kind.GRAPH,
    name="cuda_graph",
    adapter="rlt_hw.backends.graphs.cuda_graph:CudaGraph",
    summary="whole token steps in one launch",
    targets=AMPERE_TO_BLACKWELL + AMD,
    graph_levels=("full",),
    ranks=(
        Rank("nvidia:sm90", 90, "a step of 500 kernels without the host, on an H200"),
        Rank("nvidia:*", 90, "as on nvidia:sm90; not measured here"),
        Rank("amd:*", 60, "not measured"),
    ),
)


class CudaGraph:
    """See `rlt_hw.backends.graphs.interface.Graph`. All graphs share one pool of memory."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._pool: Any = None
        self._graphs: list[Any] = []

    def capture(self, step: Step, lengths: Lengths) -> Step:
        import torch

        stream: Any = torch.cuda.Stream(device=self._device)  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(stream):
            step()  # compiles kernels, which a capture could not
        torch.cuda.current_stream(self._device).wait_stream(stream)
        torch.cuda.synchronize(self._device)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool, stream=stream):
            step()
        self._pool = self._pool or graph.pool()
        self._graphs.append(graph)
        replay: Step = graph.replay
        return replay

    def close(self) -> None:
        for graph in self._graphs:
            graph.reset()
        self._graphs.clear()
