"""Attention over paged KV in Triton, one source for NVIDIA and AMD.

Valid on Triton 3.6 to 3.9: no autotune, block pointers, inline assembly or libdevice. bfloat16 is only
loaded, stored and given to `tl.dot`; all other arithmetic is float32. Slots that hold no token of a
row are masked on load, so nothing they contain can reach a result. Offsets into the cache are int64.
"""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait


@triton.jit
def _slots(table, positions, mask, PAGE: tl.constexpr):
    """Flat cache slots (int64) of a row's positions. table: the row's page ids. mask: None for all."""
    if mask is None:
        pages = tl.load(table + positions // PAGE).to(tl.int64)
    else:
        pages = tl.load(table + positions // PAGE, mask=mask, other=0).to(tl.int64)
    return pages * PAGE + positions % PAGE


@triton.jit
def shared(place, mask, share_stride, SHARES: tl.constexpr, dtype: tl.constexpr):
    """A value that comes as SHARES parts to be added up, rounded to dtype; float32."""
    value = tl.load(place, mask=mask, other=0.0).to(tl.float32)
    for share in tl.static_range(1, SHARES):
        value += tl.load(place + share * share_stride, mask=mask, other=0.0)
    return value.to(dtype).to(tl.float32)


@triton.jit
def rotated(
    x,  # [.., DIM] of one token, from its head on
    cosine,  # [DIM / 2] of the token
    sine,
    bias,  # [DIM], added first, with BIAS
    norm,  # [DIM], weight of an RMS norm over the head, with NORM
    at,  # offsets into x and bias, broadcastable with d
    d,
    mask,
    eps,
    share_stride,
    SHARES: tl.constexpr,
    dtype: tl.constexpr,
    DIM: tl.constexpr,
    INTERLEAVED: tl.constexpr,
    BIAS: tl.constexpr,
    NORM: tl.constexpr,
):
    """Elements d of a head with bias, norm and rotary embedding applied, rounded to dtype; float32.

    Each element needs its partner in the rotated pair, which is loaded beside it.
    """
    if INTERLEAVED:
        partner = d ^ 1
        angle = d // 2
        sign = tl.where(d % 2 == 0, -1.0, 1.0)
    else:
        partner = tl.where(d < DIM // 2, d + DIM // 2, d - DIM // 2)
        angle = tl.where(d < DIM // 2, d, d - DIM // 2)
        sign = tl.where(d < DIM // 2, -1.0, 1.0)
    own = shared(x + at + d, mask, share_stride, SHARES, dtype)
    other = shared(x + at + partner, mask, share_stride, SHARES, dtype)
    if BIAS:
        own += tl.load(bias + at + d, mask=mask, other=0.0).to(tl.float32)
        other += tl.load(bias + at + partner, mask=mask, other=0.0).to(tl.float32)
        own, other = own.to(dtype).to(tl.float32), other.to(dtype).to(tl.float32)
    if NORM:
        axis: tl.constexpr = len(own.shape) - 1
        inverse = 1.0 / tl.sqrt(tl.sum(own * own, axis, keep_dims=True) / DIM + eps)
        own = (own * inverse).to(dtype).to(tl.float32) * tl.load(norm + d, mask=d < DIM, other=0.0).to(
            tl.float32
        )
        weight = tl.load(norm + partner, mask=d < DIM, other=0.0).to(tl.float32)
        other = (other * inverse).to(dtype).to(tl.float32) * weight
        own, other = own.to(dtype).to(tl.float32), other.to(dtype).to(tl.float32)
    cos = tl.load(cosine + angle, mask=d < DIM, other=0.0).to(tl.float32)
    sin = tl.load(sine + angle, mask=d < DIM, other=0.0).to(tl.float32)
    return (own * cos + other * sin * sign).to(dtype).to(tl.float32)


@triton.jit
def decode_kernel(
    query,  # [rows, heads, DIM]; with FUSED query, key and value, [rows, heads + 2 kv_heads, DIM],
    #         or float32 [SHARES, rows, ..] to be added up
    keys,  # [slots, kv_heads, DIM]
    values,
    page_table,  # int32 [rows, pages]
    planes,  # int32 [rows], added to a row's page ids in units of plane_pages
    seq_lens,  # int32 [rows], new token included; 0: the row is empty and gives zeros
    out,  # out [rows, heads, DIM]
    parts,  # float32 [rows, heads, SPLITS, DIM], used with SPLITS > 1
    sums,  # float32 [rows, heads, SPLITS], log2 of softmax sums, used with SPLITS > 1
    arrived,  # int32 [rows, kv_heads], zero before and after, used with SPLITS > 1
    cosines,  # [rows, DIM / 2], these five with FUSED
    sines,
    query_bias,  # [heads, DIM]
    key_bias,  # [kv_heads, DIM]
    query_norm,  # [DIM]
    key_norm,  # [DIM]
    scale,
    eps,
    plane_pages,
    query_stride,
    share_stride,
    out_stride,
    table_stride,
    KV_HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    DIM: tl.constexpr,
    PAGE: tl.constexpr,
    SHARES: tl.constexpr,
    SPLITS: tl.constexpr,
    BLOCK_H: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr,
    FUSED: tl.constexpr,
    INTERLEAVED: tl.constexpr,
    BIAS: tl.constexpr,
    NORM: tl.constexpr,
    EARLY: tl.constexpr,
    PDL: tl.constexpr,
):
    """One query token a row. A program takes the query heads of one KV head and one share of the context.

    FUSED: query and key are normed and rotated here, and the new token's key and value are written to the
    cache; what is read from the cache are the tokens before it, so with EARLY the first block is requested
    before the kernel in front has ended. The last share of a head to arrive joins all of them, in order.
    """
    row, kv_head, split = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    if PDL:
        gdc_launch_dependents()
    length = tl.load(seq_lens + row)
    past = tl.maximum(length - 1, 0) if FUSED else length
    share = tl.cdiv(tl.cdiv(past, SPLITS), BLOCK_N) * BLOCK_N
    shares = tl.maximum(tl.cdiv(past, tl.maximum(share, 1)), 1)
    first = split * share
    last = tl.minimum(first + share, past)

    d = tl.arange(0, BLOCK_D)
    n = tl.arange(0, BLOCK_N)
    h = tl.arange(0, BLOCK_H)
    head = kv_head * GROUP + h
    head_mask = (h < GROUP)[:, None] & (d < DIM)[None, :]
    table = page_table + row.to(tl.int64) * table_stride
    shift = tl.load(planes + row).to(tl.int64) * plane_pages * PAGE

    if EARLY:
        inside = first + n < last
        slot = shift + _slots(table, first + n, inside, PAGE)
        offset = (slot * KV_HEADS + kv_head)[:, None] * DIM + d[None, :]
        mask = inside[:, None] & (d < DIM)[None, :]
        k = tl.load(keys + offset, mask=mask, other=0.0)
        v = tl.load(values + offset, mask=mask, other=0.0)
    if PDL:
        gdc_wait()

    token = query + row.to(tl.int64) * query_stride
    peak = tl.full([BLOCK_H], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK_H], tl.float32)
    acc = tl.zeros([BLOCK_H, BLOCK_D], tl.float32)
    dtype: tl.constexpr = out.dtype.element_ty
    if FUSED:
        cosine, sine = cosines + row * (DIM // 2), sines + row * (DIM // 2)
        q = rotated(
            token, cosine, sine, query_bias, query_norm, head[:, None] * DIM, d[None, :], head_mask, eps,
            share_stride, SHARES, dtype, DIM, INTERLEAVED, BIAS, NORM,
        )  # fmt: skip
        if split == 0:
            new_key = rotated(
                token + KV_HEADS * GROUP * DIM, cosine, sine, key_bias, key_norm, kv_head * DIM, d, d < DIM,
                eps, share_stride, SHARES, dtype, DIM, INTERLEAVED, BIAS, NORM,
            )  # fmt: skip
            value_at = token + (KV_HEADS * (GROUP + 1) + kv_head) * DIM + d
            new_value = shared(value_at, d < DIM, share_stride, SHARES, dtype)
            new_slot = shift + _slots(table, past, length > 0, PAGE)
            place = (new_slot * KV_HEADS + kv_head) * DIM + d
            write = (d < DIM) & (length > 0)
            tl.store(keys + place, new_key.to(keys.dtype.element_ty), mask=write)
            tl.store(values + place, new_value.to(values.dtype.element_ty), mask=write)
            present = length > 0
            peak = tl.where(present, tl.sum(q * new_key[None, :], 1) * scale, float("-inf"))
            total += tl.where(present, 1.0, 0.0)
            acc += tl.where(present, new_value, 0.0)[None, :]
        q = q.to(keys.dtype.element_ty)
    else:
        q = tl.load(token + head[:, None] * DIM + d[None, :], mask=head_mask, other=0.0)

    if EARLY:
        if first < last:
            peak, total, acc = _attended(q, k, v, inside[None, :], scale, peak, total, acc)
    for start in range(first + (BLOCK_N if EARLY else 0), last, BLOCK_N):
        inside = start + n < last
        slot = shift + _slots(table, start + n, inside, PAGE)
        offset = (slot * KV_HEADS + kv_head)[:, None] * DIM + d[None, :]
        mask = inside[:, None] & (d < DIM)[None, :]
        k = tl.load(keys + offset, mask=mask, other=0.0)
        v = tl.load(values + offset, mask=mask, other=0.0)
        peak, total, acc = _attended(q, k, v, inside[None, :], scale, peak, total, acc)

    acc = acc / tl.where(total > 0, total, 1.0)[:, None]
    target = out + row.to(tl.int64) * out_stride + head[:, None] * DIM + d[None, :]
    if SPLITS == 1:
        tl.store(target, acc.to(out.dtype.element_ty), mask=head_mask)
    elif shares == 1:
        if split == 0:
            tl.store(target, acc.to(out.dtype.element_ty), mask=head_mask)
    elif split < shares:
        one = (row.to(tl.int64) * KV_HEADS * GROUP + head) * SPLITS
        tl.store(parts + (one + split)[:, None] * DIM + d[None, :], acc, mask=head_mask)
        tl.store(sums + one + split, peak + tl.log2(total), mask=h < GROUP)
        tl.debug_barrier()
        counter = arrived + row * KV_HEADS + kv_head
        if tl.atomic_add(counter, 1, sem="acq_rel") == shares - 1:
            tl.store(counter, 0)
            for other in tl.static_range(GROUP):
                joined = _joined(parts, sums, row.to(tl.int64) * KV_HEADS * GROUP + kv_head * GROUP + other,
                                 shares, d, DIM, SPLITS)  # fmt: skip
                place = out + row.to(tl.int64) * out_stride + (kv_head * GROUP + other) * DIM + d
                tl.store(place, joined.to(out.dtype.element_ty), mask=d < DIM)


@triton.jit
def _attended(q, k, v, seen, scale, peak, total, acc):
    """A block of keys and values taken into a running softmax. scale includes log2(e). seen: None for all."""
    scores = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
    if seen is not None:
        scores = tl.where(seen, scores, float("-inf"))
    new_peak = tl.maximum(peak, tl.max(scores, 1))
    weights = tl.exp2(scores - new_peak[:, None])
    fade = tl.exp2(peak - new_peak)
    total = total * fade + tl.sum(weights, 1)
    acc = acc * fade[:, None] + tl.dot(weights.to(v.dtype), v, input_precision="ieee")
    return new_peak, total, acc


@triton.jit
def _joined(parts, sums, one, shares, d, DIM: tl.constexpr, SPLITS: tl.constexpr):
    """The shares of one row and head, weighted by their softmax sums."""
    s = tl.arange(0, SPLITS)
    sum2 = tl.load(sums + one * SPLITS + s, mask=s < shares, other=float("-inf"), cache_modifier=".cg")
    weights = tl.exp2(sum2 - tl.max(sum2, 0))
    mask = (s < shares)[:, None] & (d < DIM)[None, :]
    place = parts + (one * SPLITS + s)[:, None] * DIM + d[None, :]
    part = tl.load(place, mask=mask, other=0.0, cache_modifier=".cg")
    return tl.sum(part * weights[:, None], 0) / tl.sum(weights, 0)


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
    open_to_all = (context + block * BLOCK_M + 1) // BLOCK_N * BLOCK_N
    for start in range(0, open_to_all, BLOCK_N):
        slot = _slots(table, start + n, None, PAGE)
        offset = (slot * KV_HEADS + kv_head)[:, None] * DIM + d[None, :]
        if DIM == BLOCK_D:
            k = tl.load(keys + offset)
            v = tl.load(values + offset)
        else:
            k = tl.load(keys + offset, mask=(d < DIM)[None, :], other=0.0)
            v = tl.load(values + offset, mask=(d < DIM)[None, :], other=0.0)
        peak, total, acc = _attended(q, k, v, None, scale, peak, total, acc)
    for start in range(open_to_all, last, BLOCK_N):
        inside = start + n < last
        slot = _slots(table, start + n, inside, PAGE)
        offset = (slot * KV_HEADS + kv_head)[:, None] * DIM + d[None, :]
        mask = inside[:, None] & (d < DIM)[None, :]
        k = tl.load(keys + offset, mask=mask, other=0.0)
        v = tl.load(values + offset, mask=mask, other=0.0)
        seen = inside[None, :] & ((start + n)[None, :] <= (context + m)[:, None])
        peak, total, acc = _attended(q, k, v, seen, scale, peak, total, acc)
    acc = acc / total[:, None]
    target = out + token[:, None] * out_stride + head * DIM + d[None, :]
    tl.store(target, acc.to(out.dtype.element_ty), mask=token_mask)
