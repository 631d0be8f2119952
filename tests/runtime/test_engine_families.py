"""Nanbeige and Huginn through the engine; mixed traffic in every family equals each request alone."""

from __future__ import annotations

import numpy as np
import pytest

from rlt_hw import ConfigError, Engine, SamplingParams, UnsupportedError
from tests.runtime.test_engine import PROBLEMS, PROMPT

FAMILIES = ("ouro", "nanbeige", "huginn")


def open_engine(family: str, **options: object) -> Engine:
    values = {"max_num_seqs": 8, "max_batched_tokens": 64, "max_model_len": 128} | options
    return Engine(f"demo:{family}", device="cpu", **values)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_solves_a_word_problem(family):
    with open_engine(family) as engine:
        outputs = engine.generate([p["prompt"] for p in PROBLEMS[:4]])
        assert [o.text for o in outputs] == [p["solution"] for p in PROBLEMS[:4]]


def random_params(family: str, rng: np.random.Generator) -> SamplingParams:
    fields: dict = {"max_tokens": int(rng.integers(1, 24)), "seed": int(rng.integers(0, 2**40))}
    fields["temperature"] = float(rng.choice([0.0, 0.7, 3.0]))
    most = {"ouro": 4, "nanbeige": 2, "huginn": 8}[family]
    if rng.random() < 0.5:
        fields["num_loops"] = int(rng.integers(1, most + 1))
    if family == "ouro" and rng.random() < 0.6:
        fields["exit_threshold"] = float(rng.uniform(0.2, 0.95))
    if family == "huginn":
        fields["initial_state"] = str(rng.choice(["random", "zero", "warm"]))
        if rng.random() < 0.6:
            rules = ("latent-diff", "cosine", "entropy-diff", "kl", "minp-kl", "argmax-stability")
            fields["exit_rule"] = str(rng.choice(rules))
    return SamplingParams(**fields)


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_mixed_traffic_equals_each_request_alone(family):
    """40 requests of random length, depth, seed and exit setting, some cancelled at random.

    To the bit: a rule's value may lie so near its threshold that another order of addition decides.
    """
    rng = np.random.default_rng(7)
    with open_engine(family, batch_invariant=True) as engine:
        vocab = engine.vocab_size
        asked = {
            f"r{i}": (rng.integers(3, vocab, int(rng.integers(1, 80))).tolist(), random_params(family, rng))
            for i in range(40)
        }
        waiting, cancelled = list(asked), set()
        while waiting or engine.has_work():
            for _ in range(min(int(rng.integers(0, 4)), len(waiting))):
                name = waiting.pop(0)
                engine.add_request(*asked[name], request_id=name)
            engine.step()
            arrived = [name for name in asked if name not in waiting]
            running = [name for name in arrived if not engine.output(name).finished]
            if running and len(cancelled) < 8 and rng.random() < 0.15:
                cancelled.add(name := str(rng.choice(running)))
                engine.abort(name)
        together = {name: engine.output(name) for name in asked}
        for name in asked:
            engine.release(name)
        assert engine.stats().pages_free == engine.stats().pages_total
        assert len(cancelled) > 2
        for name in asked.keys() - cancelled:
            (alone,) = engine.generate([asked[name][0]], asked[name][1])
            assert together[name].token_ids == alone.token_ids, name
            assert together[name].exit_depths == alone.exit_depths, name


def test_huginn_starts_from_the_states_it_is_given():
    with open_engine("huginn") as engine:
        hidden = engine._parts.spec.hidden_size
        ids = engine.tokenizer.encode(PROMPT)
        params = SamplingParams(max_tokens=8)
        zeros = np.zeros((len(ids) + 8, hidden), np.float32)
        engine.add_request(ids, params, request_id="given", initial_states=zeros)
        while engine.has_work():
            engine.step()
        zero = engine.generate([ids], SamplingParams(max_tokens=8, initial_state="zero"))[0]
        assert engine.output("given").token_ids == zero.token_ids
        with pytest.raises(ConfigError, match="at least"):
            engine.add_request(ids, params, initial_states=zeros[:3])
        with pytest.raises(ConfigError, match="one of the two"):
            engine.add_request(ids, SamplingParams(initial_state="zero"), initial_states=zeros)


def test_what_a_family_lacks_is_refused():
    with open_engine("nanbeige") as engine:
        for fields in ({"exit_threshold": 0.5}, {"exit_rule": "gate"}, {"initial_state": "zero"}):
            with pytest.raises(UnsupportedError) as refused:
                engine.generate(PROMPT, SamplingParams(**fields))
            assert refused.value.code == "MODEL_FEATURE"
        with pytest.raises(UnsupportedError):
            engine.add_request(PROMPT, initial_states=np.zeros((9, 9), np.float32))


@pytest.mark.parametrize(
    "rule", ["latent-diff", "cosine", "entropy-diff", "kl", "minp-kl", "argmax-stability"]
)
def test_huginn_leaves_early_by_every_criterion(rule):
    with open_engine("huginn", max_loops=16) as engine:
        outputs = engine.generate(
            [p["prompt"] for p in PROBLEMS[:4]], SamplingParams(exit_rule=rule, num_loops=16)
        )
        assert [o.text for o in outputs] == [p["solution"] for p in PROBLEMS[:4]]
        assert all(o.mean_exit_depth < 15 for o in outputs)
