"""Reads memory and does nothing else: what the reading of weights and KV is compared with."""

from __future__ import annotations

import torch
import triton
import triton.language as tl


@triton.jit
def read_kernel(
    source,  # float32 [programs * TURNS * BLOCK]
    out,  # out [programs]
    TURNS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """TURNS blocks a program, the programs' blocks side by side."""
    program, programs = tl.program_id(0).to(tl.int64), tl.num_programs(0).to(tl.int64)
    c = tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], tl.float32)
    for turn in range(TURNS):
        total += tl.load(source + (turn * programs + program) * BLOCK + c)
    tl.store(out + program, tl.sum(total, 0))


def read(source: torch.Tensor, block: int = 4096, turns: int = 16) -> torch.Tensor:
    """The sum of each program's part of a float32 tensor, whose size is a multiple of block * turns."""
    programs = source.numel() // (block * turns)
    out = torch.empty(programs, dtype=torch.float32, device=source.device)
    read_kernel[(programs,)](source, out, TURNS=turns, BLOCK=block, num_warps=8)
    return out
