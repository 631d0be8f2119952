"""Collectives between NVIDIA GPUs, through torch.distributed's NCCL; they can be captured in CUDA graphs."""

from __future__ import annotations

from rlt_hw.backends.communication.process_group import ProcessGroup
from rlt_hw.backends.targets import AMPERE_TO_BLACKWELL
from rlt_hw.registry import BackendSpec, Kind, Rank, Sizes

SPEC = BackendSpec(
    kind=Kind.COMMUNICATION,
    name="nccl",
    adapter="rlt_hw.backends.communication.nccl:Nccl",
    summary="torch.distributed with NCCL",
    targets=(*AMPERE_TO_BLACKWELL, "nvidia:sm110"),
    world_sizes=Sizes(multiple=1, low=2),
    graph_levels=("none", "piecewise", "full"),
    ranks=(Rank("*", 50, "the process-group backend of torch's CUDA builds"),),
)


class Nccl(ProcessGroup):
    """See `rlt_hw.backends.communication.interface.Communication`."""

    torch_backend = "nccl"
