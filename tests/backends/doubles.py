"""Test doubles of vendors' functions: the published signature binds the call, float32 computes the answer.

Where a vendor's kernel multiplies what stands after a row's last token by zero, so does its double: a NaN
there spoils the row, as it would on the device.
"""

from __future__ import annotations

import importlib.machinery
import sys
from itertools import pairwise
from types import ModuleType

import torch

from rlt_hw.verify.contracts.published import published


def install(monkeypatch, version: str) -> None:
    """Puts `aiter` and `flash_attn` into this process, with what a version of `aiter` publishes."""
    functions = {
        "aiter.flash_attn_varlen_func": flash_attn_varlen_func,
        "aiter.paged_attention_v1": paged_attention_v1,
        "aiter.ops.triton.unified_attention.unified_attention": unified_attention,
        "aiter.ops.triton.attention.unified_attention.unified_attention": unified_attention,
        "flash_attn.flash_attn_varlen_func": flash_attn_varlen_func,
    }
    for record in published():
        if record.version == version or record.distribution == "flash-attn":
            for name in functions.keys() & record.calls.keys():
                _put(monkeypatch, name, _bound(functions[name], record.calls[name]))


def _bound(function, signature):
    """The function behind a published signature, with the types of its tensors looked at."""

    def call(*args, **kwargs):
        bound = signature.bind(*args, **kwargs)
        for name, value in bound.arguments.items():
            if signature.parameters[name].annotation == "Tensor":
                assert isinstance(value, torch.Tensor), name
        return function(**bound.arguments)

    call.__name__ = function.__name__
    call.__signature__ = signature
    return call


def _put(monkeypatch, name, function) -> None:
    path, _, attribute = name.rpartition(".")
    parts = path.split(".")
    for end in range(1, len(parts) + 1):
        module = ".".join(parts[:end])
        if module not in sys.modules:
            made = ModuleType(module)
            made.__path__ = []
            made.__spec__ = importlib.machinery.ModuleSpec(module, None, is_package=True)
            monkeypatch.setitem(sys.modules, module, made)
    monkeypatch.setattr(sys.modules[path], attribute, function, raising=False)


def _attend(query, keys, values, scale, hidden_from):
    """query: [n, heads, dim]; keys, values: [m, kv_heads, dim]; keys from `hidden_from` on weigh zero."""
    group = query.shape[1] // keys.shape[1]
    keys, values = (plane.float().repeat_interleave(group, 1) for plane in (keys, values))
    scores = torch.einsum("nhd,mhd->hnm", query.float(), keys) * scale
    first = hidden_from - len(query)
    seen = torch.arange(len(keys)) <= first + torch.arange(len(query))[:, None]
    weights = torch.where(seen, scores, float("-inf")).softmax(-1)
    return torch.einsum("hnm,mhd->nhd", weights, values).to(query.dtype)


def _rows(query, starts):
    return [query[first:last] for first, last in pairwise(starts.tolist())]


def _pages(cache, table, length):
    """All slots of the pages that hold `length` tokens."""
    pages = -(-length // cache.shape[1])
    return cache[table[:pages].long()].flatten(0, 1)


def flash_attn_varlen_func(  # noqa: PLR0917 - the vendor's
    q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, softmax_scale, causal, block_table=None
):
    assert causal
    assert max_seqlen_q >= int(cu_seqlens_q.diff().max())
    assert max_seqlen_k >= int(cu_seqlens_k.diff().max())
    assert cu_seqlens_q.dtype == cu_seqlens_k.dtype == torch.int32
    lengths, results = cu_seqlens_k.diff().tolist(), []
    for at, (row, length) in enumerate(zip(_rows(q, cu_seqlens_q), lengths, strict=True)):
        if block_table is None:
            first = int(cu_seqlens_k[at])
            keys, values = k[first : first + length], v[first : first + length]
        else:
            keys, values = (_pages(cache, block_table[at], length)[:length] for cache in (k, v))
        results.append(_attend(row, keys, values, softmax_scale, length))
    return torch.cat(results)


def paged_attention_v1(  # noqa: PLR0917 - the vendor's
    out, workspace_buffer, query, key_cache, value_cache, scale, block_tables, cu_query_lens, context_lens,
    max_context_len, alibi_slopes, kv_cache_dtype, kv_cache_layout, logits_soft_cap, k_scale, v_scale,
):  # fmt: skip
    assert (cu_query_lens, alibi_slopes, kv_cache_dtype, kv_cache_layout) == (None, None, "auto", "NHD")
    assert logits_soft_cap == 0
    assert k_scale == v_scale == 1
    rows, heads, dim = query.shape
    assert rows == len(context_lens) == len(block_tables)
    assert block_tables.is_contiguous()
    assert query.stride()[1:] == (dim, 1)
    partitions = -(-max_context_len // 256)
    assert workspace_buffer.nbytes >= rows * heads * partitions * (dim * query.element_size() + 8)
    for at, length in enumerate(context_lens.tolist()):
        keys, values = (_pages(cache, block_tables[at], length) for cache in (key_cache, value_cache))
        out[at] = _attend(query[at, None], keys, values, scale, length)[0]


def unified_attention(  # noqa: PLR0917 - the vendor's
    q, k, v, out, cu_seqlens_q, max_seqlen_q, seqused_k, max_seqlen_k, softmax_scale, causal, window_size,
    block_table, softcap, q_descale, k_descale, v_descale,
):  # fmt: skip
    assert causal
    assert window_size == (-1, -1)
    assert softcap == 0
    assert q_descale is k_descale is v_descale is None
    assert max_seqlen_k == int(seqused_k.max())
    rows = _rows(q, cu_seqlens_q)
    assert max_seqlen_q == max(map(len, rows))
    for at, (row, length) in enumerate(zip(rows, seqused_k.tolist(), strict=True)):
        keys, values = (_pages(cache, block_table[at], length) for cache in (k, v))
        first = int(cu_seqlens_q[at])
        out[first : first + len(row)] = _attend(row, keys, values, softmax_scale, length)
