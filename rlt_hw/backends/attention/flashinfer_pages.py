"""Page tables in FlashInfer's compressed-row form."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    from rlt_hw.backends.attention.interface import AttentionBatch


@dataclass(frozen=True)
class CompressedPages:
    """indptr: int32 [rows + 1]. indices: int32 [pages in use]. last_page_len: int32 [rows], from 1."""

    indptr: torch.Tensor
    indices: torch.Tensor
    last_page_len: torch.Tensor

    @classmethod
    def build(cls, batch: AttentionBatch, first: int, last: int, page_size: int) -> CompressedPages:
        """Of rows first to last - 1. Lengths are read on the host, page ids stay on the device."""
        import numpy as np
        import torch

        lengths = batch.seq_lens_host[first:last].astype(np.int64)
        pages = -(-lengths // page_size)
        indptr = np.concatenate(([0], np.cumsum(pages))).astype(np.int32)
        row = np.repeat(np.arange(first, last), pages)
        column = np.arange(len(row)) - np.repeat(indptr[:-1], pages)
        device = batch.page_table.device
        flat = torch.from_numpy(row * batch.page_table.shape[1] + column).to(device)
        return cls(
            torch.from_numpy(indptr).to(device),
            batch.page_table.flatten()[flat],
            torch.from_numpy(((lengths - 1) % page_size + 1).astype(np.int32)).to(device),
        )
