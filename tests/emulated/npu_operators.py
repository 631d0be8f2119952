"""What torch_npu's operators compute, by their documents, on the host memory of the emulated device.

Stricter than the vendor's, which checks few of its documented limits: here a call beyond one is an error.
Source of formulas and limits: torch_npu 2.13.0, `_op_plugin_docs.py` and `_atb_api_docs.py`.
"""

from __future__ import annotations

from itertools import pairwise

import torch

DTYPES = [torch.float16, torch.bfloat16]
PER_ROW = {"BSND": 512, "TND": 1024}
"""Most tokens of a page by layout."""

looked_at: set[int] = set()
"""Masks that were found right."""


def host(tensor: torch.Tensor) -> torch.Tensor:
    """The same bytes as a tensor of the CPU."""
    assert tensor.device.type == "npu", tensor.device
    return torch.ops.rlt_emulated.host(tensor)


def npu_fused_infer_attention_score(
    query, key, value, *, num_heads, num_key_value_heads, scale, input_layout, block_size, block_table,
    actual_seq_lengths_kv, actual_seq_lengths=None, atten_mask=None, sparse_mode=0,
):  # fmt: skip
    head_dim = query.shape[-1]
    tokens = query.shape[1] if input_layout == "BSND" else 0
    assert query.shape[-2] == num_heads
    assert all(tensor.is_contiguous() and tensor.dtype in DTYPES for tensor in (query, key, value))
    assert num_heads % num_key_value_heads == 0 and num_heads // num_key_value_heads <= 64
    assert key.shape == value.shape
    assert key.shape[1:] == (block_size, num_key_value_heads * head_dim) and key.shape[2] <= 65_535
    assert block_table.dtype == torch.int32 and block_table.is_contiguous()
    assert block_size % 16 == 0 and block_size <= PER_ROW[input_layout]
    lengths = _integers(actual_seq_lengths_kv)
    assert len(lengths) == len(block_table) <= 4096
    if input_layout == "TND":
        assert head_dim == 128 or (head_dim == 64 and num_heads == num_key_value_heads)
        ends = _integers(actual_seq_lengths)
        assert ends == sorted(ends) and ends[-1] == len(query)
        rows = [host(query)[first:last] for first, last in pairwise([0, *ends])]
    else:
        assert head_dim % 16 == 0 and head_dim <= 512 and num_heads <= 256
        assert tokens == 1 or block_size % 128 == 0
        given = [tokens] * len(query) if actual_seq_lengths is None else _integers(actual_seq_lengths)
        rows = [row[:length] for row, length in zip(host(query), given, strict=True)]
    causal = sparse_mode == 3
    if causal:
        assert atten_mask.data_ptr() in looked_at or _is_upper_triangle(host(atten_mask))
        looked_at.add(atten_mask.data_ptr())
    else:
        assert sparse_mode == 0 and atten_mask is None
        assert all(len(row) == 1 for row in rows)
    out = torch.zeros_like(query)
    to = host(out).view(-1, num_heads, head_dim)
    at = 0
    for row, pages, length in zip(rows, host(block_table), lengths, strict=True):
        keys, values = (_gather(cache, pages, length, num_key_value_heads) for cache in (key, value))
        to[at : at + len(row)] = _attend(row, keys, values, scale)
        at += len(row)
    return out, torch.zeros(1, device=query.device)


def _npu_paged_attention(  # noqa: PLR0917 - the vendor's
    query, key_cache, value_cache, num_kv_heads, num_heads, scale_value, block_table, context_lens, out
):
    """context_lens is in host memory."""
    assert num_heads % num_kv_heads == 0
    assert key_cache.shape[2:] == value_cache.shape[2:] == (num_kv_heads, query.shape[-1])
    assert context_lens.device.type == "cpu" and context_lens.dtype == torch.int32
    assert block_table.dtype == torch.int32
    for row, pages in enumerate(host(block_table)):
        length = int(context_lens[row])
        keys, values = (
            _gather(cache.flatten(2), pages, length, num_kv_heads) for cache in (key_cache, value_cache)
        )
        host(out)[row] = _attend(host(query)[row, None], keys, values, scale_value)[0]


