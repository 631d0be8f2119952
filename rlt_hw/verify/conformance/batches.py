"""Attention batches over paged caches, and the dense float64 answer to each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from rlt_hw.backends.attention.interface import AttentionBatch, AttentionGeometry

NOWHERE = 2**30
"""In page tables behind a row's last page, where nothing may be read."""


@dataclass(frozen=True)
class PagedBatch:
    """A batch with its queries and one layer's cache, on the geometry's device.

    query: [tokens, heads, head_dim]. keys, values: [pages, page_size, kv_heads, head_dim], NaN in every slot
    that no row may read.
    """

    geometry: AttentionGeometry
    batch: AttentionBatch
    query: torch.Tensor
    keys: torch.Tensor
    values: torch.Tensor

    def tokens(self, row: int) -> slice:
        """A row's tokens in the packed query."""
        first, last = self.batch.query_start_host[row : row + 2].tolist()
        return slice(first, last)

    def slots(self, row: int) -> torch.Tensor:
        """Flat cache slots of a row's positions, int64 on the CPU."""
        position = torch.arange(int(self.batch.seq_lens_host[row]))
        page = self.batch.page_table[row].cpu().long()[position // self.geometry.page_size]
        return page * self.geometry.page_size + position % self.geometry.page_size

    def expected(self) -> torch.Tensor:
        """float64 [tokens, heads, head_dim] on the CPU."""
        group = self.geometry.num_heads // self.geometry.num_kv_heads
        query, keys, values = (tensor.cpu() for tensor in (self.query, self.keys, self.values))
        out = torch.zeros(query.shape, dtype=torch.float64)
        for row in range(self.batch.rows):
            tokens, slots = self.tokens(row), self.slots(row)
            if tokens.start == tokens.stop or not len(slots):
                continue
            key = keys.flatten(0, 1)[slots].double().repeat_interleave(group, 1)
            value = values.flatten(0, 1)[slots].double().repeat_interleave(group, 1)
            scores = torch.einsum("qhd,khd->hqk", query[tokens].double(), key) * self.geometry.scale
            position = torch.arange(len(slots))
            hidden = position > position[len(slots) - (tokens.stop - tokens.start) :, None]
            weights = scores.masked_fill(hidden, float("-inf")).softmax(-1)
            out[tokens] = torch.einsum("hqk,khd->qhd", weights, value)
        return out


def paged_batch(
    rows: Sequence[tuple[int, int]],
    *,
    heads: int,
    kv_heads: int,
    head_dim: int,
    page_size: int,
    dtype: torch.dtype,
    device: torch.device | str = "cpu",
    planes: int = 1,
    seed: int = 0,
    batch_invariant: bool = False,
) -> PagedBatch:
    """rows: (new tokens, context with them), single-token rows first. Pages lie in random order, and each row
    on a random plane, as rows at different depths do."""
    generator = torch.Generator().manual_seed(seed)
    rng = np.random.default_rng(seed)
    needed = [-(-context // page_size) for _, context in rows]
    per_plane = sum(needed) + 2
    pages = rng.permutation(per_plane)
    width = max(needed, default=1) + 1
    table = np.full((len(rows), width), NOWHERE, np.int32)
    shape = (planes * per_plane, page_size, kv_heads, head_dim)
    keys = torch.full(shape, float("nan"), dtype=dtype)
    values = keys.clone()
    taken = 0
    for row, (_, context) in enumerate(rows):
        mine = pages[taken : taken + needed[row]] + rng.integers(planes) * per_plane
        taken += needed[row]
        table[row, : needed[row]] = mine
        position = np.arange(context)
        slots = torch.from_numpy(mine[position // page_size] * page_size + position % page_size)
        for cache in (keys, values):
            fresh = torch.randn(context, kv_heads, head_dim, generator=generator)
            cache.flatten(0, 1)[slots] = fresh.to(dtype)
    starts = np.concatenate(([0], np.cumsum([new for new, _ in rows]))).astype(np.int32)
    lengths = np.array([context for _, context in rows], np.int32)
    query = torch.randn(int(starts[-1]), heads, head_dim, generator=generator).to(dtype)
    where = torch.device(device)
    return PagedBatch(
        AttentionGeometry(
            num_heads=heads,
            num_kv_heads=kv_heads,
            head_dim=head_dim,
            page_size=page_size,
            scale=head_dim**-0.5,
            dtype=dtype,
            device=where,
            max_rows=max(len(rows), 1),
            max_tokens=max(int(starts[-1]), 1),
            max_pages_per_row=width,
            batch_invariant=batch_invariant,
        ),
        AttentionBatch(
            query_start=torch.from_numpy(starts).to(where),
            seq_lens=torch.from_numpy(lengths).to(where),
            page_table=torch.from_numpy(table).to(where),
            query_start_host=starts,
            seq_lens_host=lengths,
            max_query=max((new for new, _ in rows), default=0),
            max_seq=max((context for _, context in rows), default=0),
        ),
        query.to(where),
        keys.to(where),
        values.to(where),
    )


def attend(adapter: Any, paged: PagedBatch) -> torch.Tensor:
    """The answer of an adapter class, poisoned first so that an unwritten element shows."""
    attention = adapter(paged.geometry)
    out = torch.full_like(paged.query, float("nan"))
    attention.prepare(paged.batch)
    attention.attend(paged.query, paged.keys, paged.values, out)
    return out


MIXED = ((1, 1), (1, 15), (1, 16), (1, 17), (1, 70), (3, 3), (5, 33), (17, 17))
