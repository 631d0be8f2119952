"""Scheduler and runner together against the reference runs and the dense oracle."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from rlt_hw.backends.attention.torch_reference import TorchReference
from rlt_hw.backends.attention.torch_sdpa import TorchSdpa
from rlt_hw.models.spec import KVLayout
from rlt_hw.runtime.request import Request
from tests.models.dense import generate
from tests.models.golden import ATOL, Case, case
from tests.runtime.parts import build

NEW = 24
ATTENTION = {"reference": TorchReference, "sdpa": TorchSdpa}


def request(name: str, prompt: list[int], golden: Case, **fields: object) -> Request:
    values = {"max_loops": golden.model.spec.loops, "ignore_eos": True} | fields
    return Request(name, np.array(prompt), NEW, **values)


@pytest.mark.parametrize("attention", ATTENTION)
@pytest.mark.parametrize("budget", [64, 9])
@pytest.mark.parametrize("name", ["ouro-a", "ouro-b", "nanbeige-a", "nanbeige-b"])
def test_reference_continuations_in_one_batch(name, budget, attention):
    golden = case(name)
    vocab = golden["decode_logits"].shape[1]
    layout = KVLayout.parse(golden.model.spec.kv_layouts[0])
    parts = build(
        golden.model,
        layout,
        attention=ATTENTION[attention],
        max_batched_tokens=budget,
        split_phases=budget == 9,
    )
    prompts = golden.prompts()
    found = parts.run([request(key, ids, golden, logprobs=vocab) for key, ids in prompts.items()])
    for key in prompts:
        assert found[key].ids == golden[f"{key}greedy_ids"][0].tolist()
        expected = torch.log_softmax(golden[f"{key}decode_logits"], -1).numpy()
        assert np.abs(np.stack(found[key].logprobs) - expected).max() < 2 * ATOL


REFERENCE_POLICIES = {
    "exit_full_kv": KVLayout.FULL,
    "last_exited": KVLayout.LAST_EXITED,
    "shared_kv": KVLayout.SHARED,
}


@pytest.mark.parametrize("budget", [64, 4])
@pytest.mark.parametrize("policy", REFERENCE_POLICIES)
@pytest.mark.parametrize("name", ["ouro-a", "ouro-b"])
def test_reference_cache_policies(name, policy, budget):
    golden = case(name)
    threshold = golden.facts["early_exit_threshold_for_decode"]
    adaptive = {} if policy == "shared_kv" else {"threshold": threshold}
    vocab = golden["decode_logits"].shape[1]
    parts = build(golden.model, REFERENCE_POLICIES[policy], max_batched_tokens=budget, max_num_seqs=4)
    ids = golden["input_ids"][0].tolist()
    beside = request("beside", golden["extra1.input_ids"][0].tolist(), golden, threshold=0.3)
    found = parts.run([request("it", ids, golden, logprobs=vocab, **adaptive), beside])["it"]
    assert found.ids == golden[f"{policy}.greedy_ids"][0].tolist()
    expected = torch.log_softmax(golden[f"{policy}.decode_logits"], -1).numpy()
    assert np.abs(np.stack(found.logprobs) - expected).max() < 2 * ATOL
    if adaptive:
        steps = golden[f"{policy}.exit_steps"].tolist()
        assert [depth - 1 for depth in found.depths][-len(steps) :] == steps


def random_request(rng: np.random.Generator, number: int, golden: Case) -> Request:
    spec = golden.model.spec
    most = int(rng.integers(1, spec.loops + 1))
    return request(
        f"r{number}",
        rng.integers(3, spec.vocab_size, int(rng.integers(1, 30))).tolist(),
        golden,
        max_loops=most,
        min_loops=int(rng.integers(1, most + 1)),
        threshold=float(rng.choice([0.2, 0.4, 0.6, 0.8, np.inf])),
    )


@pytest.mark.parametrize("layout", [KVLayout.FULL, KVLayout.LAST_EXITED, KVLayout.SHARED], ids=str)
@pytest.mark.parametrize("seed", range(3))
def test_mixed_depths_equal_the_dense_oracle(layout, seed):
    """Requests of unlike depth, threshold and length share batches, pages are tight, some are
    preempted and resumed: each gives what it gives alone by definition."""
    golden = case("ouro-a")
    rng = np.random.default_rng(seed)
    requests = [random_request(rng, number, golden) for number in range(6)]
    parts = build(
        golden.model,
        layout,
        num_pages=30,
        max_num_seqs=4,
        max_batched_tokens=int(rng.integers(4, 40)),
        refill=bool(rng.integers(0, 2)),
    )
    found = parts.run(requests)
    for it in requests:
        oracle = generate(
            golden.model,
            it.prompt.tolist(),
            NEW,
            layout,
            threshold=it.threshold,
            min_loops=it.min_loops,
            max_loops=it.max_loops,
        )
        same = found[it.request_id].ids == oracle.ids and found[it.request_id].depths == oracle.depths
        assert same or oracle.margin < 4e-3, it.request_id


def test_preempted_requests_repeat_themselves():
    golden = case("ouro-a")
    rng = np.random.default_rng(5)
    prompts = [rng.integers(3, 500, 9).tolist() for _ in range(4)]

    def run(num_pages: int, seqs: int) -> tuple[dict, int]:
        parts = build(golden.model, KVLayout.LAST_EXITED, num_pages=num_pages, max_num_seqs=seqs)
        made = [
            request(f"r{i}", ids, golden, threshold=0.5, temperature=0.8, seed=i)
            for i, ids in enumerate(prompts)
        ]
        return parts.run(made), parts.scheduler.preemptions

    roomy, none = run(256, 4)
    tight, some = run(11, 2)
    assert none == 0 and some > 0
    assert roomy == tight
