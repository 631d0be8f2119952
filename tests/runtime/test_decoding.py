"""Decode steps that advance by themselves give what steps under the host's eye give."""

from __future__ import annotations

import numpy as np
import pytest

from rlt_hw.models.spec import KVLayout
from rlt_hw.runtime.request import Request
from tests.models.golden import case
from tests.runtime.parts import Output, build
from tests.runtime.test_runner import NEW, REFERENCE_POLICIES, random_request, request


@pytest.mark.parametrize("name", ["ouro-a", "ouro-b", "nanbeige-a", "nanbeige-b", "huginn-a", "huginn-b"])
def test_reference_continuations(name):
    golden = case(name)
    layout = KVLayout.parse(golden.model.spec.kv_layouts[0])
    parts = build(golden.model, layout, free=True)
    prompts = golden.prompts()
    requests = [request(key, ids, golden) for key, ids in prompts.items()]
    found = parts.run(requests)
    together = build(golden.model, layout).run([request(key, ids, golden) for key, ids in prompts.items()])
    for key in prompts:
        assert found[key] == together[key]
        if golden.model.spec.family != "huginn":
            assert found[key].ids == golden[f"{key}greedy_ids"][0].tolist()
    assert parts.free_steps >= NEW - 2


@pytest.mark.parametrize("policy", REFERENCE_POLICIES)
@pytest.mark.parametrize("name", ["ouro-a", "ouro-b"])
def test_reference_cache_policies(name, policy):
    golden = case(name)
    threshold = golden.facts["early_exit_threshold_for_decode"]
    adaptive = {} if policy == "shared_kv" else {"threshold": threshold}
    parts = build(golden.model, REFERENCE_POLICIES[policy], free=True)
    ids = golden["input_ids"][0].tolist()
    found = parts.run([request("it", ids, golden, **adaptive)])["it"]
    assert found.ids == golden[f"{policy}.greedy_ids"][0].tolist()
    if adaptive:
        steps = golden[f"{policy}.exit_steps"].tolist()
        assert [depth - 1 for depth in found.depths][-len(steps) :] == steps
    assert (parts.free_steps > 0) == (policy != "exit_full_kv")


def mixed(rng: np.random.Generator, number: int) -> Request:
    """Unlike depths, thresholds, lengths and samplers, some with a rule and some without."""
    made = random_request(rng, number, case("ouro-a"))
    made.max_tokens = int(rng.integers(1, NEW))
    made.min_tokens = int(rng.integers(0, 4))
    made.ignore_eos = False
    made.temperature = float(rng.choice([0.0, 0.7, 1.3]))
    made.top_k, made.top_p, made.seed = int(rng.integers(0, 9)), float(rng.choice([0.6, 1.0])), number
    return made


@pytest.mark.parametrize("layout", ["last_exited", "shared", "ring:2", "anchor:1"])
@pytest.mark.parametrize("seed", range(4))
def test_mixed_traffic_equals_the_step_by_step_run(layout, seed):
    """Requests join, end by stop tokens and lengths, are cancelled and preempted."""
    golden, rng = case("ouro-a"), np.random.default_rng(seed)
    sizes = {"num_pages": int(rng.integers(30, 60)), "max_num_seqs": 4, "max_batched_tokens": 40}
    stop_ids = frozenset(rng.integers(0, golden.model.spec.vocab_size, 40).tolist())
    cancel = {int(rng.integers(5, 60)): f"r{rng.integers(0, 9)}"}
    outputs: list[dict[str, Output]] = []
    for free in (False, True):
        parts = build(golden.model, KVLayout.parse(layout), free=free, stop_ids=stop_ids, **sizes)
        draw = np.random.default_rng(seed)
        requests = [mixed(draw, number) for number in range(9)]
        outputs.append(parts.run(requests, cancel if free else None))
        assert (parts.free_steps > 0) == free
    plain, by_itself = outputs
    gone = next(iter(cancel.values()))
    for name, output in plain.items():
        if name == gone and by_itself[name] != output:
            count = len(by_itself[name].ids)
            assert by_itself[name].ids == output.ids[:count]
            continue
        assert by_itself[name] == output, name


def test_depths_of_a_row_alone_and_in_a_batch():
    golden = case("ouro-b")
    prompt = golden["input_ids"][0].tolist()
    alone = build(golden.model, KVLayout.LAST_EXITED, free=True).run(
        [request("it", prompt, golden, threshold=0.5)]
    )["it"]
    many = [request(f"r{i}", prompt[: 3 + i], golden, threshold=0.3 + 0.1 * i) for i in range(6)]
    parts = build(golden.model, KVLayout.LAST_EXITED, free=True)
    assert parts.run([*many, request("it", prompt, golden, threshold=0.5)])["it"] == alone
    assert len(set(alone.depths)) > 1
