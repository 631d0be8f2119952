"""Tile shapes of the attention kernels by target, as data. Read on the host, never searched at run time."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Tiles:
    """block_n: context tokens a step; block_m: query tokens a program (prefill); warps and stages of the
    launch. programs: decode programs wanted in all, from which the number of context shares follows."""

    decode_block_n: int = 64
    decode_warps: int = 4
    decode_stages: int = 3
    prefill_block_m: int = 64
    prefill_block_n: int = 64
    prefill_warps: int = 4
    prefill_stages: int = 2
    programs: int = 1024


WIDE = Tiles()
NARROW = Tiles(decode_block_n=32, decode_stages=2, prefill_block_n=32, prefill_warps=8, prefill_stages=1)
"""For float32 operands and head sizes above 128, whose tiles would not fit."""
WAVE32 = replace(NARROW, decode_warps=8)
"""For wave-32 AMD cards, where smaller tiles and more warps avoid register spills."""
MAX_SPLITS = 64


def tiles_for(*, head_dim: int, itemsize: int, warp_size: int, hip: bool) -> Tiles:
    """head_dim in elements; itemsize of an operand in bytes."""
    if hip and warp_size == 32:
        return WAVE32
    return NARROW if itemsize > 2 or head_dim > 128 else WIDE


def splits_for(rows: int, kv_heads: int, programs: int) -> int:
    """Shares of each row's context: a power of two, so that few variants are compiled."""
    wanted = max(programs // max(rows * kv_heads, 1), 1)
    return min(1 << (wanted.bit_length() - 1), MAX_SPLITS)
