"""Early exit of the rows in flight: which rule watches which rows, and what it has decided.

In a layout where exits skip loops a decision makes the row leave. Where every loop runs
anyway (KV layout FULL) it selects the state that feeds the head, and the row goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch

from rlt_hw.models.interface import ExitRule, State
from rlt_hw.runtime.step import StepPlan


@dataclass
class Watch:
    """The rows of one plan that one rule watches, in ascending order.

    memory: the rule's. leaves: bool [rows], its decision after the newest loop. held: the state
    whose exit was selected; chosen: int32 [rows], the loops that state had run, 0 while none.
    """

    rows: np.ndarray
    memory: State
    leaves: torch.Tensor
    held: State
    chosen: torch.Tensor


class Exits:
    """Carries the watches from step to step. `states_of(rows)` gives the rows' newest states."""

    def __init__(self, rules: Sequence[ExitRule], *, selects: bool, device: torch.device) -> None:
        self._rules, self._selects, self._device = rules, selects, device
        self._watches: dict[int, Watch] = {}

    def board(self, plan: StepPlan, states_of: Callable[[np.ndarray], State]) -> None:
        """Start a step: rows that were watched keep their memory, others begin."""
        before, self._watches = self._watches, {}
        for number in np.unique(plan.rule[plan.gated]).tolist():
            rows = np.flatnonzero(plan.gated & (plan.rule == number))
            watch = self._begin(self._rules[number], rows, states_of(rows))
            if number in before:
                _carry(watch, before[number], plan.source[rows])
            self._watches[number] = watch

    def update(
        self,
        plan: StepPlan,
        ran: np.ndarray,
        states_of: Callable[[np.ndarray], State],
        logits_of: Callable[[np.ndarray], torch.Tensor],
    ) -> None:
        """After a loop. ran: loops each row has run by now."""
        for number, watch in self._watches.items():
            rows = watch.rows
            states = states_of(rows)
            thresholds = torch.from_numpy(plan.threshold[rows]).to(self._device)
            rule = self._rules[number]
            value, watch.memory = rule.value(watch.memory, states, partial(logits_of, rows))
            watch.leaves = rule.leaves(value, thresholds)
            if self._selects:
                allowed = torch.from_numpy(ran[rows] >= plan.min_loops[rows]).to(self._device)
                _hold(watch, states, allowed, torch.from_numpy(ran[rows].astype(np.int32)).to(self._device))

    def leaving(self, plan: StepPlan, ran: np.ndarray) -> np.ndarray:
        """bool [rows]: rows that leave by a rule's decision. Reads the device where any is watched."""
        leaves = np.zeros(plan.rows, bool)
        if not self._selects:
            for watch in self._watches.values():
                leaves[watch.rows] = watch.leaves.cpu().numpy()
        return leaves & (ran >= plan.min_loops)

    def depth(self, ran: np.ndarray) -> np.ndarray:
        """int32 [rows]: loops behind the state that feeds the head."""
        depth = ran.astype(np.int32)
        if self._selects:
            for watch in self._watches.values():
                chosen = watch.chosen.cpu().numpy()
                depth[watch.rows] = np.where(chosen > 0, chosen, depth[watch.rows])
        return depth

    def select(self, state: State, last: np.ndarray) -> State:
        """The token states with each row's last token (indices `last`) as its exit selected it."""
        if not self._selects:
            return state
        for watch in self._watches.values():
            where = torch.from_numpy(last[watch.rows]).to(self._device)
            chosen = (watch.chosen > 0)[:, None]
            state = tuple(
                part.index_copy(0, where, torch.where(chosen, held, part[where]))
                for part, held in zip(state, watch.held, strict=True)
            )
        return state

    def adopt(self, plan: StepPlan, memory: State) -> None:
        """Go on with the watches of a plan that ran elsewhere. memory: of its one rule, for every row."""
        self._watches = {}
        rows = np.flatnonzero(plan.adaptive)
        if len(rows):
            at = torch.from_numpy(rows).to(self._device)
            none = torch.zeros(len(rows), dtype=torch.int32, device=self._device)
            parts = tuple(part.index_select(0, at) for part in memory)
            self._watches[int(plan.rule[rows[0]])] = Watch(rows, parts, none.bool(), (), none)

    def memory(self, plan: StepPlan, rule: int) -> State:
        """What a rule remembers of each row of the next plan; of rows it does not watch whatever is there."""
        if rule not in self._watches:
            return ()
        watch = self._watches[rule]
        where = np.clip(np.searchsorted(watch.rows, plan.source), 0, len(watch.rows) - 1)
        at = torch.from_numpy(where).to(self._device)
        return tuple(part.index_select(0, at) for part in watch.memory)

    def reset(self) -> None:
        self._watches = {}

    def _begin(self, rule: ExitRule, rows: np.ndarray, states: State) -> Watch:
        none = torch.zeros(len(rows), dtype=torch.int32, device=self._device)
        held = states if self._selects else ()
        return Watch(rows, rule.begin(states), none.bool(), held, none)


def _carry(watch: Watch, before: Watch, source: np.ndarray) -> None:
    """Copy what rows had before; source: their row in the previous plan, -1 for fresh ones."""
    kept = np.flatnonzero(source >= 0)
    if not len(kept):
        return
    device = watch.chosen.device
    to = torch.from_numpy(kept).to(device)
    origin = torch.from_numpy(np.searchsorted(before.rows, source[kept])).to(device)

    def carried(now: State, prior: State) -> State:
        pairs = zip(now, prior, strict=True)
        return tuple(new.index_copy(0, to, old.index_select(0, origin)) for new, old in pairs)

    watch.memory = carried(watch.memory, before.memory)
    watch.held = carried(watch.held, before.held)
    (watch.chosen,) = carried((watch.chosen,), (before.chosen,))


def _hold(watch: Watch, states: State, allowed: torch.Tensor, ran: torch.Tensor) -> None:
    """Keep the state of rows whose exit this loop selects."""
    now = watch.leaves & allowed & (watch.chosen == 0)
    watch.chosen = torch.where(now, ran, watch.chosen)
    pairs = zip(states, watch.held, strict=True)
    watch.held = tuple(torch.where(now[:, None], new, held) for new, held in pairs)
