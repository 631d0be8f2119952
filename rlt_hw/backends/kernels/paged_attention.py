"""Attention over paged KV in Triton, one source for NVIDIA and AMD.

Valid on Triton 3.6 to 3.9: no autotune, block pointers, inline assembly or libdevice. bfloat16 is only
loaded, stored and given to `tl.dot`; all other arithmetic is float32. Slots that hold no token of a
row are masked on load, so nothing they contain can reach a result. Offsets into the cache are int64.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _slots(table, positions, mask, PAGE: tl.constexpr):
    """Flat cache slots (int64) of a row's positions. table: the row's page ids."""
    pages = tl.load(table + positions // PAGE, mask=mask, other=0).to(tl.int64)
    return pages * PAGE + positions % PAGE


@triton.jit
def decode_kernel(
    query,  # [rows, heads, dim]
    keys,  # [slots, kv_heads, dim]
    values,
    page_table,  # int32 [rows, pages]
    seq_lens,  # int32 [rows]
    out,  # [rows, heads, dim]; with SPLITS > 1 float32 [rows, heads, SPLITS, dim]
    lse,  # float32 [rows, heads, SPLITS], only written with SPLITS > 1
    scale,
    query_stride,
    out_stride,
    table_stride,
    KV_HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    DIM: tl.constexpr,
    PAGE: tl.constexpr,
    SPLITS: tl.constexpr,
    BLOCK_H: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr,
):
    """One query token a row. A program takes the query heads of one KV head and one share of the context."""
    row, kv_head, split = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    length = tl.load(seq_lens + row)
    share = tl.cdiv(tl.cdiv(length, SPLITS), BLOCK_N) * BLOCK_N
    first = split * share
    last = tl.minimum(first + share, length)

    d = tl.arange(0, BLOCK_D)
    n = tl.arange(0, BLOCK_N)
    h = tl.arange(0, BLOCK_H)
    head = kv_head * GROUP + h
    head_mask = (h < GROUP)[:, None] & (d < DIM)[None, :]
    q = tl.load(
        query + row.to(tl.int64) * query_stride + head[:, None] * DIM + d[None, :], mask=head_mask, other=0.0
    )
    table = page_table + row.to(tl.int64) * table_stride
    peak = tl.full([BLOCK_H], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK_H], tl.float32)
    acc = tl.zeros([BLOCK_H, BLOCK_D], tl.float32)
    for start in range(first, last, BLOCK_N):
        inside = start + n < last
        slot = _slots(table, start + n, inside, PAGE)
        offset = (slot * KV_HEADS + kv_head)[:, None] * DIM + d[None, :]
        mask = inside[:, None] & (d < DIM)[None, :]
        k = tl.load(keys + offset, mask=mask, other=0.0)
        v = tl.load(values + offset, mask=mask, other=0.0)
        scores = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
        scores = tl.where(inside[None, :], scores, float("-inf"))
        new_peak = tl.maximum(peak, tl.max(scores, 1))
        weights = tl.exp(scores - new_peak[:, None])
        fade = tl.exp(peak - new_peak)
        total = total * fade + tl.sum(weights, 1)
        acc = acc * fade[:, None] + tl.dot(weights.to(v.dtype), v, input_precision="ieee")
        peak = new_peak

    acc = acc / tl.where(total > 0, total, 1.0)[:, None]
    if SPLITS == 1:
        target = out + row.to(tl.int64) * out_stride + head[:, None] * DIM + d[None, :]
        tl.store(target, acc.to(out.dtype.element_ty), mask=head_mask)
    else:
        part = (row.to(tl.int64) * KV_HEADS * GROUP + head) * SPLITS + split
        tl.store(out + part[:, None] * DIM + d[None, :], acc, mask=head_mask)
        tl.store(lse + part, peak + tl.log(total), mask=h < GROUP)


@triton.jit
def combine_kernel(
    parts,  # float32 [rows, heads, SPLITS, dim]
    lse,  # float32 [rows, heads, SPLITS]
    out,  # [rows, heads, dim]
    out_stride,
    HEADS: tl.constexpr,
    DIM: tl.constexpr,
    SPLITS: tl.constexpr,
    BLOCK_D: tl.constexpr,
):
    """Joins the shares of a row's context, weighted by their softmax sums."""
    row, head = tl.program_id(0), tl.program_id(1)
    d = tl.arange(0, BLOCK_D)
    s = tl.arange(0, SPLITS)
    first = (row.to(tl.int64) * HEADS + head) * SPLITS
    sums = tl.load(lse + first + s)
    peak = tl.max(sums, 0)
    weights = tl.where(sums > float("-inf"), tl.exp(sums - peak), 0.0)
    mask = (weights > 0)[:, None] & (d < DIM)[None, :]
    part = tl.load(parts + (first + s)[:, None] * DIM + d[None, :], mask=mask, other=0.0)
    total = tl.sum(weights, 0)
    joined = tl.sum(part * weights[:, None], 0) / tl.where(total > 0, total, 1.0)
    target = out + row.to(tl.int64) * out_stride + head * DIM + d
    tl.store(target, joined.to(out.dtype.element_ty), mask=d < DIM)


