"""Sampling against distributions computed by hand; every row on its own."""

import numpy as np
import pytest
import torch

from rlt_hw.runtime.sampler import Sampler
from rlt_hw.runtime.step import SamplingRows

CPU = torch.device("cpu")


def rows(count: int, **fields: object) -> SamplingRows:
    values = {
        "temperature": 0.0,
        "top_k": 0,
        "top_p": 1.0,
        "seed": 0,
        "position": 0,
        "suppress_stop": False,
        "logprobs": -1,
    } | fields
    dtypes = ("f4", "i4", "f4", "u8", "i8", "?", "i4")
    columns = {
        name: np.broadcast_to(np.asarray(value, dtype), count).copy()
        for (name, value), dtype in zip(values.items(), dtypes, strict=True)
    }
    return SamplingRows(**columns)


def frequencies(logits: list[float], draws: int = 20_000, **fields: object) -> np.ndarray:
    batch = torch.tensor([logits]).expand(draws, -1).contiguous()
    fields = {"temperature": 1.0, "position": np.arange(draws)} | fields
    token = Sampler(frozenset(), CPU)(batch, rows(draws, **fields)).token
    return np.bincount(token, minlength=len(logits)) / draws


LOGITS = [0.0, 2.0, 1.0, -1.0]


def softmax(values: np.ndarray) -> np.ndarray:
    weights = np.exp(values - values.max())
    return weights / weights.sum()


@pytest.mark.parametrize(
    ("fields", "kept"),
    [
        ({}, [0, 1, 2, 3]),
        ({"temperature": 0.5}, [0, 1, 2, 3]),
        ({"temperature": 2.0}, [0, 1, 2, 3]),
        ({"top_k": 2}, [1, 2]),
        ({"top_k": 1}, [1]),
        ({"top_p": 0.7}, [1, 2]),
        ({"top_p": 0.01}, [1]),
        ({"top_k": 3, "top_p": 0.95}, [0, 1, 2]),
    ],
)
def test_frequencies_follow_the_distribution(fields, kept):
    logits = np.array(LOGITS) / fields.get("temperature", 1.0)
    expected = np.zeros(4)
    expected[kept] = softmax(logits[kept])
    assert np.abs(frequencies(LOGITS, **fields) - expected).max() < 0.015


def test_greedy_rows_ignore_the_random_rows_beside_them():
    logits = torch.randn(6, 50, generator=torch.Generator().manual_seed(1))
    mixed = Sampler(frozenset(), CPU)(logits, rows(6, temperature=[0, 1, 0, 1, 0, 1]))
    assert mixed.token[::2].tolist() == logits.argmax(-1)[::2].tolist()


def test_a_row_draws_the_same_token_alone_and_in_any_batch():
    logits = torch.randn(16, 200, generator=torch.Generator().manual_seed(2))
    seeds, positions = np.arange(16), np.arange(100, 116)
    sampler = Sampler(frozenset(), CPU)
    together = sampler(logits, rows(16, temperature=0.8, top_p=0.9, seed=seeds, position=positions)).token
    for i in range(16):
        alone = sampler(
            logits[i : i + 1], rows(1, temperature=0.8, top_p=0.9, seed=seeds[i], position=positions[i])
        )
        assert alone.token[0] == together[i]


def test_the_global_generator_is_untouched():
    before = torch.get_rng_state()
    frequencies(LOGITS, draws=10)
    assert torch.equal(before, torch.get_rng_state())


def test_stop_ids_are_held_back_until_min_tokens():
    logits = torch.tensor([[1.0, 5.0, 4.0, 2.0]] * 2)
    found = Sampler(frozenset({1, 2}), CPU)(logits, rows(2, suppress_stop=[True, False]))
    assert found.token.tolist() == [3, 1]


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_logits_that_are_not_finite_are_reported(value):
    logits = torch.zeros(3, 4)
    logits[1, 2] = value
    assert Sampler(frozenset(), CPU)(logits, rows(3)).bad.tolist() == [False, True, False]


def test_logprobs_are_of_the_unmodified_distribution():
    logits = torch.tensor([LOGITS, LOGITS])
    found = Sampler(frozenset(), CPU)(logits, rows(2, temperature=0.3, top_k=1, logprobs=[2, -1]))
    chosen, ids, values = found.logprobs[0]
    expected = np.log(softmax(np.array(LOGITS)))
    assert found.logprobs[1] is None
    assert ids.tolist() == [1, 2]
    assert np.allclose(values, expected[[1, 2]], atol=1e-6) and np.isclose(chosen, expected[1], atol=1e-6)
