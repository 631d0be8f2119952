"""Speed through the whole engine, on a monotonic clock, and how near it comes to the device's limits."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, replace
from math import ceil
from statistics import median
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from rlt_hw.verify.roofline import decode_cost, prefill_operations

if TYPE_CHECKING:
    from rlt_hw.runtime.engine import Engine
    from rlt_hw.runtime.sampling_params import SamplingParams
    from rlt_hw.verify.ceilings import Ceilings

PROFILED_STEPS = 16
WARM_STEPS = 8
PREFILL_CHUNKS = 4


@dataclass(frozen=True)
class Closed:
    """A closed batch from its submission to its end. tokens_per_second counts generated tokens, prefill
    included in the time.

    first_token_ms: median over requests. between_tokens_ms: mean gap after the first, median over
    requests. mean_depth: loops of a generated token. scheduler_ms: host time in the scheduler, a step.
    """

    tokens_per_second: float
    first_token_ms: float
    between_tokens_ms: float
    mean_depth: float
    scheduler_ms: float


@dataclass(frozen=True)
class Decode:
    """Steps in which every row of a batch decodes. context: mean positions that a token attended to.

    step_ms: of one engine step, which is a token of each row or, where rows exit at different depths, a loop.
    read_share: of the least time in which what the tokens need can be read, see `roofline`.
    busy_share: time with a kernel running; kernels_per_step: both None where the device cannot tell.
    """

    context: float
    step_ms: float
    tokens_per_second: float
    mean_depth: float
    read_share: float
    busy_share: float | None
    kernels_per_step: float | None


@dataclass(frozen=True)
class Prefill:
    """Prompts that fill whole chunks. matrix_share: of the device's rate of one large product."""

    tokens_per_second: float
    operations_per_second: float
    matrix_share: float


Figures = TypeVar("Figures", Closed, Decode, Prefill)


def middle(repeats: Sequence[Figures]) -> Figures:
    """The median of each figure over repeats."""
    columns = {field.name: [getattr(each, field.name) for each in repeats] for field in fields(repeats[0])}
    medians: dict[str, Any] = {name: _median(values) for name, values in columns.items()}
    return replace(repeats[0], **medians)


def to_json(figures: Closed | Decode | Prefill) -> dict[str, Any]:
    return asdict(figures)


def measure_closed(engine: Engine, batch: int, input_len: int, params: SamplingParams) -> Closed:
    """Run `batch` random prompts of `input_len` tokens to their end."""
    before, start = engine.stats(), time.perf_counter()
    outputs = engine.generate(_prompts(engine, batch, input_len), params)
    seconds, after = time.perf_counter() - start, engine.stats()
    scheduling = after.scheduler_seconds - before.scheduler_seconds
    return Closed(
        sum(len(output.token_ids) for output in outputs) / seconds,
        1e3 * median(output.metrics.time_to_first_token or 0.0 for output in outputs),
        1e3 * median(output.metrics.time_per_token(len(output.token_ids)) or 0.0 for output in outputs),
        _mean([depth for output in outputs for depth in output.exit_depths]),
        1e3 * scheduling / (after.steps - before.steps),
    )


def measure_decode(
    engine: Engine, batch: int, input_len: int, params: SamplingParams, steps: int, ceilings: Ceilings
) -> Decode:
    """Time `steps` engine steps of `batch` rows that are all past their prompts; the rest is aborted."""
    with _decoding(engine, batch, input_len, params) as names:
        _step(engine, WARM_STEPS)
        before, start = [engine.output(name) for name in names], time.perf_counter()
        _step(engine, steps)
        seconds, after = time.perf_counter() - start, [engine.output(name) for name in names]
        work = engine.platform.profile(lambda: _step(engine, PROFILED_STEPS))
    depths = [
        depth
        for old, new in zip(before, after, strict=True)
        for depth in new.exit_depths[len(old.exit_depths) :]
    ]
    context = input_len + _mean([len(output.token_ids) for output in before + after])
    cost = decode_cost(
        engine.spec,
        rows=batch,
        context=context,
        loops=_mean(depths),
        dtype=str(engine.decision.dtype.value),
        kv_dtype=str(engine.decision.kv_dtype.value),
    )
    rate = len(depths) / seconds
    return Decode(
        context,
        1e3 * seconds / steps,
        rate,
        _mean(depths),
        cost.seconds(ceilings.read_bandwidth) * rate / batch,
        None if work is None else work.busy / work.seconds,
        None if work is None else work.kernels / PROFILED_STEPS,
    )


def measure_prefill(
    engine: Engine, input_len: int, chunk: int, params: SamplingParams, ceilings: Ceilings
) -> Prefill:
    """Time prompts of `input_len` tokens, at full depth, enough of them for several chunks of `chunk`."""
    count = ceil(chunk / input_len) * PREFILL_CHUNKS
    prompts = _prompts(engine, count, input_len)
    start = time.perf_counter()
    engine.generate(prompts, replace(params, max_tokens=1))
    seconds = time.perf_counter() - start
    loops = params.num_loops or engine.spec.loops
    operations = count * prefill_operations(engine.spec, tokens=input_len, loops=loops) / seconds
    return Prefill(count * input_len / seconds, operations, operations / ceilings.matrix_rate)


def decode_tokens(batch: int, input_len: int, chunk: int, steps: int) -> int:
    """New tokens that a request of `measure_decode` may need: rows decode while others are in prefill."""
    return 2 * ceil(batch * input_len / chunk) + steps + WARM_STEPS + PROFILED_STEPS + 8


@contextmanager
def _decoding(engine: Engine, batch: int, input_len: int, params: SamplingParams) -> Iterator[list[str]]:
    """Requests that have all yielded their first token."""
    names = [engine.add_request(prompt, params) for prompt in _prompts(engine, batch, input_len)]
    try:
        waiting = set(names)
        while waiting:
            waiting -= set(engine.step())
        yield names
    finally:
        for name in names:
            engine.release(name)


def _step(engine: Engine, steps: int) -> None:
    for _ in range(steps):
        engine.step()


def _prompts(engine: Engine, count: int, length: int) -> list[list[int]]:
    rng = np.random.default_rng(count)
    return [ids.tolist() for ids in rng.integers(0, engine.vocab_size, (count, length))]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None
