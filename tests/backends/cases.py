"""Attention batches over paged caches, and the float64 dense answer to each."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from rlt_hw.backends.attention.interface import AttentionBatch, AttentionGeometry


@dataclass
class Batch:
    geometry: AttentionGeometry
    batch: AttentionBatch
    query: torch.Tensor
    keys: torch.Tensor
    values: torch.Tensor

    def expected(self) -> torch.Tensor:
        """float64 [tokens, heads, dim]."""
        geometry, batch = self.geometry, self.batch
        group = geometry.num_heads // geometry.num_kv_heads
        out = torch.zeros(self.query.shape, dtype=torch.float64)
        for row in range(batch.rows):
            first, last = batch.query_start_host[row : row + 2].tolist()
            length = int(batch.seq_lens_host[row])
            if last == first or not length:
                continue
            position = torch.arange(length)
            page = batch.page_table[row].cpu().long()[position // geometry.page_size]
            slot = page * geometry.page_size + position % geometry.page_size
            key = self.keys.cpu().flatten(0, 1)[slot].double().repeat_interleave(group, 1)
            value = self.values.cpu().flatten(0, 1)[slot].double().repeat_interleave(group, 1)
            scores = torch.einsum("qhd,khd->hqk", self.query[first:last].cpu().double(), key)
            hidden = position > position[length - (last - first) :, None]
            weights = (scores * geometry.scale).masked_fill(hidden, float("-inf")).softmax(-1)
            out[first:last] = torch.einsum("hqk,khd->qhd", weights, value)
        return out


def make(
    rows: list[tuple[int, int]],
    *,
    heads: int,
    kv_heads: int,
    dim: int,
    page: int,
    dtype: torch.dtype,
    device: str = "cpu",
    planes: int = 1,
    seed: int = 0,
) -> Batch:
    """rows: (new tokens, context with them), single-token rows first. Each row is on a random plane.

    Everything that no row may read is NaN: pages of nobody, and the tails of partial pages.
    """
    generator = torch.Generator().manual_seed(seed)
    rng = np.random.default_rng(seed)
    needed = [-(-context // page) for _, context in rows]
    per_plane = sum(needed) + 2
    pages = rng.permutation(per_plane)
    width = max(needed, default=1) + 1
    table = np.full((len(rows), width), 2**30, np.int32)
    shape = (planes * per_plane, page, kv_heads, dim)
    keys = torch.full(shape, float("nan"), dtype=dtype)
    values = keys.clone()
    taken = 0
    for row, (_, context) in enumerate(rows):
        mine = pages[taken : taken + needed[row]] + rng.integers(planes) * per_plane
        taken += needed[row]
        table[row, : needed[row]] = mine
        for tensor in (keys, values):
            fresh = torch.randn(context, kv_heads, dim, generator=generator).to(dtype)
            for place, number in enumerate(mine.tolist()):
                part = fresh[place * page : (place + 1) * page]
                tensor[number, : len(part)] = part
    starts = np.concatenate(([0], np.cumsum([new for new, _ in rows]))).astype(np.int32)
    lengths = np.array([context for _, context in rows], np.int32)
    query = torch.randn(int(starts[-1]), heads, dim, generator=generator).to(dtype)
    where = torch.device(device)
    return Batch(
        AttentionGeometry(
            num_heads=heads,
            num_kv_heads=kv_heads,
            head_dim=dim,
            page_size=page,
            scale=dim**-0.5,
            dtype=dtype,
            device=where,
            max_rows=max(len(rows), 1),
            max_tokens=max(int(starts[-1]), 1),
            max_pages_per_row=width,
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


def run(adapter: type, case: Batch) -> torch.Tensor:
    """The adapter's answer, poisoned first so that an unwritten element shows."""
    attention = adapter(case.geometry)
    out = torch.full_like(case.query, float("nan"))
    attention.prepare(case.batch)
    attention.attend(case.query, case.keys, case.values, out)
    return out


MIXED = [(1, 1), (1, 15), (1, 16), (1, 17), (1, 70), (3, 3), (5, 33), (17, 17)]
