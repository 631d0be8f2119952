"""ACL graphs: a step in one launch, but for the lengths of its attention, which are host integers.

Source: torch_npu 2.13.0, npu/graphs.py and npu/_npugraph_handlers. A capture with `auto_dispatch_capture`
keeps each call of the fused operator apart; `update` gives all of them new lengths, on a stream of its own
that the graph waits for. The lengths follow from what the run before computed, so the host waits for it once
a step: what is gained is the launches. ASCEND_LAUNCH_BLOCKING=1 makes captures fail.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rlt_hw.backends.graphs.interface import Lengths, Step
from rlt_hw.backends.npu_package import TARGETS
from rlt_hw.errors import UnsupportedError
from rlt_hw.reasons import Code, Rejection
from rlt_hw.registry import BackendSpec, Kind, Need, Rank, Requirement

if TYPE_CHECKING:
    import torch

    from rlt_hw.devices.environment import Environment
    from rlt_hw.devices.target import Target

BLOCKING = "ASCEND_LAUNCH_BLOCKING"
LENGTHS = "actual_seq_lengths_kv"
CAUSES = (
    ("sq cq", "an HDK that lets graphs allocate queues", "Update the Ascend HDK, or set graph='none'."),
    ("stream", "as many streams as its graphs take", "Lower max_num_seqs, or set graph='none'."),
)
"""What the text of a failed capture has, what it lacks then, and what to do."""


def _not_blocking(_target: Target, _need: Need, environment: Environment) -> Rejection | None:
    if environment.variables.get(BLOCKING) != "1":
        return None
    return Rejection(Code.GRAPH, "acl_graph", f"{BLOCKING}=1", "0, or not set", f"`unset {BLOCKING}`")


SPEC = BackendSpec(
    kind=Kind.GRAPH,
    name="acl_graph",
    adapter="rlt_hw.backends.graphs.acl_graph:AclGraph",
    summary="decode steps in one launch, lengths from the host",
    targets=TARGETS,
    graph_levels=("full",),
    requirements=(Requirement("torch-npu", ">=2.13", "torch_npu"),),
    ranks=(Rank("ascend:*", 0, "behind eager until a capture was seen on a device"),),
    predicate=_not_blocking,
)


class AclGraph:
    """See `rlt_hw.backends.graphs.interface.Graph`. All graphs share one pool of memory."""

    def __init__(self, device: torch.device) -> None:
        self._pool: Any = None
        self._graphs: list[Any] = []

    def capture(self, step: Step, lengths: Lengths) -> Step:
        """Raises UnsupportedError (GRAPH) where the device refuses the capture."""
        import torch_npu

        step()  # allocates and compiles, which a capture could not
        graph = torch_npu.npu.NPUGraph()
        try:
            with torch_npu.npu.graph(npu_graph=graph, pool=self._pool, auto_dispatch_capture=True):
                step()
        except RuntimeError as error:
            raise _refused(str(error)) from error
        self._pool = self._pool or graph.pool()
        self._graphs.append(graph)

        def replay() -> None:
            graph.update(cpu_update_input=[{LENGTHS: [max(length, 1) for length in lengths()]}])
            graph.replay()

        return replay

    def close(self) -> None:
        for graph in self._graphs:
            graph.reset()
        self._graphs.clear()


def _refused(text: str) -> UnsupportedError:
    causes = (row for row in CAUSES if row[0] in text.lower())
    _, allowed, remedy = next(causes, ("", "a step that can be captured", "Set graph='none'."))
    return UnsupportedError("acl_graph", found=text, allowed=allowed, remedy=remedy, code=Code.GRAPH)
