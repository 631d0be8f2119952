"""What a step knows of rows that decode by themselves, and what is done with them around a loop's layers.

`Operators` has each of these; here they are in plain torch, without a look at device data on the host.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class DecodeRows:
    """The first rows of an engine's buffers. Each int64 [rows], the last three float32 [rows].

    token, position: what the next step embeds, and where. loop: loops it has run. active: 1, or 0 for a row
    that has ended. last: position from which on a row ends. stop_from: position of the first token that may
    be a stop token. gate_from: position from which on the exit rule applies. depth: loops whose KV later
    tokens may read. limit, min_loops: loops at most and at least. page_table: int32 [rows, pages].
    result: int64 [4, rows], what a step gave: token, depth, exited, bad.
    """

    token: torch.Tensor
    position: torch.Tensor
    loop: torch.Tensor
    active: torch.Tensor
    last: torch.Tensor
    limit: torch.Tensor
    min_loops: torch.Tensor
    depth: torch.Tensor
    gate_from: torch.Tensor
    seed: torch.Tensor
    zero_start: torch.Tensor
    stop_from: torch.Tensor
    top_k: torch.Tensor
    threshold: torch.Tensor
    temperature: torch.Tensor
    top_p: torch.Tensor
    page_table: torch.Tensor
    result: torch.Tensor


@dataclass(frozen=True)
class LoopPlanes:
    """Which planes the loops of a group write.

    of_loop: int64 [loops]. newest: int64 [loops], the highest plane that a loop or one before it wrote.
    count: planes a layer has. num_pages: of a plane.
    """

    of_loop: torch.Tensor
    newest: torch.Tensor
    count: int
    num_pages: int
    page_size: int

    @classmethod
    def build(
        cls, plane_of_loop: Sequence[int], num_pages: int, page_size: int, device: torch.device
    ) -> LoopPlanes:
        import torch

        of_loop = torch.tensor(plane_of_loop, dtype=torch.int64, device=device)
        newest = torch.cummax(of_loop, 0).values
        return cls(of_loop, newest, max(plane_of_loop) + 1, num_pages, page_size)


class TorchRows:
    """The row operators of `rlt_hw.backends.operators.interface.Operators`."""

    def board(self, rows: DecodeRows, planes: LoopPlanes) -> tuple[torch.Tensor, torch.Tensor]:
        import torch

        lens = (rows.position + 1) * rows.active
        return lens.to(torch.int32), planes.of_loop[rows.loop].to(torch.int32)

    def leave(self, rows: DecodeRows, by_rule: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
        ran = rows.loop + 1
        leaves = ran >= rows.limit
        if by_rule is not None:
            leaves = leaves | (by_rule & (rows.position >= rows.gate_from) & (ran >= rows.min_loops))
        return rows.active * leaves, ran

    def best(self, logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        import torch

        best, token = logits.max(dim=-1)
        return token, ~torch.isfinite(best)

    def uniform(self, rows: DecodeRows) -> torch.Tensor:
        from rlt_hw import philox_torch

        return philox_torch.uniform(rows.seed, rows.position + 1).float()

    def fill(
        self,
        keys: torch.Tensor,
        values: torch.Tensor,
        rows: DecodeRows,
        planes: LoopPlanes,
        exited: torch.Tensor,
        ran: torch.Tensor,
    ) -> None:
        """Without a mask on the host: what is not wanted repeats one copy that is, or copies a slot to itself
        where there is none. The slots of a row that has ended may be another's by now, and must not be
        written."""
        import torch

        if planes.count == 1:
            return
        page = planes.page_size
        pages = rows.page_table.gather(1, (rows.position // page)[:, None]).squeeze(1)
        slot = pages.clamp(min=0).to(torch.int64) * page + rows.position % page
        stride = planes.num_pages * page
        written, needed = planes.newest[ran - 1], planes.newest[rows.depth.clamp(min=1) - 1]
        plane = written[:, None] + 1 + torch.arange(planes.count - 1, device=slot.device)
        wanted = (exited > 0)[:, None] & (plane <= needed[:, None])
        source = (planes.of_loop[ran - 1] * stride + slot)[:, None].expand_as(plane)
        target = torch.where(wanted, plane * stride + slot[:, None], source).flatten()
        wanted = wanted.flatten()
        one = wanted.to(torch.int8).argmax()
        picked = torch.where(wanted, torch.arange(len(wanted), device=slot.device), one)
        source, target = source.flatten()[picked], target[picked]
        for cache in (keys, values):
            flat = cache.flatten(1, 2)
            flat.index_copy_(1, target, flat.index_select(1, source))

    def advance(
        self,
        rows: DecodeRows,
        token: torch.Tensor,
        bad: torch.Tensor,
        exited: torch.Tensor,
        ran: torch.Tensor,
    ) -> None:
        import torch

        torch.stack((token, ran, exited, bad.to(torch.int64)), out=rows.result)
        left = exited > 0
        rows.token.copy_(torch.where(left, token, rows.token))
        rows.position.add_(exited)
        rows.loop.copy_(torch.where(left, 0, ran) * rows.active)
        rows.active.mul_(rows.position < rows.last)
