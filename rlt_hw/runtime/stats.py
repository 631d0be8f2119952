"""What an engine counts."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from rlt_hw.runtime.scheduler import Scheduler
from rlt_hw.runtime.step import StepPlan, StepResult


@dataclass(frozen=True)
class EngineStats:
    """steps: runner calls. loop_rows: rows times loops that ran. finished: requests by reason.
    scheduler_seconds: host time spent in the scheduler.

    tokens_by_depth: generated tokens by exit depth. kv_bytes: size of the pool in bytes.
    """

    waiting: int
    running: int
    finished: dict[str, int]
    prompt_tokens: int
    generated_tokens: int
    steps: int
    loop_rows: int
    scheduler_seconds: float
    preemptions: int
    tokens_by_depth: dict[int, int]
    pages_free: int
    pages_total: int
    kv_bytes: int

    @property
    def mean_exit_depth(self) -> float:
        """Mean loops of a generated token, NaN before the first."""
        total = sum(self.tokens_by_depth.values())
        spent = sum(depth * count for depth, count in self.tokens_by_depth.items())
        return spent / total if total else float("nan")

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "mean_exit_depth": self.mean_exit_depth}


class StatsCollector:
    """Counts steps and ends; the scheduler and the pool are asked when a snapshot is taken."""

    def __init__(self) -> None:
        self._depths: Counter[int] = Counter()
        self._finished: Counter[str] = Counter()
        self._prompt = self._steps = self._loop_rows = 0
        self._scheduling = 0.0

    def step(self, plan: StepPlan, result: StepResult) -> None:
        self._steps += 1
        self._loop_rows += plan.rows * plan.loops
        depths, counts = np.unique(result.depth[result.token >= 0], return_counts=True)
        self._depths.update(dict(zip(depths.tolist(), counts.tolist(), strict=True)))

    def scheduling(self, seconds: float) -> None:
        self._scheduling += seconds

    def added(self, prompt_tokens: int) -> None:
        self._prompt += prompt_tokens

    def ended(self, reason: str) -> None:
        self._finished[reason] += 1

    def snapshot(self, scheduler: Scheduler, kv_bytes: int) -> EngineStats:
        return EngineStats(
            waiting=len(scheduler.waiting),
            running=int(scheduler.slots.active.sum()),
            finished=dict(self._finished),
            prompt_tokens=self._prompt,
            generated_tokens=sum(self._depths.values()),
            steps=self._steps,
            loop_rows=self._loop_rows,
            scheduler_seconds=self._scheduling,
            preemptions=scheduler.preemptions,
            tokens_by_depth=dict(sorted(self._depths.items())),
            pages_free=scheduler.kv.free_pages,
            pages_total=scheduler.kv.num_pages,
            kv_bytes=kv_bytes,
        )
