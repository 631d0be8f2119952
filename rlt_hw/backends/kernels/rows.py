"""What happens to decode rows around a loop's layers, in one kernel each; see `operators.rows`."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def board_kernel(
    position,  # int64 [rows], as all that follow
    loop,
    active,
    plane_of_loop,  # int64 [loops]
    lens,  # out int32 [rows]
    planes,  # out int32 [rows]
    rows,
    BLOCK: tl.constexpr,
):
    """How far each row attends, and which plane its loop has."""
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = row < rows
    length = (tl.load(position + row, mask=mask, other=0) + 1) * tl.load(active + row, mask=mask, other=0)
    tl.store(lens + row, length.to(tl.int32), mask=mask)
    plane = tl.load(plane_of_loop + tl.load(loop + row, mask=mask, other=0), mask=mask, other=0)
    tl.store(planes + row, plane.to(tl.int32), mask=mask)


@triton.jit
def leave_kernel(
    position,
    loop,
    active,
    limit,
    min_loops,
    gate_from,
    by_rule,  # bool [rows], read with RULE
    exited,  # out int64 [rows]
    ran,  # out int64 [rows]
    rows,
    RULE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = row < rows
    now = tl.load(loop + row, mask=mask, other=0) + 1
    leaves = now >= tl.load(limit + row, mask=mask, other=0)
    if RULE:
        gated = tl.load(position + row, mask=mask, other=0) >= tl.load(gate_from + row, mask=mask, other=0)
        enough = now >= tl.load(min_loops + row, mask=mask, other=0)
        leaves = leaves | ((tl.load(by_rule + row, mask=mask, other=0) != 0) & gated & enough)
    tl.store(exited + row, tl.load(active + row, mask=mask, other=0) * leaves.to(tl.int64), mask=mask)
    tl.store(ran + row, now, mask=mask)


@triton.jit
def advance_kernel(
    new_token,  # int64 [rows]
    bad,  # bool [rows]
    exited,
    ran,
    result,  # out int64 [4, rows]: token, loops, exited, bad
    token,
    position,
    loop,
    active,
    last,
    rows,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = row < rows
    chosen = tl.load(new_token + row, mask=mask, other=0)
    depth = tl.load(ran + row, mask=mask, other=0)
    left = tl.load(exited + row, mask=mask, other=0)
    tl.store(result + row, chosen, mask=mask)
    tl.store(result + rows + row, depth, mask=mask)
    tl.store(result + 2 * rows + row, left, mask=mask)
    tl.store(result + 3 * rows + row, (tl.load(bad + row, mask=mask, other=0) != 0).to(tl.int64), mask=mask)
    at = tl.load(position + row, mask=mask, other=0) + left
    alive = tl.load(active + row, mask=mask, other=0)
    tl.store(token + row, chosen, mask=mask & (left > 0))
    tl.store(position + row, at, mask=mask)
    tl.store(loop + row, tl.where(left > 0, 0, depth) * alive, mask=mask)
    tl.store(active + row, tl.where(at < tl.load(last + row, mask=mask, other=0), alive, 0), mask=mask)


@triton.jit
def best_kernel(
    logits,  # float32 [rows, N]
    peaks,  # out float32 [rows, chunks], NaN as infinity
    places,  # out int64 [rows, chunks]
    stride,
    N,
    BLOCK: tl.constexpr,
):
    """The largest logit of one chunk of a row, the first of equals."""
    row, chunk = tl.program_id(0).to(tl.int64), tl.program_id(1)
    c = chunk * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(logits + row * stride + c, mask=c < N, other=float("-inf"))
    value = tl.where(value <= float("inf"), value, float("inf"))
    peak, place = tl.max(value, 0, return_indices=True)
    at = row * tl.num_programs(1) + chunk
    tl.store(peaks + at, peak)
    tl.store(places + at, (chunk * BLOCK + place).to(tl.int64))


@triton.jit
def best_of_chunks_kernel(
    peaks,  # float32 [rows, chunks]
    places,  # int64 [rows, chunks]
    token,  # out int64 [rows]
    bad,  # out bool [rows]: the largest is not finite
    chunks,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, BLOCK)
    value = tl.load(peaks + row * chunks + c, mask=c < chunks, other=float("-inf"))
    peak, place = tl.max(value, 0, return_indices=True)
    tl.store(token + row, tl.load(places + row * chunks + place))
    tl.store(bad + row, (peak == float("inf")) | (peak == float("-inf")))


@triton.jit
def uniform_kernel(
    seed,  # int64 [rows], the bits of a uint64
    position,  # int64 [rows]
    out,  # out float32 [rows]
    rows,
    BLOCK: tl.constexpr,
):
    """See `rlt_hw.philox.uniform`, for the position after each row's, rounded to float32."""
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = row < rows
    at = tl.load(position + row, mask=mask, other=0) + 1
    key = tl.load(seed + row, mask=mask, other=0)
    low, high = at.to(tl.int32), (at >> 32).to(tl.int32)
    first, second, _, _ = tl.philox(key, low, high, low * 0, low * 0)
    bits = (first.to(tl.uint32, bitcast=True).to(tl.int64) << 20) | (
        second.to(tl.uint32, bitcast=True).to(tl.int64) >> 12
    )
    value = (bits.to(tl.float64) + 0.5) / 4503599627370496.0
    tl.store(out + row, value.to(tl.float32), mask=mask)


@triton.jit
def fill_kernel(
    keys,  # [layers, slots, WIDTH]
    values,
    exited,
    ran,
    depth,
    position,
    page_table,  # int32 [rows, pages]
    plane_of_loop,  # int64 [loops]
    newest,  # int64 [loops]
    layer_stride,
    table_stride,
    plane_slots,
    PAGE: tl.constexpr,
    COPIES: tl.constexpr,
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """One plane of one layer of a row a program: COPIES planes above the one that was written last."""
    row, copy = tl.program_id(0) // COPIES, tl.program_id(0) % COPIES
    if tl.load(exited + row) == 0:
        return
    loop = tl.load(ran + row) - 1
    plane = tl.load(newest + loop) + 1 + copy
    if plane > tl.load(newest + tl.maximum(tl.load(depth + row), 1) - 1):
        return
    at = tl.load(position + row)
    page = tl.load(page_table + row.to(tl.int64) * table_stride + at // PAGE).to(tl.int64)
    slot = page * PAGE + at % PAGE
    layer = tl.program_id(1).to(tl.int64) * layer_stride
    origin = layer + (tl.load(plane_of_loop + loop) * plane_slots + slot) * WIDTH
    target = layer + (plane * plane_slots + slot) * WIDTH
    for start in range(0, WIDTH, BLOCK):
        c = start + tl.arange(0, BLOCK)
        inside = c < WIDTH
        tl.store(keys + target + c, tl.load(keys + origin + c, mask=inside), mask=inside)
        tl.store(values + target + c, tl.load(values + origin + c, mask=inside), mask=inside)
