"""Nanbeige's model layer against the reference tensors."""

from __future__ import annotations

import pytest
import torch

from tests.models.dense import DenseCache, forward, slots
from tests.models.golden import Case, assert_close, case


@pytest.fixture(params=("nanbeige-a", "nanbeige-b"))
def golden(request) -> Case:
    return case(request.param)


def test_logits_and_states(golden):
    trace = forward(golden.model, golden["input_ids"])
    assert_close(trace.logits, golden["logits"][0])
    assert_close(torch.stack([state[0] for state in trace.loops]), golden["loop_hidden_states"][:, 0])


def test_keys_and_values_of_every_slot(golden):
    found = slots(forward(golden.model, golden["input_ids"]).cache)
    layers = golden.model.spec.recurrent_layers
    for slot, keys in enumerate(golden["prefill_keys"]):
        key, value = found[slot // layers, slot % layers]
        assert_close(key.transpose(0, 1), keys)
        assert_close(value.transpose(0, 1), golden["prefill_values"][slot])


def test_cached_decode_equals_the_whole_prompt(golden):
    cache, ids = DenseCache(), golden["input_ids"][0].tolist()
    logits = [forward(golden.model, [t], cache=cache, position=p).logits for p, t in enumerate(ids)]
    assert_close(torch.cat(logits), golden["logits"][0])
