"""Huginn through scheduler and runner against the reference runs: states, criteria, warm start."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from rlt_hw.models.spec import KVLayout
from rlt_hw.runtime.request import Request
from rlt_hw.runtime.step import StartMode
from tests.models.golden import ATOL, Case, case
from tests.runtime.parts import Output, build

NEW = 24


@pytest.fixture(params=("huginn-a", "huginn-b"))
def golden(request) -> Case:
    return case(request.param)


def request(golden: Case, prefix: str = "", *, stored: str = "", **fields: object) -> Request:
    vocab = golden["decode_logits"].shape[1]
    values = {
        "max_loops": golden.model.spec.loops,
        "ignore_eos": True,
        "logprobs": vocab,
        "start_mode": StartMode.GIVEN,
        "start_states": golden[f"{stored}initial_state"][0].numpy(),
    } | fields
    return Request(prefix or "main", golden[f"{stored}input_ids"][0].numpy(), NEW, **values)


def check(golden: Case, found: Output, prefix: str) -> None:
    assert found.ids == golden[f"{prefix}greedy_ids"][0].tolist()
    expected = torch.log_softmax(golden[f"{prefix}decode_logits"], -1).numpy()
    assert np.abs(np.stack(found.logprobs) - expected).max() < 2 * ATOL


@pytest.mark.parametrize("layout", [KVLayout.FULL, KVLayout.LAST_EXITED])
@pytest.mark.parametrize("budget", [64, 7])
def test_reference_continuations_in_one_batch(golden, layout, budget):
    prefixes = list(golden.prompts())
    parts = build(golden.model, layout, max_batched_tokens=budget, max_num_seqs=6)
    found = parts.run([request(golden, prefix, stored=prefix) for prefix in prefixes])
    for prefix in prefixes:
        check(golden, found[prefix or "main"], prefix)


@pytest.mark.parametrize("budget", [64, 4])
def test_zero_and_warm_starts_beside_each_other(golden, budget):
    parts = build(golden.model, KVLayout.FULL, max_batched_tokens=budget, max_num_seqs=4)
    found = parts.run(
        [
            request(golden, "zero_state.", start_mode=StartMode.ZERO),
            request(golden, "continuous.", start_mode=StartMode.WARM_GIVEN),
            request(golden, "random", start_mode=StartMode.RANDOM),
        ]
    )
    check(golden, found["zero_state."], "zero_state.")
    check(golden, found["continuous."], "continuous.")


def test_every_exit_criterion_in_one_batch():
    golden = case("huginn-a")
    thresholds = golden.facts["exit_thresholds"]
    rules = golden.model.spec.exit_rules
    parts = build(golden.model, KVLayout.LAST_EXITED)
    found = parts.run(
        [
            request(golden, f"adaptive.{name}.", rule=rules.index(name), threshold=thresholds[name])
            for name in thresholds
        ]
    )
    for name in thresholds:
        prefix = f"adaptive.{name}."
        check(golden, found[prefix], prefix)
        assert found[prefix].depths[1:] == golden[f"{prefix}steps"].tolist()


@pytest.mark.parametrize("name", case("huginn-a").model.spec.exit_rules)
def test_the_values_of_every_exit_criterion(name, monkeypatch):
    """The value after each recurrence of each generated token, up to the one it leaves at."""
    golden = case("huginn-a")
    prefix, spec = f"adaptive.{name}.", golden.model.spec
    parts = build(golden.model, KVLayout.LAST_EXITED)
    rule = parts.runner._exits._rules[spec.exit_rules.index(name)]
    compute, seen = rule.value, []

    def record(memory, states, logits):
        value, memory = compute(memory, states, logits)
        seen.append(float(value))
        return value, memory

    monkeypatch.setattr(rule, "value", record)
    threshold = golden.facts["exit_thresholds"][name]
    parts.run([request(golden, prefix, rule=spec.exit_rules.index(name), threshold=threshold)])
    rows = golden[f"{prefix}values"]
    steps = golden[f"{prefix}steps"].tolist()
    expected = torch.cat([row[:count] for row, count in zip(rows, steps, strict=True)])
    assert len(seen) == len(expected)
    assert (torch.tensor(seen) - expected).abs().max() < ATOL * max(1.0, expected.abs().max().item())


def test_preempted_requests_repeat_themselves():
    golden = case("huginn-a")
    requests = [
        dict(rule=0, threshold=0.249, start_mode=StartMode.RANDOM, seed=3),
        dict(start_mode=StartMode.WARM, seed=4),
        dict(start_mode=StartMode.RANDOM, seed=5, temperature=0.9),
        dict(start_mode=StartMode.WARM_GIVEN, rule=1, threshold=0.00534),
    ]

    def run(**config: int) -> tuple[dict[str, list[int]], int]:
        parts = build(golden.model, KVLayout.LAST_EXITED, max_batched_tokens=16, **config)
        found = parts.run([request(golden, f"r{i}", **fields) for i, fields in enumerate(requests)])
        return {name: output.ids for name, output in found.items()}, parts.scheduler.preemptions

    roomy, none = run(num_pages=256, max_num_seqs=4)
    tight, some = run(num_pages=12, max_num_seqs=2)
    assert none == 0 and some > 0
    assert roomy == tight


@pytest.mark.parametrize("slots", [4, 8])
def test_compressed_caches(slots):
    """The published name counts slots, four a recurrence: s4 is one plane, s8 two in rotation."""
    golden = case("huginn-a")
    layout = KVLayout("ring", slots // golden.model.spec.recurrent_layers)
    parts = build(golden.model, layout, max_batched_tokens=32, max_num_seqs=3)
    prefix = f"cache.latest-m4-compress-s{slots}."
    found = parts.run([request(golden, prefix), request(golden, "beside", start_mode=StartMode.ZERO)])
    check(golden, found[prefix], prefix)
