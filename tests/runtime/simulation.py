"""A model-free runner that remembers who wrote each page slot, and random traffic for it.

Token and exit depth of a request at a position are fixed functions of both, so a schedule can change
nothing; every row that runs checks that the pages it would read hold its own past.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from rlt_hw.runtime.kv_manager import KVManager
from rlt_hw.runtime.request import Request
from rlt_hw.runtime.scheduler import Emission, Scheduler, SchedulerConfig
from rlt_hw.runtime.step import StepPlan, StepResult

STOP = 3


def mix(*values: int) -> int:
    state = 0x9E3779B97F4A7C15
    for value in values:
        state = ((state ^ (value + 1)) * 0xBF58476D1CE4E5B9) & (2**64 - 1)
        state ^= state >> 29
    return state


def token_at(uid: int, position: int) -> int:
    return mix(uid, position) % 40


def depth_at(uid: int, position: int, low: int, high: int) -> int:
    return low + mix(uid, position, 7) % (high - low + 1)


@dataclass
class PageMemory:
    """Who wrote each slot of the pool: uid, position and depth; -1 where nobody did."""

    kv: KVManager
    written: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        self.written = np.full((self.kv.num_pages * self.kv.page_size, 3), -1, np.int64)

    def slots(self, plan: StepPlan, row: int, first: int, last: int) -> np.ndarray:
        position = np.arange(first, last)
        pages = plan.page_table[row, position // self.kv.page_size].astype(np.int64)
        assert (pages >= 0).all(), "a row would touch a page it does not own"
        return pages * self.kv.page_size + position % self.kv.page_size


class SimulatedRunner:
    def __init__(self, scheduler: Scheduler, uids: dict[str, int]) -> None:
        self.scheduler, self.uids = scheduler, uids
        self.memory = PageMemory(scheduler.kv)
        self.previous: StepPlan | None = None
        self.rows_run = 0

    def step(self, plan: StepPlan) -> StepResult:
        config = self.scheduler.config
        assert len(np.unique(plan.slot)) == plan.rows, "a slot runs twice"
        assert plan.loops >= 1
        assert (plan.loop + plan.loops <= plan.limit).all()
        assert plan.tokens <= config.max_batched_tokens
        assert not (np.diff((plan.length > 1).astype(int)) < 0).any(), "single tokens come first"
        self._check_sources(plan)
        token = np.full(plan.rows, -1, np.int64)
        exited = np.zeros(plan.rows, bool)
        depth = plan.loop + plan.loops
        for row in range(plan.rows):
            exited[row], depth[row], token[row] = self._run_row(plan, row, int(depth[row]))
        self.previous = plan
        self.rows_run += plan.rows
        return StepResult(exited, depth.astype(np.int32), token, np.zeros(plan.rows, bool))

    def _check_sources(self, plan: StepPlan) -> None:
        for row in np.flatnonzero(plan.loop > 0):
            previous, source = self.previous, plan.source[row]
            assert previous is not None and source >= 0
            assert previous.serial[source] == plan.serial[row]
            assert previous.start[source] == plan.start[row]
            assert previous.length[source] == plan.length[row]
        assert (plan.source[plan.loop == 0] == -1).all()

    def _run_row(self, plan: StepPlan, row: int, end: int) -> tuple[bool, int, int]:
        request = self.scheduler.slots.requests[plan.slot[row]]
        assert request is not None
        uid, start, length = self.uids[request.request_id], int(plan.start[row]), int(plan.length[row])
        if self.scheduler.config.whole_prompt and start < len(request.prompt):
            assert (start, length) == (0, len(request.prompt)), "a prompt was cut"
        past = self.memory.written[self.memory.slots(plan, row, 0, start)]
        assert (past[:, 0] == uid).all() and (past[:, 1] == np.arange(start)).all(), "foreign or stale KV"
        wanted = depth_at(uid, start + length - 1, request.min_loops, request.max_loops)
        if self.scheduler.config.selects_output:
            leaves, depth = end >= plan.limit[row], wanted if plan.gated[row] else end
        else:
            leaves, depth = end >= plan.limit[row] or (plan.gated[row] and end >= wanted), end
        if not leaves:
            return False, end, -1
        self._check_depth(request, uid, start, length, depth)
        here = self.memory.slots(plan, row, start, start + length)
        ids = plan.token_ids[plan.length[:row].sum() :][:length]
        expected = [self._known(request, uid, position) for position in range(start, start + length)]
        assert ids.tolist() == expected, "wrong token ids"
        self.memory.written[here, 0] = uid
        self.memory.written[here, 1] = np.arange(start, start + length)
        token = token_at(uid, start + length) if plan.sample[row] else -1
        return True, depth, token

    def _check_depth(self, request: Request, uid: int, start: int, length: int, depth: int) -> None:
        adaptive = np.isfinite(request.threshold)
        if self.scheduler.config.selects_output:
            return
        prompt = len(request.prompt)
        assert start >= prompt or start + length <= prompt or not adaptive, "a chunk mixes depths"
        want = depth_at(uid, start, request.min_loops, request.max_loops)
        assert depth == (want if adaptive and start >= prompt else request.max_loops)

    def _known(self, request: Request, uid: int, position: int) -> int:
        return int(request.prompt[position]) if position < len(request.prompt) else token_at(uid, position)


@dataclass
class Trace:
    """One random run. `events[step]` is what happens before a step: new requests and cancels."""

    config: SchedulerConfig
    num_pages: int
    page_size: int
    arrivals: dict[int, list[Request]]
    cancels: dict[int, list[str]]


def random_trace(seed: int) -> Trace:
    rng = np.random.default_rng(seed)
    page_size = int(rng.choice([1, 2, 4, 16]))
    max_len = int(rng.integers(8, 33))
    max_seqs = int(rng.integers(1, 6))
    layout = rng.choice(["full", "last_exited", "shared", "ring"])
    config = SchedulerConfig(
        max_num_seqs=max_seqs,
        max_batched_tokens=max_seqs + (max_len if layout == "ring" else int(rng.integers(0, 24))),
        max_model_len=max_len,
        selects_output=layout == "full",
        sequential=layout == "shared",
        whole_prompt=layout == "ring",
        refill=bool(rng.integers(0, 2)),
        max_bypass=int(rng.integers(0, 4)),
    )
    least = -(-max_len // page_size)
    arrivals: dict[int, list[Request]] = {}
    cancels: dict[int, list[str]] = {}
    for number in range(int(rng.integers(1, 8))):
        prompt = int(rng.integers(1, max_len))
        max_loops = int(rng.integers(1, 5))
        step = int(rng.integers(0, 20))
        arrivals.setdefault(step, []).append(
            Request(
                request_id=f"r{number}",
                prompt=rng.integers(0, 40, prompt),
                max_tokens=int(rng.integers(1, max_len - prompt + 1)),
                min_loops=int(rng.integers(1, max_loops + 1)),
                max_loops=max_loops,
                threshold=0.5 if rng.random() < 0.6 else float("inf"),
                ignore_eos=bool(rng.integers(0, 2)),
            )
        )
        if rng.random() < 0.25:
            cancels.setdefault(step + int(rng.integers(0, 15)), []).append(f"r{number}")
    return Trace(config, least + int(rng.integers(0, 2 * least)), page_size, arrivals, cancels)


@dataclass
class Outcome:
    tokens: dict[str, list[int]]
    depths: dict[str, list[int]]
    reasons: dict[str, str]
    steps: int
    preemptions: int


def run_trace(trace: Trace, *, reuse_ids: bool = True) -> Outcome:
    """Run a trace to its end, checking every invariant on the way."""
    kv = KVManager(
        num_pages=trace.num_pages,
        page_size=trace.page_size,
        max_rows=trace.config.max_num_seqs,
        max_tokens_per_row=trace.config.max_model_len,
    )
    scheduler = Scheduler(trace.config, kv, stop_ids=frozenset({STOP}))
    uids: dict[str, int] = {}
    runner = SimulatedRunner(scheduler, uids)
    outcome = Outcome({}, {}, {}, 0, 0)
    last_event = max([*trace.arrivals, *trace.cancels])
    step = 0
    while step <= last_event or scheduler.has_work():
        for request in trace.arrivals.get(step, ()):
            uids[request.request_id] = len(uids)
            outcome.tokens[request.request_id], outcome.depths[request.request_id] = [], []
            scheduler.add(request)
        for request_id in trace.cancels.get(step, ()):
            if scheduler.cancel(request_id) is not None:
                outcome.reasons[request_id] = "abort"
        _one_step(scheduler, runner, outcome)
        kv.check()
        step += 1
        assert step < 20_000, "starvation"
    assert kv.free_pages == kv.num_pages, "pages leaked"
    assert not scheduler.slots.active.any()
    outcome.steps, outcome.preemptions = step, scheduler.preemptions
    return outcome


def _one_step(scheduler: Scheduler, runner: SimulatedRunner, outcome: Outcome) -> None:
    plan = scheduler.plan()
    if plan is None:
        assert not scheduler.has_work(), "work is waiting and nothing runs"
        return
    for emission in scheduler.apply(plan, runner.step(plan)):
        _record(emission, outcome)


def _record(emission: Emission, outcome: Outcome) -> None:
    request_id = emission.request.request_id
    assert request_id not in outcome.reasons, "a token after the end"
    outcome.tokens[request_id].append(emission.token)
    outcome.depths[request_id].append(emission.depth)
    if emission.reason:
        outcome.reasons[request_id] = emission.reason
