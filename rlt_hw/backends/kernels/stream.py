"""The residual stream between two products: pending branch, norm of the branch, norm of the input.

Every kernel that reads a stream settles it the same way, so this is one function for all of them. The
arithmetic is float32; values are rounded to the stream's dtype where plain torch would store them.
"""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

ALONE, PLAIN, INSIDE, AROUND = (tl.constexpr(number) for number in range(4))


@triton.jit
def normalize(value, weight, eps, K: tl.constexpr, dtype: tl.constexpr):
    """value / rms(value), rounded, times weight, rounded. value: float32 [K, padded with zeros]."""
    inverse = 1.0 / tl.sqrt(tl.sum(value * value, 0) / K + eps)
    scaled = (value * inverse).to(dtype).to(tl.float32)
    return (scaled * weight).to(dtype).to(tl.float32)


@triton.jit
def settled(
    hidden,
    branch,
    branch_norm,
    at,
    mask,
    eps,
    K: tl.constexpr,
    SHARES: tl.constexpr,
    share_stride,
    ADD: tl.constexpr,
):
    """The stream's values (float32) at columns `at` of a row, with what is pending added.

    The branch is the sum of SHARES parts, share_stride elements apart.
    ADD: ALONE hidden; PLAIN hidden + branch; INSIDE hidden + norm(branch); AROUND norm(hidden + branch).
    """
    dtype: tl.constexpr = hidden.dtype.element_ty
    value = tl.load(hidden + at, mask=mask, other=0.0).to(tl.float32)
    if ADD != ALONE:
        added = tl.load(branch + at, mask=mask, other=0.0).to(tl.float32)
        for share in tl.static_range(1, SHARES):
            added += tl.load(branch + share * share_stride + at, mask=mask, other=0.0)
        added = added.to(dtype).to(tl.float32)
        if ADD == INSIDE:
            weight = tl.load(branch_norm + at, mask=mask, other=0.0).to(tl.float32)
            added = normalize(added, weight, eps, K, dtype)
        value = (value + added).to(dtype).to(tl.float32)
        if ADD == AROUND:
            weight = tl.load(branch_norm + at, mask=mask, other=0.0).to(tl.float32)
            value = normalize(value, weight, eps, K, dtype)
    return value


@triton.jit
def settle_kernel(
    hidden,  # [rows, K]
    branch,  # [rows, K], or float32 [SHARES, rows, K] to be added up; not read with ADD == ALONE
    branch_norm,  # [K], read with INSIDE and AROUND
    norm,  # [K], read with NORM
    stream,  # out [rows, K], written with WRITE
    normed,  # out [rows, K], written with NORM
    eps,
    K: tl.constexpr,
    SHARES: tl.constexpr,
    BLOCK_K: tl.constexpr,
    ADD: tl.constexpr,
    NORM: tl.constexpr,
    WRITE: tl.constexpr,
    PDL: tl.constexpr,
):
    """One row a program."""
    c = tl.arange(0, BLOCK_K)
    mask = c < K
    offset = tl.program_id(0).to(tl.int64) * K
    if PDL:
        gdc_launch_dependents()
        gdc_wait()
    value = settled(
        hidden + offset,
        branch + offset,
        branch_norm,
        c,
        mask,
        eps,
        K,
        SHARES,
        tl.num_programs(0).to(tl.int64) * K,
        ADD,
    )
    if WRITE:
        tl.store(stream + offset + c, value.to(stream.dtype.element_ty), mask=mask)
    if NORM:
        weight = tl.load(norm + c, mask=mask, other=0.0).to(tl.float32)
        out = normalize(value, weight, eps, K, hidden.dtype.element_ty)
        tl.store(normed + offset + c, out.to(normed.dtype.element_ty), mask=mask)
