"""Which pages exist and who holds them. A page is a fixed number of token slots in every plane.

The manager owns the page tables as one integer array; it never touches a tensor.
"""

from __future__ import annotations

import numpy as np

NO_PAGE = -1


def pages_for(tokens: np.ndarray | int, page_size: int) -> np.ndarray | int:
    """Pages that hold `tokens` tokens."""
    return -(-tokens // page_size)


class KVManager:
    """Page tables of up to `max_rows` requests over a pool of `num_pages` pages.

    page_table: int32 [max_rows, max_pages_per_row], NO_PAGE where unset. owned: int32 [max_rows].
    """

    def __init__(self, *, num_pages: int, page_size: int, max_rows: int, max_tokens_per_row: int) -> None:
        self.num_pages = num_pages
        self.page_size = page_size
        width = int(pages_for(max_tokens_per_row, page_size))
        self.page_table = np.full((max_rows, width), NO_PAGE, np.int32)
        self.owned = np.zeros(max_rows, np.int32)
        self._stack = np.arange(num_pages - 1, -1, -1, dtype=np.int32)
        self.free_pages = num_pages

    def missing(self, slots: np.ndarray, tokens: np.ndarray) -> np.ndarray:
        """Pages each slot lacks to hold `tokens` tokens, int32."""
        missing: np.ndarray = np.maximum(pages_for(tokens, self.page_size) - self.owned[slots], 0)
        return missing

    def grow(self, slots: np.ndarray, tokens: np.ndarray) -> bool:
        """Give every slot the pages for `tokens` tokens, or change nothing and return False."""
        missing = self.missing(slots, tokens)
        total = int(missing.sum())
        if total > self.free_pages:
            return False
        if total:
            hungry = missing > 0
            self._assign(slots[hungry], missing[hungry], total)
        return True

    def release(self, slot: int) -> None:
        """Return all pages of a slot to the pool."""
        count = int(self.owned[slot])
        pages = self.page_table[slot, :count]
        self._stack[self.free_pages : self.free_pages + count] = pages[::-1]
        self.free_pages += count
        self.page_table[slot, :count] = NO_PAGE
        self.owned[slot] = 0

    def check(self) -> None:
        """Raise AssertionError unless every page is free or held exactly once."""
        held = self.page_table[self.page_table != NO_PAGE]
        everything = np.concatenate((held, self._stack[: self.free_pages]))
        assert len(held) == int(self.owned.sum()), "page table and ownership disagree"
        assert np.array_equal(np.sort(everything), np.arange(self.num_pages)), (
            "a page leaked or is held twice"
        )

    def _assign(self, slots: np.ndarray, counts: np.ndarray, total: int) -> None:
        pages = self._stack[self.free_pages - total : self.free_pages][::-1]
        self.free_pages -= total
        rows = np.repeat(slots, counts)
        first = np.repeat(np.cumsum(counts) - counts, counts)
        columns = np.arange(total) - first + np.repeat(self.owned[slots], counts)
        self.page_table[rows, columns] = pages
        self.owned[slots] += counts
