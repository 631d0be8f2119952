"""What `rlt-hw bench` runs: the same work on one engine, or on several whose repeats take turns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import TYPE_CHECKING, Any

from rlt_hw.verify.benchmark import (
    Closed,
    Decode,
    Prefill,
    decode_tokens,
    measure_closed,
    measure_decode,
    measure_prefill,
    middle,
    to_json,
)

if TYPE_CHECKING:
    from rlt_hw.runtime.engine import Engine
    from rlt_hw.runtime.sampling_params import SamplingParams
    from rlt_hw.verify.ceilings import Ceilings

WARM_TOKENS = 4


@dataclass(frozen=True)
class Workload:
    """batches: requests at once, each measured. chunk: tokens of a prefill step. decode_steps: steps of
    steady decode that are timed; 0 leaves it out."""

    batches: tuple[int, ...]
    input_len: int
    output_len: int
    chunk: int
    decode_steps: int
    repeats: int

    @property
    def max_num_seqs(self) -> int:
        """Slots: every batch, and enough prompts at once to fill a chunk."""
        return max(*self.batches, ceil(self.chunk / self.input_len))

    @property
    def max_model_len(self) -> int:
        steady = decode_tokens(max(self.batches), self.input_len, self.chunk, self.decode_steps)
        return self.input_len + max(self.output_len, steady if self.decode_steps else 0)

    def steady(self, params: SamplingParams, batch: int) -> SamplingParams:
        """Requests long enough that none ends while decode is timed."""
        tokens = decode_tokens(batch, self.input_len, self.chunk, self.decode_steps)
        return replace(params, max_tokens=tokens)


@dataclass(frozen=True)
class Row:
    """A batch size on one engine."""

    batch: int
    closed: Closed
    decode: Decode | None

    def to_json(self) -> dict[str, Any]:
        decode = {"decode": to_json(self.decode)} if self.decode else {}
        return {"batch": self.batch, **to_json(self.closed), **decode}


@dataclass(frozen=True)
class Result:
    """One engine's medians."""

    rows: tuple[Row, ...]
    prefill: Prefill


def run(
    engines: Sequence[Engine],
    work: Workload,
    params: SamplingParams,
    ceilings: Ceilings,
    say: Callable[[str], None] = lambda _: None,
) -> list[Result]:
    """A result for each engine. Every repeat runs on one engine after the other, so that what changes on the
    machine meanwhile meets all of them."""
    rows: list[list[Row]] = [[] for _ in engines]
    for batch in work.batches:
        say(f"{batch} at once")
        _warm(engines, work, params, batch)
        closed: list[list[Closed]] = [[] for _ in engines]
        decode: list[list[Decode]] = [[] for _ in engines]
        for _ in range(work.repeats):
            for engine, ends, steps in zip(engines, closed, decode, strict=True):
                ends.append(measure_closed(engine, batch, work.input_len, params))
                if work.decode_steps:
                    steady, asked = work.steady(params, batch), work.decode_steps
                    steps.append(measure_decode(engine, batch, work.input_len, steady, asked, ceilings))
        for found, ends, steps in zip(rows, closed, decode, strict=True):
            found.append(Row(batch, middle(ends), middle(steps) if steps else None))
    say("prefill")
    prefills: list[list[Prefill]] = [[] for _ in engines]
    for _ in range(work.repeats):
        for engine, times in zip(engines, prefills, strict=True):
            times.append(measure_prefill(engine, work.input_len, work.chunk, params, ceilings))
    return [Result(tuple(row), middle(times)) for row, times in zip(rows, prefills, strict=True)]


def _warm(engines: Sequence[Engine], work: Workload, params: SamplingParams, batch: int) -> None:
    """Kernels compiled and steps captured."""
    short = replace(params, max_tokens=min(WARM_TOKENS, work.output_len))
    for engine in engines:
        measure_closed(engine, batch, work.input_len, short)
