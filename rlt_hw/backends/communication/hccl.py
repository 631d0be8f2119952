"""Collectives between Ascend NPUs: HCCL, which torch_npu registers with torch.distributed."""

from __future__ import annotations

from rlt_hw.backends.communication.process_group import ProcessGroup
from rlt_hw.backends.npu_package import REQUIREMENT
from rlt_hw.registry import BackendSpec, Kind, Rank, Sizes

SPEC = BackendSpec(
    kind=Kind.COMMUNICATION,
    name="hccl",
    adapter="rlt_hw.backends.communication.hccl:Hccl",
    summary="torch.distributed with HCCL",
    targets=("ascend:910b", "ascend:910_93", "ascend:310p", "ascend:950"),
    world_sizes=Sizes(multiple=1, low=2),
    requirements=(REQUIREMENT,),
    ranks=(Rank("*", 50, "the process-group backend that torch_npu registers"),),
)


class Hccl(ProcessGroup):
    """See `rlt_hw.backends.communication.interface.Communication`."""

    torch_backend = "hccl"
