"""Tile shapes of the attention kernels by target, as data. Read on the host, never searched at run time."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class PrefillTiles:
    """block_m: query tokens a program; block_n: context tokens a step; warps and stages of the launch."""

    block_m: int = 64
    block_n: int = 64
    warps: int = 4
    stages: int = 2


@dataclass(frozen=True)
class DecodeTiles:
    """block_n: context tokens a step. splits: shares of a row's context, a power of two.

    early: the first block is loaded before the kernel in front has ended, which costs registers.
    """

    block_n: int = 64
    warps: int = 4
    stages: int = 2
    splits: int = 1
    early: bool = True


@dataclass(frozen=True)
class Operands:
    """What tiles follow from. itemsize: of an operand, in bytes. hip: an AMD device."""

    head_dim: int
    itemsize: int
    warp_size: int = 32
    hip: bool = False

    @property
    def large(self) -> bool:
        """Whether tiles of 64 by head_dim would not fit: float32, and head sizes above 128."""
        return self.itemsize > 2 or self.head_dim > 128

    @property
    def wave32(self) -> bool:
        """AMD cards on which smaller tiles and more warps avoid register spills."""
        return self.hip and self.warp_size == 32


DECODE_PROGRAMS = 512
"""Programs of one decode launch at which splitting the context further gains nothing (H200, 1,024 tokens)."""
MAX_SPLITS = 32
INVARIANT_SPLITS = 8
"""Shares of every row in the batch-invariant mode."""
INVARIANT_ROWS = 1
"""The batch whose tiles every batch uses in that mode."""


def prefill_tiles(operands: Operands) -> PrefillTiles:
    if operands.large:
        return PrefillTiles(block_m=32, block_n=32, warps=8, stages=1)
    if operands.wave32:
        return PrefillTiles(block_n=32, warps=8, stages=1)
    return PrefillTiles() if operands.hip else PrefillTiles(block_m=128, warps=8)


def decode_tiles(operands: Operands, rows: int, kv_heads: int) -> DecodeTiles:
    """Measured on an H200 with 16 heads of 128: one, 32 and 128 rows of 1,024 tokens."""
    programs = max(rows * kv_heads, 1)
    splits = min(1 << (max(DECODE_PROGRAMS // programs, 1).bit_length() - 1), MAX_SPLITS)
    if operands.wave32:
        return DecodeTiles(block_n=32, warps=8, splits=splits)
    if operands.large:
        return DecodeTiles(block_n=32, splits=splits)
    if programs >= 1024:
        return DecodeTiles(block_n=32, warps=1, early=False)
    return DecodeTiles(warps=2, splits=splits)


def invariant_decode_tiles(operands: Operands, kv_heads: int) -> DecodeTiles:
    """One shape for every batch."""
    return replace(decode_tiles(operands, INVARIANT_ROWS, kv_heads), splits=INVARIANT_SPLITS)
