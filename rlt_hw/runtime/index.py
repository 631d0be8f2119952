"""The index tensors of a step: where each token's keys go and what each row may see."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from rlt_hw.backends.attention.interface import AttentionBatch
from rlt_hw.models.spec import KVGroup


@dataclass(frozen=True)
class Rows:
    """Some rows of a plan, packed. Host arrays; see `StepPlan` for their meaning.

    starts: int32 [rows + 1], first token of each row. row: int64 [tokens], the row of each token.
    position: int64 [tokens].
    """

    start: np.ndarray
    length: np.ndarray
    page_table: np.ndarray
    starts: np.ndarray
    row: np.ndarray
    position: np.ndarray

    @classmethod
    def build(cls, start: np.ndarray, length: np.ndarray, page_table: np.ndarray) -> Rows:
        starts = np.zeros(len(length) + 1, np.int32)
        np.cumsum(length, out=starts[1:])
        row = np.repeat(np.arange(len(length)), length)
        position = np.arange(len(row)) - starts[row] + start[row]
        return cls(start, length, page_table, starts, row, position)

    def subset(self, rows: np.ndarray) -> Rows:
        return Rows.build(self.start[rows], self.length[rows], self.page_table[rows])

    def tokens_of(self, rows: np.ndarray) -> np.ndarray:
        """Token indices (int64) of some rows, packed in the order given."""
        length = self.length[rows]
        offset = np.arange(int(length.sum())) - np.repeat(np.cumsum(length) - length, length)
        return np.repeat(self.starts[rows].astype(np.int64), length) + offset

    @property
    def last(self) -> np.ndarray:
        """Each row's last token, int64."""
        return self.starts[1:].astype(np.int64) - 1

    def slots(self, page_size: int) -> np.ndarray:
        """Each token's slot within a plane, int64."""
        pages = self.page_table[self.row, self.position // page_size].astype(np.int64)
        return pages * page_size + self.position % page_size


class StageIndex:
    """Device-side indices of some rows in one KV group, for any loop each row may be in."""

    def __init__(
        self, rows: Rows, group: KVGroup, *, num_pages: int, page_size: int, device: torch.device
    ) -> None:
        self._rows, self._group, self._device = rows, group, device
        self._num_pages, self._plane_slots = num_pages, num_pages * page_size
        self._slots = rows.slots(page_size)
        self._seq_lens = rows.start + rows.length
        self._query_start = torch.from_numpy(rows.starts).to(device)
        self._seq_lens_device = torch.from_numpy(self._seq_lens.astype(np.int32)).to(device)

    def at(self, loop: np.ndarray) -> tuple[AttentionBatch, torch.Tensor]:
        """The attention batch and the flat slots (int64 [tokens]) with row r at loop[r]."""
        rows = self._rows
        plane = np.asarray(self._group.plane_of_loop)[loop]
        pages = rows.page_table + (plane * self._num_pages)[:, None].astype(np.int32)
        slots = self._slots + plane[rows.row] * self._plane_slots
        batch = AttentionBatch(
            query_start=self._query_start,
            seq_lens=self._seq_lens_device,
            page_table=torch.from_numpy(pages).to(self._device),
            query_start_host=rows.starts,
            seq_lens_host=self._seq_lens,
            max_query=int(rows.length.max()),
            max_seq=int(self._seq_lens.max()),
        )
        return batch, torch.from_numpy(slots).to(self._device)


def unwritten_planes(
    rows: Rows, group: KVGroup, ran: np.ndarray, limit: np.ndarray, num_pages: int, page_size: int
) -> tuple[np.ndarray, np.ndarray]:
    """Flat slots (source, target) that complete the planes of tokens that left early.

    A plane that loops ran..limit-1 read and loops 0..ran-1 did not write takes the KV of loop
    ran - 1. ran, limit: loops run, and loops that must be readable, by row.
    """
    plane_of = np.asarray(group.plane_of_loop, np.int64)
    written = np.maximum.accumulate(plane_of)[ran - 1]
    needed = np.maximum.accumulate(plane_of)[limit - 1]
    copies = (needed - written)[rows.row]
    token = np.repeat(np.arange(len(rows.row)), copies)
    nth = np.arange(len(token)) - np.repeat(np.cumsum(copies) - copies, copies)
    slots, plane_slots = rows.slots(page_size)[token], num_pages * page_size
    source = plane_of[ran - 1][rows.row][token] * plane_slots + slots
    target = (written[rows.row][token] + 1 + nth) * plane_slots + slots
    return source, target
