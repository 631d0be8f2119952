"""The scheduler against random traffic and against the few rules that a table can hold."""

from __future__ import annotations

import numpy as np
import pytest

from rlt_hw.errors import CapacityError, ConfigError
from rlt_hw.runtime.kv_manager import KVManager
from rlt_hw.runtime.request import Request
from rlt_hw.runtime.scheduler import Scheduler, SchedulerConfig
from tests.runtime.simulation import STOP, random_trace, run_trace, token_at


def check(seed: int) -> int:
    trace = random_trace(seed)
    requests = {request.request_id: request for batch in trace.arrivals.values() for request in batch}
    order = [request.request_id for step in sorted(trace.arrivals) for request in trace.arrivals[step]]
    outcome = run_trace(trace)
    assert set(outcome.reasons) == set(requests)
    for uid, request_id in enumerate(order):
        request, tokens = requests[request_id], outcome.tokens[request_id]
        prompt = len(request.prompt)
        assert tokens == [token_at(uid, prompt + i) for i in range(len(tokens))]
        reason = outcome.reasons[request_id]
        if reason == "length":
            assert len(tokens) == request.max_tokens
        if reason == "stop":
            assert tokens[-1] == STOP and not request.ignore_eos
        assert request.ignore_eos or STOP not in tokens[:-1]
    return outcome.preemptions


def test_random_traffic_never_leaks_starves_or_mixes_requests():
    preemptions = sum(check(seed) for seed in range(400))
    assert preemptions > 20


@pytest.mark.slow
def test_ten_thousand_traces():
    for seed in range(10_000):
        check(1_000_000 + seed)


def scheduler(num_pages: int = 8, **config: object) -> Scheduler:
    values = {"max_num_seqs": 4, "max_batched_tokens": 32, "max_model_len": 32} | config
    kv = KVManager(num_pages=num_pages, page_size=4, max_rows=values["max_num_seqs"], max_tokens_per_row=32)
    return Scheduler(SchedulerConfig(**values), kv)


def request(name: str, prompt: int = 4, max_tokens: int = 4, **fields: object) -> Request:
    return Request(name, np.arange(prompt), max_tokens, **fields)


def test_too_large_for_the_pool_is_refused_at_once():
    with pytest.raises(CapacityError, match="8 pages of 4 tokens"):
        scheduler(max_model_len=40).add(request("big", prompt=30, max_tokens=10))
    with pytest.raises(CapacityError, match="32 tokens in all"):
        scheduler().add(request("long", prompt=30, max_tokens=3))


def test_budget_below_rows_is_refused():
    with pytest.raises(ConfigError, match="at least max_num_seqs"):
        scheduler(max_num_seqs=64)


def test_fixed_depth_runs_a_whole_token_in_one_step():
    it = scheduler()
    it.add(request("a", max_loops=4))
    it.add(request("b", max_loops=4))
    plan = it.plan()
    assert plan.loops == 4 and plan.rows == 2


def test_rows_of_unlike_depth_share_a_step():
    it = scheduler()
    it.add(request("a", max_loops=2))
    it.add(request("b", max_loops=3))
    assert it.plan().loops == 2


def test_a_waiting_request_is_overtaken_a_bounded_number_of_times():
    it = scheduler(num_pages=8, max_num_seqs=4, max_bypass=2)
    it.add(request("running", prompt=16, max_tokens=8))
    it.plan()
    it.add(request("large", prompt=20, max_tokens=4))
    for name in ("small-1", "small-2", "small-3"):
        it.add(request(name, prompt=1, max_tokens=2))
    it.plan()
    seated = {r.request_id for r in it.slots.requests if r}
    assert seated == {"running", "small-1", "small-2"}
    assert [r.request_id for r in it.waiting] == ["large", "small-3"]


def test_cancelled_slot_drops_late_results():
    from rlt_hw.runtime.step import StepResult

    it = scheduler(max_num_seqs=1)
    it.add(request("old"))
    plan = it.plan()
    it.cancel("old")
    it.add(request("new"))
    it.plan()
    ones = np.ones(plan.rows, bool)
    late = StepResult(ones, np.ones(1, np.int32), np.array([7]), ~ones)
    assert it.apply(plan, late) == []
    assert it.slots.known[0] == 4
