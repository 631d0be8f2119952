"""Attention that is wrong in one way each, as real kernels have been."""

from __future__ import annotations

from dataclasses import replace

import torch

from rlt_hw.backends.attention.interface import AttentionBatch
from rlt_hw.backends.attention.torch_reference import TorchReference


class SeesTheFuture(TorchReference):
    def prepare(self, batch: AttentionBatch) -> None:
        super().prepare(batch)
        self._rows = [(tokens, slots, torch.ones_like(visible)) for tokens, slots, visible in self._rows]


class MissesTheNewest(TorchReference):
    def prepare(self, batch: AttentionBatch) -> None:
        super().prepare(batch)
        self._rows = [(tokens, slots, _without_newest(visible)) for tokens, slots, visible in self._rows]


class ReadsAWholePage(TorchReference):
    """Rounds a row's length up to its page."""

    def prepare(self, batch: AttentionBatch) -> None:
        page = self._geometry.page_size
        lengths = -(-batch.seq_lens_host // page) * page
        super().prepare(replace(batch, seq_lens_host=lengths))


class MixesUpHeads(TorchReference):
    """Query heads of a group are taken to lie apart."""

    def attend(self, query, keys, values, out) -> None:
        geometry = self._geometry
        group = geometry.num_heads // geometry.num_kv_heads
        order = torch.arange(geometry.num_heads).view(group, -1).T.flatten()
        mixed = out[:, order].contiguous()
        super().attend(query[:, order], keys, values, mixed)
        out[:, order] = mixed


class ForgetsTheScale(TorchReference):
    def __init__(self, geometry) -> None:
        super().__init__(replace(geometry, scale=1.0))


class ForgetsALastRow(TorchReference):
    def prepare(self, batch: AttentionBatch) -> None:
        super().prepare(batch)
        self._rows = self._rows[: batch.rows - 1]


class IgnoresPlanes(TorchReference):
    """Reads the first plane, whichever a row is on."""

    def attend(self, query, keys, values, out) -> None:
        pages = keys.shape[0] // 3
        first = [cache[:pages].repeat(3, 1, 1, 1) for cache in (keys, values)]
        super().attend(query, *first, out)


class LeaksBetweenRows(TorchReference):
    """A padded batch whose padding reads the first row, multiplied by zero."""

    def attend(self, query, keys, values, out) -> None:
        super().attend(query, keys, values, out)
        if len(self._rows) > 1:
            out += 0 * out[:1]


class DependsOnTheBatch(TorchReference):
    def attend(self, query, keys, values, out) -> None:
        super().attend(query, keys, values, out)
        out *= 1 + 1e-6 * len(query)


class DependsOnTheBatchMuch(TorchReference):
    def attend(self, query, keys, values, out) -> None:
        super().attend(query, keys, values, out)
        out *= 1 + 0.05 * len(query)


class Raises(TorchReference):
    def attend(self, query, keys, values, out) -> None:
        raise RuntimeError("no kernel image is available")


MUTANTS = (
    SeesTheFuture,
    MissesTheNewest,
    ReadsAWholePage,
    MixesUpHeads,
    ForgetsTheScale,
    ForgetsALastRow,
    IgnoresPlanes,
    LeaksBetweenRows,
    DependsOnTheBatch,
    Raises,
)


def _without_newest(visible: torch.Tensor) -> torch.Tensor:
    """All but the last position that each token sees, where it sees more than one."""
    seen = visible.sum(-1, keepdim=True)
    position = torch.arange(visible.shape[-1])
    return visible & ((position < seen - 1) | (seen == 1))
