"""Closed batches through the whole engine, timed with a monotonic clock."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from rlt_hw.runtime.engine import Engine
    from rlt_hw.runtime.outputs import RequestOutput
    from rlt_hw.runtime.sampling_params import SamplingParams


@dataclass(frozen=True)
class Measurement:
    """Medians over repeats. tokens_per_second counts generated tokens over the whole run, prefill included.

    first_token_ms: median over requests. between_tokens_ms: mean gap after the first, median over
    requests. mean_depth: loops of a generated token. scheduler_ms: host time in the scheduler, a step.
    """

    batch: int
    tokens_per_second: float
    first_token_ms: float
    between_tokens_ms: float
    mean_depth: float
    scheduler_ms: float

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def measure(engine: Engine, batch: int, input_len: int, params: SamplingParams, repeats: int) -> Measurement:
    """Run `batch` random prompts of `input_len` tokens `repeats` times, after one warm-up."""
    rng = np.random.default_rng(0)
    _run(engine, _prompts(engine, rng, batch, input_len), params)
    before = engine.stats()
    runs = [_run(engine, _prompts(engine, rng, batch, input_len), params) for _ in range(repeats)]
    after = engine.stats()
    scheduling = after.scheduler_seconds - before.scheduler_seconds
    return Measurement(
        batch,
        median(_throughput(outputs, seconds) for outputs, seconds in runs),
        1e3 * median(_first(outputs) for outputs, _ in runs),
        1e3 * median(_gap(outputs) for outputs, _ in runs),
        median(_depth(outputs) for outputs, _ in runs),
        1e3 * scheduling / (after.steps - before.steps),
    )


def _run(
    engine: Engine, prompts: Sequence[Sequence[int]], params: SamplingParams
) -> tuple[list[RequestOutput], float]:
    start = time.perf_counter()
    outputs = engine.generate(prompts, params)
    return outputs, time.perf_counter() - start


def _prompts(engine: Engine, rng: np.random.Generator, batch: int, length: int) -> list[list[int]]:
    return [ids.tolist() for ids in rng.integers(0, engine.vocab_size, (batch, length))]


def _throughput(outputs: Sequence[RequestOutput], seconds: float) -> float:
    return sum(len(output.token_ids) for output in outputs) / seconds


def _first(outputs: Sequence[RequestOutput]) -> float:
    return median(output.metrics.time_to_first_token or 0.0 for output in outputs)


def _gap(outputs: Sequence[RequestOutput]) -> float:
    return median(output.metrics.time_per_token(len(output.token_ids)) or 0.0 for output in outputs)


def _depth(outputs: Sequence[RequestOutput]) -> float:
    depths = [depth for output in outputs for depth in output.exit_depths]
    return sum(depths) / len(depths)
