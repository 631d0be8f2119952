"""No graph: every step is launched operation by operation. Works wherever torch does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlt_hw.backends.graphs.interface import Lengths, Step
from rlt_hw.registry import BackendSpec, Kind, Rank

if TYPE_CHECKING:
    import torch

SPEC = BackendSpec(
    kind=Kind.GRAPH,
    name="eager",
    adapter="rlt_hw.backends.graphs.eager:Eager",
    summary="no capture; operation by operation",
    targets=("*",),
    graph_levels=("none",),
    ranks=(Rank("*", 1, "what runs where nothing can be captured"),),
)


class Eager:
    """See `rlt_hw.backends.graphs.interface.Graph`."""

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def capture(self, step: Step, lengths: Lengths) -> Step:
        return step

    def close(self) -> None:
        """Nothing was captured."""
