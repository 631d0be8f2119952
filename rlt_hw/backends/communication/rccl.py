"""Collectives between AMD GPUs: RCCL, which torch's ROCm builds name `nccl`."""

from __future__ import annotations

from rlt_hw.backends.communication.process_group import ProcessGroup
from rlt_hw.backends.targets import AMD
from rlt_hw.registry import BackendSpec, Kind, Rank, Sizes

SPEC = BackendSpec(
    kind=Kind.COMMUNICATION,
    name="rccl",
    adapter="rlt_hw.backends.communication.rccl:Rccl",
    summary="torch.distributed with RCCL",
    targets=AMD,
    world_sizes=Sizes(multiple=1, low=2),
    ranks=(Rank("*", 50, "the process-group backend of torch's ROCm builds"),),
)


class Rccl(ProcessGroup):
    """See `rlt_hw.backends.communication.interface.Communication`."""

    torch_backend = "nccl"
