"""Who runs next. Plain Python and numpy: requests in, a step plan out, results applied back.

It batches at loop level: every row in flight takes part in every step, whatever loop it is in,
and what leaves makes room at once. It never sees a tensor and never decides what is computed.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from rlt_hw.errors import CapacityError, ConfigError
from rlt_hw.runtime.kv_manager import KVManager, pages_for
from rlt_hw.runtime.request import Request
from rlt_hw.runtime.slots import Slots
from rlt_hw.runtime.step import SamplingRows, StartMode, StepPlan, StepResult


@dataclass(frozen=True)
class SchedulerConfig:
    """Limits and policy.

    max_batched_tokens: tokens in flight at most. selects_output: an exit only selects which
    loop feeds the head, every loop still runs (KV layout FULL). sequential: one token a row,
    because later tokens read a plane's final version (KV layout SHARED). whole_prompt: a prompt is
    never cut, because the result would depend on where (KV layouts ring and anchor). refill: new rows may
    join while others are between loops; without it a batch runs until every row has left.
    max_bypass: requests that may overtake one that waits for memory, before nothing may.
    max_overtaken: waiting requests looked at in one step beyond those that fit.
    """

    max_num_seqs: int
    max_batched_tokens: int
    max_model_len: int
    selects_output: bool = False
    sequential: bool = False
    whole_prompt: bool = False
    refill: bool = True
    max_bypass: int = 16
    max_overtaken: int = 8

    def __post_init__(self) -> None:
        if self.max_batched_tokens < self.max_num_seqs:
            raise ConfigError(
                "max_batched_tokens",
                found=str(self.max_batched_tokens),
                allowed=f"at least max_num_seqs ({self.max_num_seqs})",
                remedy="Raise max_batched_tokens or lower max_num_seqs.",
            )


class Emission(NamedTuple):
    """A token that a request gained, and how it ended, if it did.

    token: -1 where the request failed. depth: loops that produced the token. row: in the plan.
    reason: None while it goes on, else "stop", "length" or "error".
    """

    request: Request
    token: int
    depth: int
    reason: str | None
    row: int


class Scheduler:
    """Owns the slots, the waiting queue and, through the KV manager, every page."""

    def __init__(
        self, config: SchedulerConfig, kv: KVManager, *, stop_ids: frozenset[int] = frozenset()
    ) -> None:
        self.config = config
        self.kv = kv
        self.slots = Slots(config.max_num_seqs, config.max_model_len)
        self.waiting: deque[Request] = deque()
        self.preemptions = 0
        self._stuck = False  # nothing that waits could be admitted, and no page was freed since
        self._stop_ids = stop_ids
        self._is_stop = np.zeros(max(stop_ids, default=0) + 2, bool)  # the last entry is for all other ids
        self._is_stop[sorted(stop_ids)] = True
        self._arrivals = 0

    def add(self, request: Request) -> None:
        """Queue a request. Raises CapacityError if it could not run even alone."""
        total = len(request.prompt) + request.max_tokens
        if total > self.config.max_model_len:
            raise CapacityError(
                f"request {request.request_id}",
                found=f"{len(request.prompt)} prompt tokens + max_tokens {request.max_tokens}",
                allowed=f"{self.config.max_model_len} tokens in all",
                remedy="Shorten the prompt, lower max_tokens, or raise max_model_len.",
            )
        longest = max(self.config.max_batched_tokens - self.config.max_num_seqs, 1)
        if self.config.whole_prompt and len(request.prompt) > longest:
            raise CapacityError(
                f"request {request.request_id}",
                found=f"a prompt of {len(request.prompt)} tokens, which this KV layout runs in one piece",
                allowed=f"{longest} tokens",
                remedy="Raise max_batched_tokens, or use a KV layout without shared planes.",
            )
        pages = int(pages_for(total - 1, self.kv.page_size))
        if pages > self.kv.num_pages:
            raise CapacityError(
                f"request {request.request_id}",
                found=f"{pages} KV pages needed for {total - 1} tokens",
                allowed=f"{self.kv.num_pages} pages of {self.kv.page_size} tokens in the pool",
                remedy="Raise kv_cache_bytes, or lower max_tokens.",
            )
        request.order = self._arrivals
        self._stuck = False
        self._arrivals += 1
        self.waiting.append(request)

    def cancel(self, request_id: str) -> Request | None:
        """Drop a request wherever it is, freeing its pages at once. None if it is not here."""
        for request in self.waiting:
            if request.request_id == request_id:
                self.waiting.remove(request)
                return request
        slot = self.slots.find(request_id)
        return None if slot is None else self._unseat(slot)

    def drop(self, plan: StepPlan) -> list[str]:
        """Cancel every request of a plan whose results will never come; their ids."""
        return [self._unseat(slot).request_id for slot in plan.slot[self._current(plan)].tolist()]

    def has_work(self) -> bool:
        return bool(self.waiting) or bool(self.slots.active.any())

    def plan(self) -> StepPlan | None:
        """The next step, or None when nothing can run."""
        slots = self.slots
        if self.config.refill or not slots.length.any():
            self._grow_running()
            self._admit()
            self._start_rows()
        rows = np.flatnonzero(slots.length)
        if not len(rows):
            return None
        rows = rows[np.argsort(slots.length[rows] > 1, kind="stable")]
        plan = self._build(rows)
        slots.row[rows] = np.arange(len(rows))
        return plan

    def plan_ahead(self, plan: StepPlan) -> StepPlan | None:
        """One more step of a plan's rows while its results are not known, or None where that must wait.

        The plan's rows are single tokens that go on by themselves. It must wait for what changes the rows:
        a request to admit, memory that runs short, most rows ended.
        """
        slots = self.slots
        alive = self._current(plan)
        joining = bool(self.waiting) and not self._stuck and not slots.active.all()
        if joining or int(slots.active.sum()) != int(alive.sum()):
            return None
        if plan.loops == plan.limit.max() and not plan.adaptive.any():
            alive &= slots.known[plan.slot] + 1 < plan.last
        if 2 * int(alive.sum()) < plan.rows or not alive.any():
            return None
        going = plan.slot[alive]
        tokens = np.minimum(slots.known[going] + 1, slots.last[going] - 1)
        if not self.kv.grow(going, tokens):
            return None
        width = int(pages_for(int(tokens.max()), self.kv.page_size))
        return replace(plan, page_table=self.kv.page_table[plan.slot, :width], alive=alive)

    def apply(self, plan: StepPlan, result: StepResult) -> list[Emission]:
        """Take a step's results back. Rows whose request has gone are dropped."""
        slots = self.slots
        current = self._current(plan)
        here = plan.slot[current]
        slots.length[here], slots.row[here] = plan.length[current], np.flatnonzero(current)
        slots.loop[here] += plan.loops
        left = np.flatnonzero(current & result.exited)
        gone = plan.slot[left]
        slots.depths[gone, slots.computed[gone]] = result.depth[left]
        for row in left[plan.length[left] > 1]:
            slot, length = plan.slot[row], plan.length[row]
            start = slots.computed[slot]
            slots.depths[slot, start : start + length] = plan.depth[row]
            slots.depths[slot, start + length - 1] = result.depth[row]
        slots.computed[gone] += slots.length[gone]
        slots.length[gone] = slots.loop[gone] = 0
        slots.row[gone] = -1
        return self._emit(plan, result, left[plan.sample[left]])

    def _current(self, plan: StepPlan) -> np.ndarray:
        """bool [rows]: rows whose request still has its slot."""
        current: np.ndarray = (self.slots.serial[plan.slot] == plan.serial) & self.slots.active[plan.slot]
        return current

    def _grow_running(self) -> None:
        """Pages for every token the running requests know; the youngest give way."""
        slots = self.slots
        active = np.flatnonzero(slots.active)
        if self.kv.grow(active, slots.known[active]):
            return
        for slot in active[np.argsort(slots.order[active])]:
            while slots.active[slot] and not self.kv.grow(slot[None], slots.known[slot][None]):
                active = np.flatnonzero(slots.active)
                self._preempt(int(active[np.argmax(slots.order[active])]))

    def _preempt(self, slot: int) -> None:
        request = self._unseat(slot)
        request.preemptions += 1
        self.preemptions += 1
        self.waiting = deque(sorted((request, *self.waiting), key=lambda waiting: waiting.order))

    def _admit(self) -> None:
        """Seat waiting requests, oldest first. One that waits for memory may be overtaken a
        bounded number of times. One page a running request is kept back for their growth."""
        overtaken: list[Request] = []
        free = self.slots.free().tolist()
        running = self.slots.count - len(free)
        self._stuck = bool(self.waiting)
        while self.waiting and free and len(overtaken) < self.config.max_overtaken:
            request = self.waiting.popleft()
            pages = int(pages_for(request.known, self.kv.page_size))
            if pages + running > self.kv.free_pages:
                overtaken.append(request)
                if request.bypassed >= self.config.max_bypass:
                    break
                continue
            slot = free.pop(0)
            self.slots.put(slot, request)
            self.kv.grow(np.array([slot]), np.array([request.known]))
            running += 1
            self._stuck = False
            for waiting in overtaken:
                waiting.bypassed += 1
        self.waiting.extendleft(reversed(overtaken))

    def _start_rows(self) -> None:
        """Put idle slots in flight: every single token first, then chunks as the budget allows."""
        slots = self.slots
        idle = np.flatnonzero(slots.active & (slots.length == 0))
        if not len(idle):
            return
        idle = idle[np.argsort(slots.order[idle])]
        wanted = self._wanted(idle)
        chunks_in_flight = int(slots.length[slots.length > 1].sum())
        room = self.config.max_batched_tokens - int(slots.length.sum())
        singles = idle[wanted == 1][:room]
        slots.length[singles] = 1
        if len(singles) == len(idle):
            return
        room -= len(singles)
        chunked, wanted = idle[wanted > 1], wanted[wanted > 1]
        budget = self.config.max_batched_tokens - int(slots.active.sum()) - chunks_in_flight
        budget = min(room, budget if budget > 0 or chunks_in_flight else 1)
        length = np.clip(budget - (np.cumsum(wanted) - wanted), 0, wanted)
        slots.length[chunked] = np.where(length < wanted, 0, length) if self.config.whole_prompt else length

    def _wanted(self, idle: np.ndarray) -> np.ndarray:
        """Tokens each idle slot could run as one row.

        A request that may leave early, or starts a token from the one before, repeats its
        generated tokens one by one after a preemption; its prompt always runs at full depth.
        """
        slots = self.slots
        remaining = slots.known[idle] - slots.computed[idle]
        if self.config.sequential:
            return np.minimum(remaining, 1)
        of_prompt = slots.prompt[idle] - slots.computed[idle]
        one_by_one = (slots.start_mode[idle] >= StartMode.WARM) | self.config.whole_prompt
        if not self.config.selects_output:
            one_by_one |= np.isfinite(slots.threshold[idle]) | (slots.traced[idle] > 0)
        return np.where(one_by_one & (remaining > of_prompt), np.maximum(of_prompt, 1), remaining)

    def _build(self, rows: np.ndarray) -> StepPlan:
        slots = self.slots
        start, length, loop = slots.computed[rows], slots.length[rows], slots.loop[rows]
        sample = start + length == slots.known[rows]
        depth = slots.max_loops[rows]
        gated, limit = self._exits(rows, start, sample, depth)
        left = limit - loop
        if not self.config.selects_output:
            left = np.where(gated, np.maximum(slots.min_loops[rows] - loop, 1), left)
        width = int(slots.computed[rows].max() + length.max())
        return StepPlan(
            loops=int(left.min()),
            slot=rows,
            serial=slots.serial[rows],
            start=start,
            length=length,
            prompt=slots.prompt[rows],
            loop=loop,
            source=np.where(loop > 0, slots.row[rows], -1),
            limit=limit,
            min_loops=slots.min_loops[rows],
            depth=depth,
            gated=gated,
            rule=slots.rule[rows],
            threshold=slots.threshold[rows],
            sample=sample,
            token_ids=self._token_ids(rows, start, length),
            page_table=self.kv.page_table[rows, : int(pages_for(width, self.kv.page_size))],
            last=slots.last[rows],
            stop_from=slots.prompt[rows] + slots.min_tokens[rows],
            start_mode=slots.start_mode[rows],
            given=self._given(rows, start, length, loop),
            sampling=SamplingRows(
                temperature=slots.temperature[rows],
                top_k=slots.top_k[rows],
                top_p=slots.top_p[rows],
                seed=slots.seed[rows],
                position=slots.known[rows].astype(np.int64),
                suppress_stop=slots.known[rows] - slots.prompt[rows] < slots.min_tokens[rows],
                logprobs=slots.logprobs[rows],
            ),
        )

    def _token_ids(self, rows: np.ndarray, start: np.ndarray, length: np.ndarray) -> np.ndarray:
        """Packed in row order, int64."""
        tokens = self.slots.tokens
        if length[-1] == 1:  # single tokens come first, so all are
            return tokens[rows, start].astype(np.int64)
        row = np.repeat(np.arange(len(rows)), length)
        offset = np.arange(len(row)) - np.repeat(np.cumsum(length) - length, length)
        return tokens[rows[row], start[row] + offset].astype(np.int64)

    def _given(
        self, rows: np.ndarray, start: np.ndarray, length: np.ndarray, loop: np.ndarray
    ) -> dict[int, np.ndarray]:
        """Start states that came with the requests of fresh rows, by row."""
        modes = self.slots.start_mode[rows]
        wanted = (modes == StartMode.GIVEN) | (modes == StartMode.WARM_GIVEN)
        found = {}
        for row in np.flatnonzero(wanted & (loop == 0)).tolist():
            request = self.slots.requests[rows[row]]
            assert request is not None
            assert request.start_states is not None
            found[row] = request.start_states[start[row] : start[row] + length[row]]
        return found

    def _exits(
        self, rows: np.ndarray, start: np.ndarray, sample: np.ndarray, depth: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Which rows the exit rule applies to, and after how many loops each leaves at most."""
        slots = self.slots
        adaptive = np.isfinite(slots.threshold[rows])
        if self.config.selects_output:
            return adaptive & sample, depth
        decode = start >= slots.prompt[rows]
        given = start - slots.prompt[rows] + 1 < slots.traced[rows]
        repeats = decode & (given | ((adaptive | (slots.traced[rows] > 0)) & ~sample))
        recorded = slots.depths[rows, start]
        return adaptive & decode & ~repeats, np.where(repeats, recorded, depth).astype(np.int32)

    def _emit(self, plan: StepPlan, result: StepResult, rows: np.ndarray) -> list[Emission]:
        slots = self.slots
        where, token = plan.slot[rows], result.token[rows]
        bad = result.bad[rows]
        slots.tokens[where, slots.known[where]] = token
        slots.known[where] += 1
        produced = slots.known[where] - slots.prompt[where]
        may_stop = ~slots.ignore_eos[where] & (produced > slots.min_tokens[where])
        stopped = self._is_stop[np.minimum(token, len(self._is_stop) - 1)] & may_stop
        full = slots.known[where] >= slots.last[where]
        ended = stopped | full | bad
        emissions = []
        columns = (where, token, result.depth[rows], rows, produced, ended)
        for slot, chosen, depth, row, count, over in zip(*(c.tolist() for c in columns), strict=True):
            request = slots.requests[slot]
            assert request is not None
            reason = None
            if over or request.stop_ids:
                reason = self._reason(request, chosen, count, row, result)
            if reason == "error":
                chosen = -1
                slots.known[slot] -= 1
            if reason:
                self._unseat(slot)
            emissions.append(Emission(request, chosen, depth, reason, row))
        return emissions

    def _reason(
        self, request: Request, token: int, produced: int, row: int, result: StepResult
    ) -> str | None:
        """How a request ends with its newest token, None if it goes on."""
        if result.bad[row]:
            return "error"
        by_engine = not request.ignore_eos and token in self._stop_ids
        if produced > request.min_tokens and (by_engine or token in request.stop_ids):
            return "stop"
        return "length" if produced >= request.max_tokens else None

    def _unseat(self, slot: int) -> Request:
        self._stuck = False
        self.kv.release(slot)
        return self.slots.take(slot)