@triton.jit
def prefill_kernel(
    query,  # [tokens, heads, dim]
    keys,  # [slots, kv_heads, dim]
    values,
    query_start,  # int32 [rows + 1]
    page_table,  # int32 [rows, pages]
    seq_lens,  # int32 [rows]
    out,  # [tokens, heads, dim]
    scale,
    query_stride,
    out_stride,
    table_stride,
    KV_HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    DIM: tl.constexpr,
    PAGE: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr,
):
    """Causal, the query aligned to the right end of its context. A program takes BLOCK_M tokens of a row
    and one query head; the longest blocks come first."""
    row, head = tl.program_id(1), tl.program_id(2)
    block = tl.num_programs(0) - 1 - tl.program_id(0)
    begin = tl.load(query_start + row)
    count = tl.load(query_start + row + 1) - begin
    if block * BLOCK_M >= count:
        return
    length = tl.load(seq_lens + row)
    context = length - count

    d = tl.arange(0, BLOCK_D)
    n = tl.arange(0, BLOCK_N)
    m = block * BLOCK_M + tl.arange(0, BLOCK_M)
    token = (begin + m).to(tl.int64)
    token_mask = (m < count)[:, None] & (d < DIM)[None, :]
    q = tl.load(query + token[:, None] * query_stride + head * DIM + d[None, :], mask=token_mask, other=0.0)
    table = page_table + row.to(tl.int64) * table_stride
    kv_head = head // GROUP
    peak = tl.full([BLOCK_M], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK_M], tl.float32)
    acc = tl.zeros([BLOCK_M, BLOCK_D], tl.float32)
    last = tl.minimum(context + (block + 1) * BLOCK_M, length)
    for start in range(0, last, BLOCK_N):
        inside = start + n < last
        slot = _slots(table, start + n, inside, PAGE)
        offset = (slot * KV_HEADS + kv_head)[:, None] * DIM + d[None, :]
        mask = inside[:, None] & (d < DIM)[None, :]
        k = tl.load(keys + offset, mask=mask, other=0.0)
        v = tl.load(values + offset, mask=mask, other=0.0)
        scores = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
        seen = inside[None, :] & ((start + n)[None, :] <= (context + m)[:, None])
        scores = tl.where(seen, scores, float("-inf"))
        new_peak = tl.maximum(peak, tl.max(scores, 1))
        weights = tl.exp(scores - new_peak[:, None])
        fade = tl.exp(peak - new_peak)
        total = total * fade + tl.sum(weights, 1)
        acc = acc * fade[:, None] + tl.dot(weights.to(v.dtype), v, input_precision="ieee")
        peak = new_peak
    acc = acc / total[:, None]
    target = out + token[:, None] * out_stride + head * DIM + d[None, :]
    tl.store(target, acc.to(out.dtype.element_ty), mask=token_mask)
