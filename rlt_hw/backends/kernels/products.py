"""Matrix products with few rows, which cost what reading the weights costs.

`project_kernel` settles the stream of one row, norms it and multiplies; `gemv_kernel` multiplies one row;
`product_kernel` multiplies up to a few hundred rows with `tl.dot`, the reduction in shares where there are
fewer tiles than processors, which whoever reads the result adds up. With PDL (programmatic dependent
launch, NVIDIA from sm90 on) weights are requested before the kernel waits for the one in front of it.
Nothing a predecessor writes may be read before that wait, and every kernel of a chain waits.
"""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from rlt_hw.backends.kernels.stream import normalize, settled


@triton.jit
def _silu_product(gate, up, dtype: tl.constexpr):
    """silu(gate) * up in float32, rounded to dtype where plain torch rounds."""
    gate, up = gate.to(dtype).to(tl.float32), up.to(dtype).to(tl.float32)
    return (gate / (1.0 + tl.exp(-gate))).to(dtype).to(tl.float32) * up


@triton.jit
def project_kernel(
    hidden,  # [K]
    branch,  # [K]
    branch_norm,  # [K]
    norm,  # [K]
    weight,  # [N, K], with GATED [2 N, K], gate rows first
    stream,  # out [K], the settled stream, written with WRITE
    out,  # out [N]
    N,
    eps,
    K: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    ADD: tl.constexpr,
    WRITE: tl.constexpr,
    GATED: tl.constexpr,
    PDL: tl.constexpr,
):
    """One row: settles the stream, applies the norm and multiplies. A program settles once and takes every
    num_programs-th block of output rows, the next block's weights requested before the last are used."""
    c = tl.arange(0, BLOCK_K)
    inside = c < K
    block = tl.program_id(0)
    n = tl.arange(0, BLOCK_N)
    if PDL:
        gdc_launch_dependents()
    rows = weight + n.to(tl.int64)[:, None] * K + c[None, :]
    half = N.to(tl.int64) * K
    at = block.to(tl.int64) * BLOCK_N * K
    mask = (block * BLOCK_N + n < N)[:, None] & inside[None, :]
    w = tl.load(rows + at, mask=mask, other=0.0)
    if GATED:
        u = tl.load(rows + at + half, mask=mask, other=0.0)
    if PDL:
        gdc_wait()
    x = settled(hidden, branch, branch_norm, c, inside, eps, K, 1, 0, ADD)
    if WRITE:
        if block == 0:
            tl.store(stream + c, x.to(stream.dtype.element_ty), mask=inside)
    scale = tl.load(norm + c, mask=inside, other=0.0).to(tl.float32)
    x = normalize(x, scale, eps, K, hidden.dtype.element_ty)
    stride = tl.num_programs(0)
    for now in range(block, tl.cdiv(N, BLOCK_N), stride):
        at = (now + stride).to(tl.int64) * BLOCK_N * K
        mask = ((now + stride) * BLOCK_N + n < N)[:, None] & inside[None, :]
        next_w = tl.load(rows + at, mask=mask, other=0.0)
        if GATED:
            next_u = tl.load(rows + at + half, mask=mask, other=0.0)
        value = tl.sum(w.to(tl.float32) * x[None, :], 1)
        if GATED:
            value = _silu_product(value, tl.sum(u.to(tl.float32) * x[None, :], 1), hidden.dtype.element_ty)
            u = next_u
        tl.store(out + now * BLOCK_N + n, value.to(out.dtype.element_ty), mask=now * BLOCK_N + n < N)
        w = next_w


@triton.jit
def gemv_kernel(
    x,  # [K]
    weight,  # [N, K]
    out,  # out [N]
    wanted,  # int64 [1], read with WANTED: 0 where nothing need be computed
    N,
    K: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    WANTED: tl.constexpr,
    PDL: tl.constexpr,
):
    """One row times BLOCK_N rows of the weight a program, the next ones requested early."""
    n = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    c = tl.arange(0, BLOCK_K)
    if PDL:
        gdc_launch_dependents()
    if WANTED:
        if PDL:
            gdc_wait()
        if tl.load(wanted) == 0:
            return
    rows = weight + n.to(tl.int64)[:, None] * K + c[None, :]
    inside = (n < N)[:, None]
    w = tl.load(rows, mask=inside & (c < K)[None, :], other=0.0)
    if PDL and not WANTED:
        gdc_wait()
    acc = tl.zeros([BLOCK_N], tl.float32)
    for start in tl.static_range(0, K, BLOCK_K):
        if start + BLOCK_K < K:
            mask = inside & (start + BLOCK_K + c < K)[None, :]
            next_w = tl.load(rows + start + BLOCK_K, mask=mask, other=0.0)
        values = tl.load(x + start + c, mask=start + c < K, other=0.0).to(tl.float32)
        acc += tl.sum(w.to(tl.float32) * values[None, :], 1)
        if start + BLOCK_K < K:
            w = next_w
    tl.store(out + n, acc.to(out.dtype.element_ty), mask=n < N)


