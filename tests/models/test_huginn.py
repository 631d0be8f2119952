"""Huginn's model layer against the reference tensors, and the start states it draws."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from rlt_hw.models.huginn import random_states
from rlt_hw.models.interface import Start
from rlt_hw.models.spec import Stage
from tests.models.dense import DenseCache, forward
from tests.models.golden import Case, assert_close, case


@pytest.fixture(params=("huginn-a", "huginn-b"))
def golden(request) -> Case:
    return case(request.param)


def given(states: torch.Tensor) -> Start:
    everywhere = np.ones(len(states), bool)
    return Start(np.zeros(len(states), np.uint64), np.arange(len(states)), ~everywhere, everywhere, states)


def stored(golden: Case) -> Start:
    return given(golden["initial_state"][0, : golden["input_ids"].shape[1]])


def test_every_stage(golden):
    trace = forward(golden.model, golden["input_ids"], start=stored(golden))
    assert_close(trace.start[1], golden["prelude_output"][0])
    assert_close(torch.stack([state[0] for state in trace.loops]), golden["recurrent_states"][:, 0])
    assert_close(golden.model.latent(trace.loops[-1]), golden["latent_states"][0])
    assert_close(trace.head_input, golden["head_input"][0])
    assert_close(trace.logits, golden["logits"][0])


def test_keys_and_values_of_every_slot(golden):
    spec = golden.model.spec
    cache = forward(golden.model, golden["input_ids"], start=stored(golden)).cache
    for number, slot in enumerate(golden["cache_slots"].tolist()):
        if slot < 0:
            where = (Stage.CODA, 0, -1 - slot)
        elif slot < spec.prelude_layers:
            where = (Stage.PRELUDE, 0, slot)
        else:
            where = (Stage.RECURRENT, *divmod(slot - spec.prelude_layers, spec.recurrent_layers))
        key, value = cache.entries[where]
        assert_close(key.transpose(0, 1), golden["prefill_keys"][number])
        assert_close(value.transpose(0, 1), golden["prefill_values"][number])


def test_other_recurrence_counts(golden):
    for steps, logits in zip(golden["step_counts"].tolist(), golden["logits_at_steps"], strict=True):
        trace = forward(golden.model, golden["input_ids"], start=stored(golden), loops=steps)
        assert_close(trace.logits, logits[0])


def test_zero_state(golden):
    tokens = golden["input_ids"].shape[1]
    everywhere = np.ones(tokens, bool)
    zero = Start(np.zeros(tokens, np.uint64), np.arange(tokens), everywhere, ~everywhere)
    assert_close(
        forward(golden.model, golden["input_ids"], start=zero).logits, golden["zero_state_logits"][0]
    )


def test_cached_decode_equals_the_whole_prompt(golden):
    cache, ids, states = DenseCache(), golden["input_ids"][0].tolist(), stored(golden).states
    logits = [
        forward(golden.model, [t], cache=cache, position=p, start=given(states[p : p + 1])).logits
        for p, t in enumerate(ids)
    ]
    assert_close(torch.cat(logits), golden["logits"][0])


def test_start_states_have_the_published_distribution():
    """Truncation at three standard deviations leaves 0.624 of sqrt(2 / 5) = 0.632."""
    states = random_states(np.arange(64, dtype=np.uint64), np.arange(64), 960)
    assert abs(states.mean()) < 0.01
    assert abs(states.std() - 0.624) < 0.005
    assert 1.5 < states.abs().max() <= 3 * 0.4**0.5


def test_a_start_state_depends_on_seed_and_position_alone():
    seeds, positions = np.array([3, 3, 4], np.uint64), np.array([0, 1, 0])
    together = random_states(seeds, positions, 96)
    alone = torch.cat([random_states(seeds[i : i + 1], positions[i : i + 1], 96) for i in range(3)])
    assert torch.equal(together, alone)
    assert len({tuple(row.tolist()) for row in together}) == 3
