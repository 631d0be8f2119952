"""A few figures of speed for a record. `rlt-hw bench` is for more."""

from __future__ import annotations

from dataclasses import replace

from rlt_hw.runtime.sampling_params import SamplingParams
from rlt_hw.verify.benchmark import measure_closed
from rlt_hw.verify.engine_check import Bench, Finding

BATCHES = (1, 32)
INPUT_LEN, OUTPUT_LEN = 64, 64


def speed(bench: Bench) -> Finding:
    """Closed batches of random prompts, after a short one of each, without a limit to keep."""
    params = SamplingParams(max_tokens=OUTPUT_LEN, ignore_eos=True)
    numbers: dict[str, float | int | str | None] = {}
    with bench.engine(max_num_seqs=max(BATCHES)) as engine:
        for batch in BATCHES:
            measure_closed(engine, batch, INPUT_LEN, replace(params, max_tokens=4))
            found = measure_closed(engine, batch, INPUT_LEN, params)
            numbers[f"tokens/s at {batch}"] = found.tokens_per_second
            numbers[f"first token ms at {batch}"] = found.first_token_ms
            numbers[f"between tokens ms at {batch}"] = found.between_tokens_ms
    return Finding(True, engine.decision, numbers)
