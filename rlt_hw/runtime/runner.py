"""How a step reaches the device: index tensors, loops, exits, KV fills, sampling.

The runner turns a plan into tensors and tensors into a result; it never decides who runs. What
tokens carry between loops lives in the flight, in the order of the last plan; a row that the
next plan's `source` does not name is gone with it.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import numpy as np
import torch

from rlt_hw.backends.kv.interface import KVCache, KVGeometry
from rlt_hw.backends.operators.interface import Operators, Projected
from rlt_hw.models.interface import Attend, LoopedModel, Start, State, Tokens
from rlt_hw.models.spec import KVLayout, Stage
from rlt_hw.runtime.attention import PhasedAttention
from rlt_hw.runtime.decoding import Decoding, Ticket
from rlt_hw.runtime.exits import Exits
from rlt_hw.runtime.index import Rows, StageIndex, unwritten_planes
from rlt_hw.runtime.sampler import Sampler, Samples
from rlt_hw.runtime.starts import Starts
from rlt_hw.runtime.step import SamplingRows, StepPlan, StepResult


@dataclass
class Flight:
    """The rows of a plan and the state of their tokens between loops."""

    rows: Rows
    state: State
    angles: State


class StageAttention:
    """`Attend` for one stage at one loop: writes new keys and values, then attends."""

    def __init__(
        self,
        cache: KVCache,
        attention: PhasedAttention,
        operators: Operators,
        group: str,
        slots: torch.Tensor,
    ) -> None:
        self._cache, self._attention, self._operators = cache, attention, operators
        self._group, self._slots = group, slots

    def __call__(self, layer: int, projected: Projected) -> torch.Tensor:
        keys, values = self._cache.layer(self._group, layer)
        query = self._operators.rotate(projected, keys, values, self._slots)
        out = torch.empty_like(query)
        self._attention.attend(query, keys, values, out)
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
        operators: Operators,
        sampler: Sampler,
        decoding: Decoding | None = None,
    ) -> None:
        self._model, self._cache, self._geometry = model, cache, geometry
        self._attention, self._operators, self._sampler = attention, operators, sampler
        self._groups = {group.stage: group for group in geometry.groups}
        rules = [model.exit_rule(name) for name in model.spec.exit_rules]
        self._exits = Exits(rules, selects=layout == KVLayout.FULL, device=geometry.device)
        self._starts = Starts(geometry.device)
        self._flight: Flight | None = None
        self._decoding = decoding
        self._away: StepPlan | None = None

    def launch(self, plan: StepPlan) -> Ticket:
        """Start a step. Decode steps that need nothing of the host run on their own (`Ticket.free`); all
        others are done when this returns. After an exception, here or from the ticket, call `reset`."""
        kind = None
        if self._decoding is not None:
            kind = self._decoding.going if plan.alive is not None else self._decoding.kind_of(plan)
        if self._decoding is None or kind is None:
            self._take_back(plan)
            result = self.step(plan)
            return Ticket(plan, lambda: result, free=False)
        if plan.alive is None:
            self._take_back(plan)
        ticket = self._decoding.launch(plan, kind, lambda: self._between_loops(plan, kind.rule))
        self._flight, self._away = None, plan
        return ticket

    def close(self) -> None:
        """Release what was captured."""
        if self._decoding is not None:
            self._decoding.close()

    def _take_back(self, plan: StepPlan) -> None:
        """Bring the rows that decode steps left between loops back into the flight."""
        if self._away is None or self._decoding is None or self._flight is not None:
            return
        old, self._away = self._away, None
        if not (plan.source >= 0).any():
            return
        state, memory = self._decoding.export()
        positions = np.zeros(old.rows, np.int64)
        rows = Rows.build(positions, np.ones(old.rows, np.int32), old.page_table)
        self._flight = Flight(rows, state, ())
        self._exits.adopt(old, memory)

    def _between_loops(self, plan: StepPlan, rule: int) -> tuple[State, State]:
        """States and the exit rule's memory of every row of a plan; of fresh rows whatever is there."""
        assert self._flight is not None
        source = self._to_device(np.maximum(self._flight.rows.last[np.maximum(plan.source, 0)], 0))
        return _at(self._flight.state, source), self._exits.memory(plan, rule)

    @torch.inference_mode()
    def step(self, plan: StepPlan) -> StepResult:
        """Run a plan. After an exception call `reset`; the plan's rows are lost."""
        flight = self._flight = self._board(plan)
        self._exits.board(plan, self._last_states)
        index = self._index(Stage.RECURRENT, flight.rows)
        for loop in range(plan.loops):
            attend = self._attend_at(Stage.RECURRENT, index, plan.loop + loop)
            flight.state = self._model.recurrent(flight.state, flight.angles, attend)
            self._exits.update(plan, plan.loop + loop + 1, self._last_states, self._logits_now)
        ran = plan.loop + plan.loops
        exited = (ran >= plan.limit) | self._exits.leaving(plan, ran)
        self._fill(plan, exited, ran)
        token, bad = np.full(plan.rows, -1, np.int64), np.zeros(plan.rows, bool)
        logprobs = None
        samples, yields = self._finish(plan, exited)
        if samples is not None:
            token[yields], bad[yields] = samples.token, samples.bad
            logprobs = samples.by_row(yields)
        return StepResult(exited, self._exits.depth(ran), token, bad, logprobs)

    def reset(self) -> None:
        """Forget what is in flight."""
        self._flight = self._away = None
        self._exits.reset()

    def _board(self, plan: StepPlan) -> Flight:
        """The flight at the start of a step: survivors of the last one, and fresh rows."""
        rows = Rows.build(plan.start, plan.length, plan.page_table)
        positions = self._to_device(rows.position)
        angles = self._model.angles(positions)
        fresh, old = np.flatnonzero(plan.source < 0), np.flatnonzero(plan.source >= 0)
        parts = []
        if len(old):
            assert self._flight is not None
            kept = self._to_device(self._flight.rows.tokens_of(plan.source[old]))
            parts.append(tuple(part.index_select(0, kept) for part in self._flight.state))
        if len(fresh):
            tokens = Tokens(self._to_device(plan.token_ids), positions, angles, self._starts(plan, rows))
            parts.append(self._prelude(rows, fresh, tokens))
        packed = np.concatenate((rows.tokens_of(old), rows.tokens_of(fresh)))
        return Flight(rows, self._in_order(parts, packed), angles)

    def _prelude(self, rows: Rows, fresh: np.ndarray, tokens: Tokens) -> State:
        attend = self._attend(Stage.PRELUDE, rows.subset(fresh), np.zeros_like(fresh))
        if len(fresh) == len(rows.length):
            return self._model.prelude(tokens, attend)
        host = rows.tokens_of(fresh)
        picked = self._to_device(host)
        start = tokens.start
        assert isinstance(start, Start)
        chosen = Tokens(
            tokens.ids[picked],
            tokens.positions[picked],
            _at(tokens.angles, picked),
            Start(
                start.seeds[host],
                start.positions[host],
                start.zero[host],
                start.given[host],
                None if start.states is None else start.states[picked],
            ),
        )
        return self._model.prelude(chosen, attend)

    def _in_order(self, parts: list[State], packed: np.ndarray) -> State:
        """Concatenate states whose tokens are `packed` (token indices), in order of the tokens."""
        state = parts[0] if len(parts) == 1 else tuple(torch.cat(pair) for pair in zip(*parts, strict=True))
        if (np.diff(packed) == 1).all():
            return state
        return _at(state, self._to_device(np.argsort(packed)))

    def _fill(self, plan: StepPlan, exited: np.ndarray, ran: np.ndarray) -> None:
        """Give the planes that deeper loops will read, and no loop wrote, the newest loop's KV."""
        short = np.flatnonzero(exited & (ran < plan.depth))
        if not len(short):
            return
        assert self._flight is not None
        group = self._groups[Stage.RECURRENT]
        slots = self._flight.rows.subset(short)
        pages, size = self._geometry.num_pages, self._geometry.page_size
        source, target = unwritten_planes(slots, group, ran[short], plan.depth[short], pages, size)
        self._cache.copy(group.name, self._to_device(source), self._to_device(target))

    def _finish(self, plan: StepPlan, exited: np.ndarray) -> tuple[Samples | None, np.ndarray]:
        """Coda for the rows that leave, head and sampling for those that yield a token."""
        flight = self._flight
        assert flight is not None
        yields = np.flatnonzero(exited & plan.sample)
        leaving = np.flatnonzero(exited)
        self._starts.keep(plan, leaving, lambda: self._model.latent(self._last_states(leaving)))
        if Stage.CODA not in self._groups:
            leaving = yields
        if not len(leaving):
            return None, yields
        state = self._exits.select(flight.state, flight.rows.last)
        hidden = self._coda(flight.rows, leaving, yields, state)
        if not len(yields):
            return None, yields
        return self._sampler(self._model.head(hidden), _pick(plan.sampling, yields)), yields

    def _coda(self, rows: Rows, leaving: np.ndarray, yields: np.ndarray, state: State) -> torch.Tensor:
        """Head inputs of the yielding rows' last tokens. With coda layers every token of a
        leaving row runs, because later tokens read its keys and values there."""
        assert self._flight is not None
        if Stage.CODA in self._groups:
            group = rows.subset(leaving)
            picked, outputs = rows.tokens_of(leaving), group.last[np.searchsorted(leaving, yields)]
            attend = self._attend(Stage.CODA, group, np.zeros_like(leaving))
        else:
            picked, outputs, attend = rows.last[yields], np.arange(len(yields)), _no_layers
        at = self._to_device(picked)
        hidden = self._model.coda(_at(state, at), _at(self._flight.angles, at), attend)
        return hidden if len(outputs) == len(picked) else hidden[self._to_device(outputs)]

    def _last_states(self, rows: np.ndarray) -> State:
        """The newest states of some rows' last tokens."""
        assert self._flight is not None
        last = self._flight.rows.last[rows]
        if len(last) == len(self._flight.rows.row):
            return self._flight.state
        return _at(self._flight.state, self._to_device(last))

    def _logits_now(self, rows: np.ndarray) -> torch.Tensor:
        """What the head would say if these rows left now; their coda entries are provisional."""
        assert self._flight is not None
        flight = self._flight
        ends = flight.rows.start[rows] + flight.rows.length[rows] - 1
        single = Rows.build(ends, np.ones_like(ends), flight.rows.page_table[rows])
        at = self._to_device(flight.rows.last[rows])
        attend = self._attend(Stage.CODA, single, np.zeros_like(rows))
        return self._model.head(self._model.coda(_at(flight.state, at), _at(flight.angles, at), attend))

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
        return StageAttention(self._cache, self._attention, self._operators, self._groups[stage].name, slots)

    def _to_device(self, values: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(np.ascontiguousarray(values)).to(self._geometry.device)


def _at(state: State, tokens: torch.Tensor) -> State:
    return tuple(part.index_select(0, tokens) for part in state)


def _no_layers(layer: int, projected: Projected) -> torch.Tensor:  # noqa: ARG001 - the signature of `Attend`
    raise AssertionError("a stage without layers has no attention")


def _pick(sampling: SamplingRows, rows: np.ndarray) -> SamplingRows:
    return replace(
        sampling, **{field.name: getattr(sampling, field.name)[rows] for field in fields(SamplingRows)}
    )
