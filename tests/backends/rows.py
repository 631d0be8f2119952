"""A decode batch over a cache of random numbers."""

from __future__ import annotations

import numpy as np
import torch

from rlt_hw.backends.attention.interface import AttentionBatch, AttentionGeometry


def decode_batch(lengths, page_size, heads=2, dim=64, dtype=torch.float16):
    """(batch, keys, values, query, geometry); pages are given out in reverse."""
    rows, width = len(lengths), -(-max(lengths) // page_size)
    table = torch.arange(rows * width - 1, -1, -1, dtype=torch.int32).view(rows, width)
    lens = np.array(lengths, dtype=np.int32)
    batch = AttentionBatch(
        query_start=torch.arange(rows + 1, dtype=torch.int32),
        seq_lens=torch.from_numpy(lens),
        page_table=table,
        query_start_host=np.arange(rows + 1, dtype=np.int32),
        seq_lens_host=lens,
        max_query=1,
        max_seq=max(lengths),
    )
    keys, values = (torch.randn(rows * width, page_size, heads, dim, dtype=dtype) for _ in range(2))
    geometry = AttentionGeometry(
        heads, heads, dim, page_size, dim**-0.5, dtype, torch.device("cpu"), rows, rows, width
    )
    return batch, keys, values, torch.randn(rows, heads, dim, dtype=dtype), geometry
