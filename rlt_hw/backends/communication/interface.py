"""What a communication backend does: collectives among the processes of one engine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class World:
    """Who takes part. address: where rank 0 listens, "tcp://127.0.0.1:29500". timeout_s: of a collective."""

    rank: int = 0
    size: int = 1
    address: str = ""
    timeout_s: float = 600.0


class Communication(Protocol):
    """One communication backend. Every rank calls the same collectives in the same order."""

    world: World

    def __init__(self, world: World, device: torch.device) -> None: ...

    def all_reduce(self, tensor: torch.Tensor) -> None:
        """Sum over ranks, in place."""

    def all_gather(self, tensor: torch.Tensor, out: torch.Tensor) -> None:
        """Write every rank's tensor to `out` [size * n, ...], in rank order; `tensor` is [n, ...]."""

    def broadcast(self, tensor: torch.Tensor, source: int = 0) -> None:
        """Overwrite `tensor` with that of rank `source`."""

    def barrier(self) -> None:
        """Return once every rank has arrived."""

    def close(self) -> None:
        """Leave the group."""
