"""Prefill and decode attention may be different backends; the model sees one."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from rlt_hw.backends.attention.interface import Attention, AttentionBatch

if TYPE_CHECKING:
    import torch


class PhasedAttention:
    """Sends single-token rows to `decode` and longer ones to `prefill`.

    Batches come with their single-token rows first, so each backend gets one slice. Where one
    backend serves both phases it gets the whole batch at once.
    """

    def __init__(self, prefill: Attention, decode: Attention) -> None:
        self._prefill = prefill
        self._decode = decode
        self._split = 0

    def prepare(self, batch: AttentionBatch) -> None:
        if self._prefill is self._decode:
            self._decode.prepare(batch)
            return
        self._split = singles = int((np.diff(batch.query_start_host) == 1).sum())
        if singles:
            self._decode.prepare(_rows(batch, 0, singles))
        if singles < batch.rows:
            self._prefill.prepare(_rows(batch, singles, batch.rows))

    def attend(
        self, query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, out: torch.Tensor
    ) -> None:
        if self._prefill is self._decode:
            self._decode.attend(query, keys, values, out)
            return
        split = self._split
        if split:
            self._decode.attend(query[:split], keys, values, out[:split])
        if split < len(query):
            self._prefill.attend(query[split:], keys, values, out[split:])


def _rows(batch: AttentionBatch, first: int, last: int) -> AttentionBatch:
    starts, lengths = batch.query_start_host[first : last + 1], batch.seq_lens_host[first:last]
    return replace(
        batch,
        query_start=batch.query_start[first : last + 1] - int(starts[0]),
        seq_lens=batch.seq_lens[first:last],
        page_table=batch.page_table[first:last],
        query_start_host=starts - starts[0],
        seq_lens_host=lengths,
        max_query=int(np.diff(starts).max()),
        max_seq=int(lengths.max()),
    )
