"""What a row that generates by itself has on the device: tensors that stay where they are."""

from __future__ import annotations

import numpy as np
import torch

from rlt_hw.backends.operators.rows import DecodeRows
from rlt_hw.devices.platform import Platform
from rlt_hw.runtime.step import StartMode, StepPlan

INTEGERS = (
    "token", "position", "loop", "active", "last", "limit", "min_loops", "depth", "gate_from", "seed",
    "zero_start", "stop_from", "top_k",
)  # fmt: skip
NEVER = 2**62
FLOATS = ("threshold", "temperature", "top_p")


class DecodeBuffers:
    """Owns the tensors of `DecodeRows`."""

    def __init__(self, rows: int, pages: int, device: torch.device, platform: Platform) -> None:
        self._platform, self._device = platform, device
        self._integers = torch.zeros((len(INTEGERS), rows), dtype=torch.int64, device=device)
        self._floats = torch.zeros((len(FLOATS), rows), dtype=torch.float32, device=device)
        self._page_table = torch.zeros((rows, pages), dtype=torch.int32, device=device)
        self._results: dict[int, torch.Tensor] = {}

    def first(self, rows: int) -> DecodeRows:
        """Views of the first rows; the result of each count of rows is a tensor of its own."""
        if rows not in self._results:
            self._results[rows] = torch.zeros((4, rows), dtype=torch.int64, device=self._device)
        return DecodeRows(
            **{name: self._integers[i, :rows] for i, name in enumerate(INTEGERS)},
            **{name: self._floats[i, :rows] for i, name in enumerate(FLOATS)},
            page_table=self._page_table[:rows],
            result=self._results[rows],
        )

    def load(self, plan: StepPlan) -> None:
        """A plan's rows; every other row becomes inactive."""
        rows, sampling = plan.rows, plan.sampling
        integers = torch.zeros(self._integers.shape, dtype=torch.int64)
        columns = {
            "token": plan.token_ids,
            "position": plan.start,
            "loop": plan.loop,
            "active": np.ones(rows, np.int64),
            "last": plan.last - 1,
            "limit": plan.limit,
            "min_loops": plan.min_loops,
            "depth": plan.depth,
            "gate_from": np.where(plan.adaptive, plan.prompt.astype(np.int64), NEVER),
            "seed": sampling.seed.view(np.int64),
            "zero_start": plan.start_mode == StartMode.ZERO,
            "stop_from": plan.stop_from,
            "top_k": sampling.top_k,
        }
        for i, name in enumerate(INTEGERS):
            integers[i, :rows] = torch.from_numpy(np.ascontiguousarray(columns[name]))
        floats = torch.zeros(self._floats.shape, dtype=torch.float32)
        for i, column in enumerate((plan.threshold, sampling.temperature, sampling.top_p)):
            floats[i, :rows] = torch.from_numpy(np.ascontiguousarray(column))
        self._upload(integers, self._integers)
        self._upload(floats, self._floats)
        self.load_pages(plan.page_table)

    def load_pages(self, page_table: np.ndarray) -> None:
        rows, width = page_table.shape
        self._upload(torch.from_numpy(page_table.copy()), self._page_table[:rows, :width])

    def keep(self, alive: np.ndarray) -> None:
        """Make the rows inactive that are not alive (bool, one a row of the plan)."""
        mask = self._platform.pin(torch.from_numpy(alive.astype(np.int64)))
        self._integers[INTEGERS.index("active"), : len(alive)].mul_(mask.to(self._device, non_blocking=True))

    def clear(self) -> None:
        """No row is active: a step changes nothing but scratch."""
        self._integers[INTEGERS.index("active")].zero_()

    def _upload(self, values: torch.Tensor, to: torch.Tensor) -> None:
        """In order with the work that was launched before; pinned memory is not reused until it was read."""
        to.copy_(self._platform.pin(values), non_blocking=True)
