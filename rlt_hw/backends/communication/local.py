"""One process: every collective is already done."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlt_hw.backends.communication.interface import World
from rlt_hw.registry import BackendSpec, Kind, Rank, Sizes

if TYPE_CHECKING:
    import torch

SPEC = BackendSpec(
    kind=Kind.COMMUNICATION,
    name="local",
    adapter="rlt_hw.backends.communication.local:Local",
    summary="one process; nothing to exchange",
    targets=("*",),
    world_sizes=Sizes(values=(1,)),
    graph_levels=("none", "piecewise", "full"),
    ranks=(Rank("*", 90, "no message is faster than none"),),
)


class Local:
    """See `rlt_hw.backends.communication.interface.Communication`."""

    def __init__(self, world: World, device: torch.device) -> None:
        assert world.size == 1, "selection gives `local` to one process only"
        self.world = world

    def all_reduce(self, tensor: torch.Tensor) -> None:
        """The sum over one rank is the tensor itself."""

    def all_gather(self, tensor: torch.Tensor, out: torch.Tensor) -> None:
        out.copy_(tensor)

    def broadcast(self, tensor: torch.Tensor, source: int = 0) -> None:
        """The only rank is the source."""

    def barrier(self) -> None:
        """The only rank has arrived."""

    def close(self) -> None:
        """There is no group to leave."""
