"""What `rlt-hw bench` runs: the same work at one setting, or at several whose repeats take turns."""

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
    """One setting's medians."""

    rows: tuple[Row, ...]
    prefill: Prefill


def run(
    settings: Sequence[tuple[Engine, SamplingParams]],
    work: Workload,
    ceilings: Ceilings,
    say: Callable[[str], None] = lambda _: None,
) -> list[Result]:
    """A result for each setting. Every repeat runs one setting after the other, so that what changes on the
    machine meanwhile meets all of them."""
    rows: list[list[Row]] = [[] for _ in settings]
    for batch in work.batches:
        say(f"{batch} at once")
        _warm(settings, work, batch)
        closed: list[list[Closed]] = [[] for _ in settings]
        decode: list[list[Decode]] = [[] for _ in settings]
        for _ in range(work.repeats):
            for (engine, params), ends, steps in zip(settings, closed, decode, strict=True):
                ends.append(measure_closed(engine, batch, work.input_len, params))
                if work.decode_steps:
                    steady, asked = work.steady(params, batch), work.decode_steps
                    steps.append(measure_decode(engine, batch, work.input_len, steady, asked, ceilings))
        for found, ends, steps in zip(rows, closed, decode, strict=True):
            found.append(Row(batch, middle(ends), middle(steps) if steps else None))
    say("prefill")
    prefills: list[list[Prefill]] = [[] for _ in settings]
    for _ in range(work.repeats):
        for (engine, params), times in zip(settings, prefills, strict=True):
            times.append(measure_prefill(engine, work.input_len, work.chunk, params, ceilings))
    return [Result(tuple(row), middle(times)) for row, times in zip(rows, prefills, strict=True)]


def _warm(settings: Sequence[tuple[Engine, SamplingParams]], work: Workload, batch: int) -> None:
    """Kernels compiled and steps captured."""
    for engine, params in settings:
        short = replace(params, max_tokens=min(WARM_TOKENS, work.output_len))
        measure_closed(engine, batch, work.input_len, short)