@triton.jit
def product_kernel(
    x,  # [M, K]
    weight,  # [N, K], with GATED [2 N, K], gate rows first
    out,  # out [M, N]; with SHARES > 1 float32 [SHARES, M, N], whose sum over the shares is the product
    wanted,  # int64 [M], read with WANTED: a tile whose rows all have 0 is not computed
    M,
    N,
    x_stride,
    K: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    SHARES: tl.constexpr,
    GATED: tl.constexpr,
    WANTED: tl.constexpr,
    EARLY: tl.constexpr,
    PDL: tl.constexpr,
):
    """A tile of the output and one share of the reduction a program. The weights are the left operand, so
    that their rows fill the matrix unit. EARLY: blocks of weights requested before the wait, 0 to 3."""
    tile_n, share, tile_m = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    n = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
    m = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
    k = tl.arange(0, BLOCK_K)
    steps: tl.constexpr = ((K + BLOCK_K - 1) // BLOCK_K + SHARES - 1) // SHARES
    begin = share * steps * BLOCK_K
    if PDL:
        gdc_launch_dependents()
    inside_n, inside_m = (n < N)[:, None], (m < M)[:, None]
    first = weight + n.to(tl.int64)[:, None] * K + k[None, :]
    second = first + N.to(tl.int64) * K
    rows = x + m.to(tl.int64)[:, None] * x_stride + k[None, :]
    acc = tl.zeros([BLOCK_N, BLOCK_M], tl.float32)
    gated = tl.zeros([BLOCK_N, BLOCK_M], tl.float32)
    if EARLY > 0:
        w_0 = tl.load(first + begin, mask=inside_n & (begin + k < K)[None, :], other=0.0)
        if GATED:
            u_0 = tl.load(second + begin, mask=inside_n & (begin + k < K)[None, :], other=0.0)
    if EARLY > 1:
        at = begin + BLOCK_K
        w_1 = tl.load(first + at, mask=inside_n & (at + k < K)[None, :], other=0.0)
        if GATED:
            u_1 = tl.load(second + at, mask=inside_n & (at + k < K)[None, :], other=0.0)
    if EARLY > 2:
        at = begin + 2 * BLOCK_K
        w_2 = tl.load(first + at, mask=inside_n & (at + k < K)[None, :], other=0.0)
        if GATED:
            u_2 = tl.load(second + at, mask=inside_n & (at + k < K)[None, :], other=0.0)
    if PDL:
        gdc_wait()
    if WANTED:
        if tl.max(tl.load(wanted + m, mask=m < M, other=0), 0) == 0:
            return
    for turn in tl.static_range(EARLY):
        at = begin + turn * BLOCK_K
        right = tl.trans(tl.load(rows + at, mask=inside_m & (at + k < K)[None, :], other=0.0))
        acc = tl.dot(w_0 if turn == 0 else (w_1 if turn == 1 else w_2), right, acc, input_precision="ieee")
        if GATED:
            gated = tl.dot(
                u_0 if turn == 0 else (u_1 if turn == 1 else u_2), right, gated, input_precision="ieee"
            )
    for start in range(begin + EARLY * BLOCK_K, begin + steps * BLOCK_K, BLOCK_K):
        mask = (start + k < K)[None, :]
        right = tl.trans(tl.load(rows + start, mask=inside_m & mask, other=0.0))
        left = tl.load(first + start, mask=inside_n & mask, other=0.0)
        acc = tl.dot(left, right, acc, input_precision="ieee")
        if GATED:
            left = tl.load(second + start, mask=inside_n & mask, other=0.0)
            gated = tl.dot(left, right, gated, input_precision="ieee")
    if GATED:
        acc = _silu_product(acc, gated, x.dtype.element_ty)
    place = (share.to(tl.int64) * M + m)[None, :] * N + n[:, None]
    tl.store(out + place, acc.to(out.dtype.element_ty), mask=(n < N)[:, None] & (m < M)[None, :])


@triton.jit
def silu_product_kernel(
    gate_up,  # [rows, 2 N], gates first
    out,  # out [rows, N]
    N,
    BLOCK_N: tl.constexpr,
):
    """silu(gate) * up, a block of a row a program."""
    n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    row = tl.program_id(0).to(tl.int64)
    gate = tl.load(gate_up + row * 2 * N + n, mask=n < N, other=0.0).to(tl.float32)
    up = tl.load(gate_up + row * 2 * N + N + n, mask=n < N, other=0.0).to(tl.float32)
    value = _silu_product(gate, up, out.dtype.element_ty)
    tl.store(out + row * N + n, value.to(out.dtype.element_ty), mask=n < N)
