"""The rows of a decode step that a graph can hold, for Ascend's fused operator.

The operator takes lengths as host integers: outside a capture they are read from the device, inside one any
will do, because the graph is given new ones before each run. An empty row counts as one token of page 0,
whose result is not used. The cache write of torch_npu wants distinct slots, which empty rows do not have:
here they repeat the write of a row that is not empty, with torch's `index_copy_`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    from rlt_hw.backends.attention.interface import DecodeBatch
    from rlt_hw.backends.operators.interface import Projected


@dataclass(frozen=True)
class StepRows:
    """lengths: of each row, at least 1. page_table: int32 [rows, pages] with the rows' planes. active: bool
    [rows]. source: int64 [rows], the row whose token is written at int64 `slots` [rows]."""

    lengths: list[int]
    page_table: torch.Tensor
    active: torch.Tensor
    source: torch.Tensor
    slots: torch.Tensor

    @classmethod
    def build(cls, batch: DecodeBatch, page_size: int, *, captured: bool) -> StepRows:
        import torch

        lens, device = batch.seq_lens, batch.seq_lens.device
        active = lens > 0
        first = torch.arange(0, batch.page_table.shape[1] * page_size, page_size, device=device)
        pages = batch.page_table + (batch.planes * batch.plane_pages)[:, None]
        table = torch.where(first < lens[:, None], pages, 0).to(torch.int32)
        position = (lens - 1).clamp(min=0).to(torch.int64)
        page = table.gather(1, (position // page_size)[:, None]).squeeze(1)
        lead = active.to(torch.int32).argmax()
        source = torch.where(active, torch.arange(len(active), device=device), lead)
        slots = (page.to(torch.int64) * page_size + position % page_size).index_select(0, source)
        lengths = [1] * len(lens) if captured else [max(length, 1) for length in lens.tolist()]
        return cls(lengths, table.contiguous(), active, source, slots)

    def write(self, cache: torch.Tensor, new: torch.Tensor) -> None:
        """new: [rows, kv_heads, head_dim]. Where every row is empty, a slot keeps what it has."""
        import torch

        flat = cache.flatten(0, 1)
        fresh, kept = new.to(cache.dtype).index_select(0, self.source), flat.index_select(0, self.slots)
        flat.index_copy_(0, self.slots, torch.where(self.active.any(), fresh, kept))

    def only_active(self, result: torch.Tensor) -> torch.Tensor:
        """[rows, heads, head_dim] with zeros for empty rows."""
        import torch

        return torch.where(self.active[:, None, None], result, 0)


class NpuStep:
    """Writes a step's tokens. A graph finds out once a loop, for all layers, what follows from its rows."""

    def __init__(self, page_size: int) -> None:
        self._page_size = page_size
        self._batch: DecodeBatch | None = None

    def write(
        self, batch: DecodeBatch, projected: Projected, keys: torch.Tensor, values: torch.Tensor
    ) -> tuple[torch.Tensor, StepRows]:
        """The rotated query [rows, heads, head_dim], with the new keys and values in the cache."""
        import torch_npu

        from rlt_hw.backends.operators.npu import rotated

        captured = torch_npu.npu.is_current_stream_capturing()
        if not captured or self._batch is not batch:
            self._rows = StepRows.build(batch, self._page_size, captured=captured)
        self._batch = batch if captured else None
        query, key, value = rotated(projected)
        self._rows.write(keys, key)
        self._rows.write(values, value)
        return query, self._rows
