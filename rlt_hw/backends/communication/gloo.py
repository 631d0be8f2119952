"""Collectives between CPU processes, through torch.distributed's gloo."""

from __future__ import annotations

from rlt_hw.backends.communication.process_group import ProcessGroup
from rlt_hw.registry import BackendSpec, Kind, Rank, Sizes

SPEC = BackendSpec(
    kind=Kind.COMMUNICATION,
    name="gloo",
    adapter="rlt_hw.backends.communication.gloo:Gloo",
    summary="torch.distributed with gloo, between processes on the CPU",
    targets=("cpu",),
    world_sizes=Sizes(multiple=1, low=2),
    ranks=(Rank("*", 50, "the process-group backend of torch's CPU builds"),),
)


class Gloo(ProcessGroup):
    """See `rlt_hw.backends.communication.interface.Communication`."""

    torch_backend = "gloo"
