"""Norm, rotation and cache write of new tokens, for the paths where attention does not do it itself."""

from __future__ import annotations

import triton
import triton.language as tl

from rlt_hw.backends.kernels.paged_attention import rotated, shared


@triton.jit
def rotate_write_kernel(
    qkv,  # [tokens, heads + 2 kv_heads, DIM], or float32 [SHARES, tokens, ..] to be added up
    query,  # out [tokens, heads, DIM]
    keys,  # out [slots, kv_heads, DIM]
    values,
    slots,  # int64 [tokens], below 0: nothing is written
    cosines,  # [tokens, DIM / 2]
    sines,
    query_bias,  # [heads, DIM]
    key_bias,  # [kv_heads, DIM]
    query_norm,  # [DIM]
    key_norm,  # [DIM]
    eps,
    share_stride,
    SHARES: tl.constexpr,
    HEADS: tl.constexpr,
    KV_HEADS: tl.constexpr,
    DIM: tl.constexpr,
    BLOCK_H: tl.constexpr,
    BLOCK_D: tl.constexpr,
    INTERLEAVED: tl.constexpr,
    BIAS: tl.constexpr,
    NORM: tl.constexpr,
):
    """BLOCK_H heads of one token a program: query heads, or key heads with their value heads."""
    token, block = tl.program_id(0).to(tl.int64), tl.program_id(1)
    query_blocks: tl.constexpr = (HEADS + BLOCK_H - 1) // BLOCK_H
    h = tl.arange(0, BLOCK_H)[:, None]
    d = tl.arange(0, BLOCK_D)[None, :]
    dtype: tl.constexpr = query.dtype.element_ty
    x = qkv + token * (HEADS + 2 * KV_HEADS) * DIM
    cosine, sine = cosines + token * (DIM // 2), sines + token * (DIM // 2)
    if block < query_blocks:
        head = block * BLOCK_H + h
        inside = (head < HEADS) & (d < DIM)
        value = rotated(
            x, cosine, sine, query_bias, query_norm, head * DIM, d, inside, eps, share_stride, SHARES, dtype,
            DIM, INTERLEAVED, BIAS, NORM,
        )  # fmt: skip
        tl.store(query + (token * HEADS + head) * DIM + d, value.to(query.dtype.element_ty), mask=inside)
    else:
        head = (block - query_blocks) * BLOCK_H + h
        inside = (head < KV_HEADS) & (d < DIM)
        slot = tl.load(slots + token)
        place = (slot * KV_HEADS + head) * DIM + d
        write = inside & (slot >= 0)
        x += HEADS * DIM
        key = rotated(
            x, cosine, sine, key_bias, key_norm, head * DIM, d, inside, eps, share_stride, SHARES, dtype,
            DIM, INTERLEAVED, BIAS, NORM,
        )  # fmt: skip
        tl.store(keys + place, key.to(keys.dtype.element_ty), mask=write)
        value = shared(x + (KV_HEADS + head) * DIM + d, inside, share_stride, SHARES, dtype)
        tl.store(values + place, value.to(values.dtype.element_ty), mask=write)
