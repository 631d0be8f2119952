"""How a step reaches the device: index tensors, loops, exits, KV fills, sampling.

The runner turns a plan into tensors and tensors into a result; it never decides who runs. What
tokens carry between loops lives in the flight, in the order of the last plan; a row that the
next plan's `source` does not name is gone with it.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
import torch

from rlt_hw.backends.kv.interface import KVCache, KVGeometry
from rlt_hw.models.interface import Attend, LoopedModel, State, Tokens
from rlt_hw.models.spec import KVLayout, Stage
from rlt_hw.runtime.attention import PhasedAttention
from rlt_hw.runtime.index import Rows, StageIndex, skipped_planes
from rlt_hw.runtime.sampler import Sampler
from rlt_hw.runtime.step import SamplingRows, StepPlan, StepResult


@dataclass
class Flight:
    """What the rows of the last plan carry between loops.

    state: per token. memory: the exit rule's, per row, empty where no row was gated.
    held: per row, the state whose exit was selected while the loops go on; chosen: int32 [rows],
    the loops that state had run, 0 while nothing was selected.
    """

    rows: Rows
    state: State
    memory: State
    held: State
    chosen: torch.Tensor


class StageAttention:
    """`Attend` for one stage: writes new keys and values, then attends."""

    def __init__(
        self, cache: KVCache, attention: PhasedAttention, group: str, slots: torch.Tensor
    ) -> None:
        self._cache, self._attention, self._group, self._slots = cache, attention, group, slots

    def __call__(
        self, layer: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor
    ) -> torch.Tensor:
        keys_values = self._cache.layer(self._group, layer)
        self._cache.write(keys_values, key, value, self._slots)
        out = torch.empty_like(query)
        self._attention.attend(query, *keys_values, out)
        return out


class Runner:
    """Runs steps of one model over one KV cache on one device."""

    def __init__(
        self,
        model: LoopedModel,
        cache: KVCache,
        geometry: KVGeometry,
        layout: KVLayout,
        attention: PhasedAttention,
        sampler: Sampler,
    ) -> None:
        self._model, self._cache, self._geometry = model, cache, geometry
        self._attention, self._sampler = attention, sampler
        self._groups = {group.stage: group for group in geometry.groups}
        self._selects = layout is KVLayout.FULL
        self._fills = layout is KVLayout.LAST_EXITED
        self._rule = model.exit_rule(model.spec.exit_rules[0]) if model.spec.exit_rules else None
        self._flight: Flight | None = None

    @torch.inference_mode()
    def step(self, plan: StepPlan) -> StepResult:
        """Run a plan. On an exception the cache's pages hold undefined data for the plan's rows."""
        rows = Rows.build(plan.start, plan.length, plan.page_table)
        positions = self._to_device(rows.position)
        angles = self._model.angles(positions)
        tokens = Tokens(self._to_device(plan.token_ids), positions, angles)
        flight = self._board(plan, rows, tokens)
        leaves = self._loop(plan, rows, angles, flight)
        self._flight = flight
        end = plan.loop + plan.loops
        exited = (end >= plan.limit) | (leaves & (end >= plan.min_loops))
        depth = self._depths(end, flight)
        if self._fills and (exited & (end < plan.depth)).any():
            self._fill(plan, rows, exited, end)
        token, bad, logprobs = self._finish(plan, rows, angles, flight, exited)
        return StepResult(exited, depth, token, bad, logprobs)

    def reset(self) -> None:
        """Forget what is in flight."""
        self._flight = None

    def _board(self, plan: StepPlan, rows: Rows, tokens: Tokens) -> Flight:
        """The flight at the start of a step: survivors of the last one and fresh rows."""
        fresh = np.flatnonzero(plan.source < 0)
        old = np.flatnonzero(plan.source >= 0)
        state: State = ()
        if len(fresh):
            state = self._prelude(rows, fresh, tokens)
        if len(old):
            assert self._flight is not None
            state = self._merge(rows, fresh, old, plan.source[old], state, self._flight)
        return self._carry(plan, rows, old, state)

    def _prelude(self, rows: Rows, fresh: np.ndarray, tokens: Tokens) -> State:
        if len(fresh) < len(rows.length):
            picked = self._to_device(rows.tokens_of(fresh))
            angles = tuple(angle[picked] for angle in tokens.angles)
            tokens = Tokens(tokens.ids[picked], tokens.positions[picked], angles)
        group = rows.subset(fresh)
        return self._model.prelude(tokens, self._attend(Stage.PRELUDE, group, np.zeros_like(fresh)))

    def _merge(
        self, rows: Rows, fresh: np.ndarray, old: np.ndarray, source: np.ndarray, state: State, last: Flight
    ) -> State:
        kept = self._to_device(last.rows.tokens_of(source))
        survivors = tuple(part.index_select(0, kept) for part in last.state)
        if not len(fresh):
            order = rows.tokens_of(old)
            if np.array_equal(order, np.arange(len(order))):
                return survivors
        packed = np.concatenate((rows.tokens_of(old), rows.tokens_of(fresh)))
        where = self._to_device(np.argsort(packed))
        parts = zip(survivors, state, strict=True) if state else ((part,) for part in survivors)
        return tuple(torch.cat(pair).index_select(0, where) for pair in parts)

    def _carry(self, plan: StepPlan, rows: Rows, old: np.ndarray, state: State) -> Flight:
        flight = Flight(rows, state, (), (), torch.empty(0))
        if self._rule is None or not plan.gated.any():
            return flight
        last = self._last_states(rows, state)
        flight.memory = self._rule.begin(last)
        flight.chosen = torch.zeros(plan.rows, dtype=torch.int32, device=self._geometry.device)
        flight.held = last if self._selects else ()
        before = self._flight
        if len(old) and before is not None and before.memory:
            to, source = self._to_device(old), self._to_device(plan.source[old])

            def carry(now: State, prior: State) -> State:
                pairs = zip(now, prior, strict=True)
                return tuple(new.index_copy(0, to, old.index_select(0, source)) for new, old in pairs)

            flight.memory = carry(flight.memory, before.memory)
            flight.held = carry(flight.held, before.held)
            (flight.chosen,) = carry((flight.chosen,), (before.chosen,))
        return flight

    def _loop(self, plan: StepPlan, rows: Rows, angles: State, flight: Flight) -> np.ndarray:
        """Run the plan's loops in place; bool [rows], the exit rule says to leave after the last."""
        gated = bool(plan.gated.any())
        thresholds = self._to_device(plan.threshold) if gated else None
        index = self._index(Stage.RECURRENT, rows)
        leaves = None
        for loop in range(plan.loops):
            attend = self._attend_at(Stage.RECURRENT, index, plan.loop + loop)
            flight.state = self._model.recurrent(flight.state, angles, attend)
            if thresholds is not None and self._rule is not None:
                last = self._last_states(rows, flight.state)
                leaves, flight.memory = self._rule.update(flight.memory, last, thresholds)
                if self._selects:
                    self._hold(plan, flight, last, leaves, plan.loop + loop + 1)
        if leaves is None or self._selects:
            return np.zeros(plan.rows, bool)
        return leaves.cpu().numpy() & plan.gated

    def _hold(
        self, plan: StepPlan, flight: Flight, last: State, leaves: torch.Tensor, ran: np.ndarray
    ) -> None:
        """Remember the state of rows whose exit is selected by this loop."""
        eligible = self._to_device(plan.gated & (ran >= plan.min_loops))
        now = leaves & eligible & (flight.chosen == 0)
        flight.chosen = torch.where(now, self._to_device(ran.astype(np.int32)), flight.chosen)
        flight.held = tuple(
            torch.where(now[:, None], new, held) for new, held in zip(last, flight.held, strict=True)
        )

    def _depths(self, end: np.ndarray, flight: Flight) -> np.ndarray:
        if not (self._selects and flight.held):
            return end
        chosen = flight.chosen.cpu().numpy()
        return np.where(chosen > 0, chosen, end)

    def _fill(self, plan: StepPlan, rows: Rows, exited: np.ndarray, end: np.ndarray) -> None:
        """Give the loops a row skipped the KV of the loop it left at."""
        short = np.flatnonzero(exited & (end < plan.depth))
        group = self._groups[Stage.RECURRENT]
        source, target = skipped_planes(
            rows.subset(short),
            group,
            end[short],
            plan.depth[short],
            self._geometry.num_pages,
            self._geometry.page_size,
        )
        self._cache.copy(group.name, self._to_device(source), self._to_device(target))

    def _finish(
        self, plan: StepPlan, rows: Rows, angles: State, flight: Flight, exited: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, dict[int, tuple[float, np.ndarray, np.ndarray]] | None]:
        """Coda for the rows that leave, head and sampling for those that yield a token."""
        token, bad = np.full(plan.rows, -1, np.int64), np.zeros(plan.rows, bool)
        yields = np.flatnonzero(exited & plan.sample)
        leaving = np.flatnonzero(exited) if Stage.CODA in self._groups else yields
        if not len(leaving):
            return token, bad, None
        hidden = self._coda(rows, leaving, yields, angles, self._selected(rows, flight))
        if not len(yields):
            return token, bad, None
        samples = self._sampler(self._model.head(hidden), _pick(plan.sampling, yields))
        token[yields], bad[yields] = samples.token, samples.bad
        logprobs = None
        if samples.logprobs is not None:
            pairs = zip(yields.tolist(), samples.logprobs, strict=True)
            logprobs = {row: found for row, found in pairs if found is not None}
        return token, bad, logprobs

    def _selected(self, rows: Rows, flight: Flight) -> State:
        """The state with the last token of each row replaced by the one its exit selected."""
        if not flight.held:
            return flight.state
        last = self._to_device(rows.last)
        chosen = (flight.chosen > 0)[:, None]
        return tuple(
            part.index_copy(0, last, torch.where(chosen, held, part[last]))
            for part, held in zip(flight.state, flight.held, strict=True)
        )

    def _coda(
        self, rows: Rows, leaving: np.ndarray, yields: np.ndarray, angles: State, state: State
    ) -> torch.Tensor:
        """Head inputs of the yielding rows' last tokens. With coda layers every token of a
        leaving row runs, because later tokens read its keys and values there."""
        if Stage.CODA in self._groups:
            group = rows.subset(leaving)
            picked, attend = rows.tokens_of(leaving), self._attend(Stage.CODA, group, np.zeros_like(leaving))
            outputs = group.last[np.searchsorted(leaving, yields)]
        else:
            picked, attend, outputs = rows.last[yields], _no_layers, np.arange(len(yields))
        at = self._to_device(picked)
        parts, turned = tuple(part[at] for part in state), tuple(angle[at] for angle in angles)
        return self._model.coda(parts, turned, attend)[self._to_device(outputs)]

    def _last_states(self, rows: Rows, state: State) -> State:
        if len(rows.row) == len(rows.length):
            return state
        last = self._to_device(rows.last)
        return tuple(part.index_select(0, last) for part in state)

    def _index(self, stage: Stage, rows: Rows) -> StageIndex:
        geometry = self._geometry
        return StageIndex(
            rows,
            self._groups[stage],
            num_pages=geometry.num_pages,
            page_size=geometry.page_size,
            device=geometry.device,
        )

    def _attend(self, stage: Stage, rows: Rows, loop: np.ndarray) -> Attend:
        if stage not in self._groups:
            return _no_layers
        return self._attend_at(stage, self._index(stage, rows), loop)

    def _attend_at(self, stage: Stage, index: StageIndex, loop: np.ndarray) -> Attend:
        batch, slots = index.at(loop)
        self._attention.prepare(batch)
        return StageAttention(self._cache, self._attention, self._groups[stage].name, slots)

    def _to_device(self, values: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(np.ascontiguousarray(values)).to(self._geometry.device)


def _no_layers(
    layer: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor
) -> torch.Tensor:
    raise AssertionError("a stage without layers has no attention")


def _pick(sampling: SamplingRows, rows: np.ndarray) -> SamplingRows:
    values = {field.name: getattr(sampling, field.name)[rows] for field in fields(SamplingRows)}
    return SamplingRows(**values)