def npu_scatter_pa_kv_cache(key, value, key_cache, value_cache, slot_mapping, *, cache_mode):
    assert cache_mode == "Norm"
    assert slot_mapping.dtype in (torch.int32, torch.int64)
    slots = host(slot_mapping).long()
    for new, cache in ((key, key_cache), (value, value_cache)):
        assert new.dim() == 3 and cache.dim() == 4 and new.dtype == cache.dtype
        assert new.is_contiguous() and cache.is_contiguous()
        assert len(new) == len(slots) == len(slots.unique()), "slots must be distinct"
        flat = host(cache).flatten(0, 1)
        assert not len(slots) or (int(slots.min()) >= 0 and int(slots.max()) < len(flat)), (
            "slots out of range"
        )
        flat[slots] = host(new)


def npu_rms_norm(self, gamma, epsilon=1e-06):
    x = host(self).float()
    rstd = torch.rsqrt(x.square().mean(-1, keepdim=True) + epsilon)
    return _back(x * rstd * host(gamma).float(), self.dtype), _back(rstd, torch.float32)


def npu_add_rms_norm(x1, x2, gamma, epsilon=1e-06):
    assert x1.shape == x2.shape and x1.dtype == x2.dtype
    total = _back(host(x1).float() + host(x2).float(), x1.dtype)
    return (*npu_rms_norm(total, gamma, epsilon), total)


def npu_rotary_mul(self, r1, r2, rotary_mode="half"):
    """x * r1 + turned(x) * r2."""
    assert self.dim() == r1.dim() == r2.dim() == 4
    assert self.dtype == r1.dtype == r2.dtype
    assert self.shape[-1] % 2 == 0 and self.shape[-1] < 896
    assert self.shape[0] < 1000 and self.shape[2] < 1000
    x = host(self).float()
    if rotary_mode == "half":
        first, second = x.chunk(2, -1)
        turned = torch.cat((-second, first), -1)
    else:
        assert rotary_mode == "interleave"
        turned = torch.stack((-x[..., 1::2], x[..., 0::2]), -1).flatten(-2)
    return _back(x * host(r1).float() + turned * host(r2).float(), self.dtype)


def npu_swiglu(self, dim=-1):
    first, second = host(self).float().chunk(2, dim)
    return _back(torch.nn.functional.silu(first) * second, self.dtype)


def _back(values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return values.to(dtype).to("npu")


def _is_upper_triangle(mask: torch.Tensor) -> bool:
    return torch.equal(mask, torch.ones(2048, 2048, dtype=torch.int8).triu(1))


def _integers(values) -> list[int]:
    assert isinstance(values, list) and all(type(value) is int for value in values), values
    return values


def _gather(cache, pages, length, heads):
    """[length, heads, head_dim] of a row."""
    assert int(pages.min()) >= 0 and int(pages.max()) < len(cache), "a page that does not exist"
    block = cache.shape[1]
    pages = pages[: -(-length // block)].long()
    return host(cache)[pages].flatten(0, 1)[:length].unflatten(-1, (heads, -1))


def _attend(query, keys, values, scale):
    """Causal, aligned to the right end. query: [n, heads, dim]; keys, values: [m, kv_heads, dim]."""
    group = query.shape[1] // keys.shape[1]
    keys, values = (plane.float().repeat_interleave(group, 1) for plane in (keys, values))
    scores = torch.einsum("nhd,mhd->hnm", query.float(), keys) * scale
    seen = torch.arange(len(keys)) <= len(keys) - len(query) + torch.arange(len(query))[:, None]
    weights = torch.where(seen, scores, float("-inf")).softmax(-1)
    return torch.einsum("hnm,mhd->nhd", weights, values).to(query.dtype)
