"""Benchmark measurements on the demo model: what is counted, and engines in turn."""

from __future__ import annotations

import torch

from rlt_hw.runtime.engine import Engine
from rlt_hw.runtime.sampling_params import SamplingParams
from rlt_hw.verify.benchmark import Closed, middle
from rlt_hw.verify.ceilings import measure_ceilings
from rlt_hw.verify.workload import Workload, run

WORK = Workload(batches=(1, 3), input_len=6, output_len=3, chunk=16, decode_steps=4, repeats=1)
PARAMS = SamplingParams(max_tokens=WORK.output_len, ignore_eos=True)


def engine(**options) -> Engine:
    sizes = {"max_num_seqs": WORK.max_num_seqs, "max_model_len": WORK.max_model_len}
    return Engine("demo:ouro", device="cpu", max_batched_tokens=WORK.chunk, **sizes, **options)


def test_engines_take_turns_and_each_has_every_figure():
    with engine() as full, engine(page_size=32) as other:
        ceilings = measure_ceilings(full.platform, full.torch_device, torch.float32)
        results = run([(full, PARAMS), (other, PARAMS)], WORK, ceilings)
        assert not full.stats().running
    assert len(results) == 2
    for result in results:
        assert [row.batch for row in result.rows] == [1, 3]
        assert all(row.closed.mean_depth == row.decode.mean_depth == 4 for row in result.rows)
        assert all(row.decode.read_share > 0 for row in result.rows)
        assert result.prefill.tokens_per_second > 0


def test_rows_that_exit_early_say_so():
    params = SamplingParams(max_tokens=3, ignore_eos=True, exit_threshold=0.0)
    with engine() as here:
        ceilings = measure_ceilings(here.platform, here.torch_device, torch.float32)
        (result,) = run([(here, params)], WORK, ceilings)
    assert all(row.decode.mean_depth < 4 for row in result.rows)


def test_the_median_of_each_figure():
    rows = [Closed(rate, 1.0, 2.0, 4.0, 0.1) for rate in (5.0, 1.0, 3.0)]
    assert middle(rows) == Closed(3.0, 1.0, 2.0, 4.0, 0.1)
