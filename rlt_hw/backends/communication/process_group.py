"""Collectives through torch.distributed; the vendor backends differ in the name they ask it for."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, ClassVar

from rlt_hw.backends.communication.interface import World

if TYPE_CHECKING:
    import torch


class ProcessGroup:
    """See `rlt_hw.backends.communication.interface.Communication`.

    Owns torch's default process group from construction to `close`, so a process holds one at a time.
    """

    torch_backend: ClassVar[str]

    def __init__(self, world: World, device: torch.device) -> None:
        import torch.distributed as dist

        self.world = world
        dist.init_process_group(
            self.torch_backend,
            init_method=world.address,
            rank=world.rank,
            world_size=world.size,
            timeout=timedelta(seconds=world.timeout_s),
            device_id=None if device.type == "cpu" else device,
        )

    def all_reduce(self, tensor: torch.Tensor) -> None:
        import torch.distributed as dist

        dist.all_reduce(tensor)

    def all_gather(self, tensor: torch.Tensor, out: torch.Tensor) -> None:
        import torch.distributed as dist

        dist.all_gather_into_tensor(out, tensor.contiguous())

    def broadcast(self, tensor: torch.Tensor, source: int = 0) -> None:
        import torch.distributed as dist

        dist.broadcast(tensor, source)

    def barrier(self) -> None:
        import torch.distributed as dist

        dist.barrier()

    def close(self) -> None:
        import torch.distributed as dist

        dist.destroy_process_group()
