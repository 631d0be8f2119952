"""Ouro's model layer against the reference tensors, in one piece and token by token."""

from __future__ import annotations

import pytest
import torch

from tests.models.dense import DenseCache, forward, slots
from tests.models.golden import PROBABILITY_ATOL, Case, assert_close, case

CASES = ("ouro-a", "ouro-b")


@pytest.fixture(params=CASES)
def golden(request) -> Case:
    return case(request.param)


def exit_distribution(gates: torch.Tensor) -> torch.Tensor:
    """[loops, tokens] gate logits to [tokens, loops] probabilities, summing to one (arXiv:2510.25741)."""
    leave = torch.sigmoid(gates)
    survive = torch.cumprod(1 - leave, 0)
    before = torch.cat((torch.ones_like(leave[:1]), survive[:-1]))
    return torch.cat((leave[:-1] * before[:-1], before[-1:])).T


def test_logits_states_and_gates(golden):
    trace = forward(golden.model, golden["input_ids"])
    assert_close(trace.logits, golden["logits"][0])
    states = torch.stack([state[0] for state in trace.loops])
    assert_close(states, golden["loop_hidden_states"][:, 0])
    assert_close(golden.model.head(states), golden["loop_logits"][:, 0])
    assert_close(golden.model.gate(states), golden["gate_logits"][:, 0])


def test_keys_and_values_of_every_slot(golden):
    trace = forward(golden.model, golden["input_ids"])
    layers = golden.model.spec.recurrent_layers
    found = slots(trace.cache)
    for slot, (keys, values) in enumerate(zip(golden["prefill_keys"], golden["prefill_values"], strict=True)):
        key, value = found[slot // layers, slot % layers]
        assert_close(key.transpose(0, 1), keys)
        assert_close(value.transpose(0, 1), values)


def test_exit_distribution_steps_and_logits(golden):
    trace = forward(golden.model, golden["input_ids"])
    states = torch.stack([state[0] for state in trace.loops])
    gates = golden.model.gate(states)
    pdf = exit_distribution(gates)
    assert_close(pdf, golden["exit_pdf"][0], PROBABILITY_ATOL)
    logits = golden.model.head(states)
    assert_close(torch.einsum("tl,ltv->tv", pdf, logits), golden["weighted_logits"][0])
    rule = golden.model.exit_rule("gate")
    for row, threshold in enumerate(golden["exit_thresholds"]):
        steps = run_rule(rule, states, float(threshold))
        assert steps.tolist() == golden["exit_steps"][row, 0].tolist()
        assert_close(logits[steps, torch.arange(len(steps))], golden["exit_logits"][row, 0])


def no_logits() -> torch.Tensor:
    raise AssertionError("the gate needs no logits")


def run_rule(rule, states: torch.Tensor, threshold: float) -> torch.Tensor:
    """Zero-based exit loop of every token."""
    thresholds = torch.full(states.shape[1:2], threshold)
    memory = rule.begin((states[0],))
    fired = []
    for state in states[:-1]:
        value, memory = rule.value(memory, (state,), no_logits)
        fired.append(rule.leaves(value, thresholds))
    fired.append(torch.ones_like(fired[0]))
    return torch.stack(fired).int().argmax(0)


def test_cached_decode_equals_the_whole_prompt(golden):
    cache, ids = DenseCache(), golden["input_ids"][0].tolist()
    logits = [forward(golden.model, [t], cache=cache, position=p).logits for p, t in enumerate(ids)]
    assert_close(torch.cat(logits), golden["logits"][0])


def test_fewer_loops_are_a_prefix_of_more(golden):
    for loops in range(1, golden.model.spec.loops + 1):
        trace = forward(golden.model, golden["input_ids"], loops=loops)
        assert_close(trace.logits, golden["loop_logits"][loops - 1, 0])


@pytest.mark.parametrize(
    ("hazards", "threshold", "loop"),
    [((0.3, 0.3), 0.5, 2), ((0.3, 0.3), 0.52, None), ((0.9, 0.1), 0.5, 1), ((0.3, 0.3), 0.3, 1)],
)
def test_hazards_add_up_to_an_exit(hazards, threshold, loop):
    """1 - 0.7 * 0.7 = 0.51: hazards 0.3, 0.3 pass 0.5 after two loops."""
    model = case("ouro-a").model
    rule = model.exit_rule("gate")
    rule._gate = lambda states: states[:, 0]
    logits = torch.logit(torch.tensor(hazards))
    memory = rule.begin((torch.zeros(1, 1),))
    fired = []
    for value in logits:
        total, memory = rule.value(memory, (value.view(1, 1),), no_logits)
        fired.append(bool(rule.leaves(total, torch.tensor([threshold - 1e-6]))))
    assert (fired.index(True) + 1 if True in fired else None) == loop
