"""Tile shapes of the product kernels, as data. Read on the host, never searched at run time."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Vector:
    """One row of input. block_n: output rows a program takes at a time; block_k: inputs at a time;
    programs: how many there are, where a program takes several blocks (0: one a block)."""

    block_n: int
    block_k: int
    warps: int = 4
    programs: int = 0


@dataclass(frozen=True)
class Tile:
    """Several rows of input. shares: parts of the reduction. early: blocks of weights loaded early, at most 3
    and at most those of a share."""

    block_n: int
    block_k: int
    shares: int = 1
    warps: int = 4
    stages: int = 4
    early: int = 1

    def shared_memory(self, block_m: int, itemsize: int, *, gated: bool) -> int:
        """Bytes a program needs at most: a block of both operands a stage, and the early ones."""
        rows = self.block_n * (2 if gated else 1) + block_m
        return (self.stages + min(self.early, 1)) * rows * self.block_k * itemsize

    def fitting(self, block_m: int, itemsize: int, limit: int, *, gated: bool) -> Tile:
        """With as many stages, and then as wide a block, as `limit` bytes of shared memory hold."""
        tile = self
        while tile.shared_memory(block_m, itemsize, gated=gated) > limit and tile.block_k > 16:
            if tile.stages > 2:
                tile = replace(tile, stages=tile.stages - 1)
            elif tile.early:
                tile = replace(tile, early=0)
            else:
                tile = replace(tile, block_k=tile.block_k // 2)
        return tile


@dataclass(frozen=True)
class Resources:
    """A device's. shared_memory: bytes a program may have. max_rows: rows of a tile at most."""

    processors: int
    shared_memory: int
    max_rows: int


MAX_PRODUCT_ROWS = 128
"""Above this the matrix rate counts, not the memory's, and the vendor's library is the better choice."""
MAX_WIDE_ROWS = 32
"""The same for products whose output is wide enough to need no shares."""
MAX_SETTLED = 4096
"""Columns up to which a one-row product settles the stream itself; wider rows do not fit in registers."""
PROGRAMS_A_PROCESSOR = 3


def vector_for(n: int, k: int, *, gated: bool, settles: bool, processors: int) -> Vector:
    """n: output rows (of one half where gated), k: inputs. settles: the kernel settles and norms first.

    Measured on an H200 with the shapes of Ouro-1.4B: 3,500 (qkv), 2,770 (out), 3,670 (gate and up) and
    3,610 GB/s (down), where the library's products reach 2,670, 1,330, 3,400 and 1,980.
    """
    if not settles:
        block_k = min(1 << (k - 1).bit_length(), 2048)
        return Vector(4 if n > 16384 else 2, block_k, warps=8 if k > 2048 else 4)
    block_k = 1 << (k - 1).bit_length()
    block_n = max(16384 // block_k // (2 if gated else 1), 1)
    blocks = -(-n // block_n)
    turns = -(-blocks // (processors * PROGRAMS_A_PROCESSOR))
    return Vector(block_n, block_k, programs=-(-blocks // turns))


def tile_for(
    rows: int, n: int, *, gated: bool, shared: bool, itemsize: int, resources: Resources
) -> Tile | None:
    """rows: of the batch. shared: the result may come in shares. None: the library's product is faster.

    Measured on an H200 with the shapes of Ouro-1.4B at 32 and 128 rows.
    """
    if rows > MAX_PRODUCT_ROWS:
        return None
    tiles = -(-n // 64)
    shares = max(resources.processors // tiles, 1) if shared else 1
    if shares == 1 and rows > MAX_WIDE_ROWS:
        return None
    if itemsize > 2:
        tile = Tile(64, 32, shares, stages=2)
    elif gated:
        tile = Tile(64, 128, stages=3, early=2)
    elif shares > 1:
        tile = Tile(64, 128, shares, stages=5 if rows <= MAX_WIDE_ROWS else 4, early=0)
    else:
        tile = Tile(64, 128, stages=5)
    return tile.fitting(block_rows(rows, resources), itemsize, resources.shared_memory, gated=gated)


INVARIANT = Tile(block_n=32, block_k=64)
"""One shape for every batch, so that a row's sums are formed in the same order whatever is beside it."""
INVARIANT_ROWS = 16


def block_rows(rows: int, resources: Resources) -> int:
    """Rows of a tile: a power of two from 16 up."""
    return min(max(1 << (rows - 1).bit_length(), 16), resources.max_rows)
