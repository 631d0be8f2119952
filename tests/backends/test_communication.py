"""Collectives: alone, and between two processes over gloo."""

from __future__ import annotations

import socket
from dataclasses import replace

import pytest
import torch
import torch.multiprocessing as mp

from rlt_hw.backends.communication.gloo import Gloo
from rlt_hw.backends.communication.interface import Communication, World
from rlt_hw.backends.communication.local import Local

CPU = torch.device("cpu")


def exchange(group: Communication) -> None:
    """Every collective, checked against its definition for any number of ranks."""
    rank, size = group.world.rank, group.world.size
    for dtype in (torch.float32, torch.bfloat16, torch.int64):
        summed = torch.full((4,), rank + 1, dtype=dtype)
        group.all_reduce(summed)
        assert summed.tolist() == [size * (size + 1) / 2] * 4
    gathered = torch.empty(2 * size, 3)
    group.all_gather(torch.full((2, 3), float(rank)), gathered)
    assert gathered[:, 0].tolist() == [float(r) for r in range(size) for _ in range(2)]
    sent = torch.arange(5) if rank == 0 else torch.zeros(5, dtype=torch.int64)
    group.broadcast(sent)
    assert sent.tolist() == [0, 1, 2, 3, 4]
    group.barrier()
    group.close()


def test_a_world_of_one():
    exchange(Local(World(), CPU))


def run_rank(rank: int, world: World) -> None:
    exchange(Gloo(replace(world, rank=rank), CPU))


@pytest.mark.slow
def test_two_processes():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{free.getsockname()[1]}"
    mp.spawn(run_rank, (World(size=2, address=address, timeout_s=60),), nprocs=2)
