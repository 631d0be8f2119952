"""Cache slots copied on the device's own decision: the planes that an early exit left unwritten."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def copy_slots_kernel(
    cache,  # [layers, slots, WIDTH]
    source,  # int64 [rows]
    target,  # int64 [rows, copies], below 0: nothing is copied
    layer_stride,
    copies,
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """One slot of one layer a program."""
    copy, layer = tl.program_id(0), tl.program_id(1).to(tl.int64)
    to = tl.load(target + copy)
    if to < 0:
        return
    base = cache + layer * layer_stride
    origin = tl.load(source + copy // copies)
    for start in range(0, WIDTH, BLOCK):
        c = start + tl.arange(0, BLOCK)
        value = tl.load(base + origin * WIDTH + c, mask=c < WIDTH)
        tl.store(base + to * WIDTH + c, value, mask=c < WIDTH)
