"""Decode steps on rows that advance by themselves: loaded once, then only launched.

A step embeds each row's newest token, runs its loops, samples, and leaves token, position and loop where
the next step finds them, so the host reads nothing while steps follow each other, and what it needs to
know (token, exit depth) reaches it one step late. Two kinds of step: TOKEN runs a fixed number of loops
and always yields a token; LOOP runs one loop for rows at different depths, decides on the device which
of them leave, and lets those go on with their next token. Both are captured where the graph backend can.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import numpy as np
import torch

from rlt_hw.backends.attention.interface import DecodeAttention, DecodeBatch
from rlt_hw.backends.graphs.interface import Graph, Step
from rlt_hw.backends.kv.interface import KVCache, KVGeometry
from rlt_hw.backends.operators.interface import Operators, Projected
from rlt_hw.backends.operators.rows import DecodeRows, LoopPlanes
from rlt_hw.devices.platform import Platform
from rlt_hw.models.interface import Attend, DeviceStart, ExitRule, LoopedModel, State, Tokens
from rlt_hw.models.spec import KVLayout, Stage
from rlt_hw.runtime.decode_rows import DecodeBuffers
from rlt_hw.runtime.sampler import Sampler
from rlt_hw.runtime.step import StartMode, StepPlan, StepResult

ONE_LOOP = 0


@dataclass(frozen=True)
class StepKind:
    """What is captured. rows: a power of two, or the engine's most. loops: of a TOKEN step, or ONE_LOOP.

    rule: number of the exit rule among the spec's, -1 for none. sampled: whether a row is not greedy.
    """

    rows: int
    loops: int
    rule: int
    sampled: bool


class DecodeStage:
    """`Attend` for one stage of a decode step."""

    def __init__(self, cache: KVCache, attention: DecodeAttention, group: str, batch: DecodeBatch) -> None:
        self._cache, self._attention, self._group, self._batch = cache, attention, group, batch

    def __call__(self, layer: int, projected: Projected) -> torch.Tensor:
        keys, values = self._cache.layer(self._group, layer)
        rotary = projected.rotary
        shape = (projected.tokens, rotary.heads, rotary.head_dim)
        out = torch.empty(shape, dtype=keys.dtype, device=keys.device)
        self._attention.attend_projected(self._batch, projected, keys, values, out)
        return out


class Ticket:
    """A launched step. `plan` is what it ran, which may be fewer loops than were asked for."""

    def __init__(self, plan: StepPlan, result: Callable[[], StepResult], *, free: bool) -> None:
        self.plan, self.free, self._result = plan, free, result

    def result(self) -> StepResult:
        """Waits for the device."""
        return self._result()


class Decoding:
    """The rows, the steps that were captured, and what they need."""

    def __init__(
        self,
        model: LoopedModel,
        cache: KVCache,
        geometry: KVGeometry,
        layout: KVLayout,
        attention: DecodeAttention,
        operators: Operators,
        *,
        graph: Graph,
        platform: Platform,
        sampler: Sampler,
        max_rows: int,
        max_pages: int,
        refill: bool,
    ) -> None:
        self._model, self._cache, self._geometry, self._layout = model, cache, geometry, layout
        self._attention, self._operators, self._graph = attention, operators, graph
        self._platform, self._sampler, self._max_rows = platform, sampler, max_rows
        self._groups = {group.stage: group for group in geometry.groups}
        self._rules: list[ExitRule] = [model.exit_rule(name) for name in model.spec.exit_rules]
        self._loops_mix = refill and set(self._groups) == {Stage.RECURRENT}
        self._buffers = DecodeBuffers(max_rows, max_pages, geometry.device, platform)
        self._steps: dict[StepKind, Step] = {}
        self._kind: StepKind | None = None
        self._rows = 0
        self._state: State = ()
        self._memories: dict[int, State] = {-1: ()}
        self._loop_planes = LoopPlanes.build(
            self._groups[Stage.RECURRENT].plane_of_loop,
            geometry.num_pages,
            geometry.page_size,
            geometry.device,
        )
        with torch.inference_mode():
            positions = torch.arange(max_pages * geometry.page_size, device=geometry.device)
            self._angles = model.angles(positions)
        self._planes = {
            plane: torch.full((max_rows,), plane, dtype=torch.int32, device=geometry.device)
            for plane in range(self._groups[Stage.RECURRENT].planes)
        }

    # What can run here.

    def kind_of(self, plan: StepPlan) -> StepKind | None:
        """The step that runs a plan, or None where the plan needs the host between its loops."""
        if not (
            plan.length.max() == 1
            and plan.sample.all()
            and plan.sampling.logprobs.max() < 0
            and plan.start_mode.max() <= StartMode.ZERO
        ):
            return None
        rows = min(1 << (plan.rows - 1).bit_length(), self._max_rows)
        sampled = bool((plan.sampling.temperature > 0).any() or (plan.start + 1 < plan.stop_from).any())
        if plan.loops == plan.limit.max() and not plan.adaptive.any() and not plan.loop.any():
            return StepKind(rows, plan.loops, -1, sampled) if (plan.depth == plan.limit).all() else None
        rules = np.unique(plan.rule[plan.adaptive])
        if self._loops_mix and self._layout != KVLayout.FULL and len(rules) <= 1:
            return StepKind(rows, ONE_LOOP, int(rules[0]) if len(rules) else -1, sampled)
        return None

    @property
    def going(self) -> StepKind | None:
        """The step whose rows are loaded."""
        return self._kind

    # Launching.

    @torch.inference_mode()
    def launch(self, plan: StepPlan, kind: StepKind, states: Callable[[], tuple[State, State]]) -> Ticket:
        """Run a step of a plan's rows. states(): for rows between loops, the states and the rule's memory
        of all rows."""
        step = self._step_of(kind)
        if plan.alive is None:
            self._buffers.load(plan)
            self._kind, self._rows = kind, plan.rows
            if plan.loop.any():
                self._keep(plan.rows, kind.rule, *states())
        else:
            assert kind == self._kind
            self._buffers.keep(plan.alive)
            self._buffers.load_pages(plan.page_table)
        step()
        found = self._buffers.first(kind.rows).result[:, : plan.rows]
        host = self._platform.pin(torch.empty(found.shape, dtype=found.dtype))
        host.copy_(found, non_blocking=True)
        event = self._platform.event()
        event.record()

        def result() -> StepResult:
            event.synchronize()
            token, depth, exited, bad = host.numpy()
            left = exited.astype(bool)
            return StepResult(left, depth.astype(np.int32), np.where(left, token, -1), left & (bad != 0))

        ran = kind.loops or 1
        return Ticket(plan if plan.loops == ran else plan.with_loops(ran), result, free=True)

    @torch.inference_mode()
    def export(self) -> tuple[State, State]:
        """States and the exit rule's memory of the rows loaded last, for whoever takes over between loops."""
        rows, rule = self._rows, self._kind.rule if self._kind else -1
        return _copies(self._state, rows), _copies(self._memories[rule], rows)

    def close(self) -> None:
        self._steps.clear()
        self._graph.close()

    def _step_of(self, kind: StepKind) -> Step:
        if kind not in self._steps:
            self._buffers.clear()
            if kind.loops == ONE_LOOP:
                self._allocate(kind.rule)
            run = self._loop_step if kind.loops == ONE_LOOP else self._token_step
            self._steps[kind] = self._graph.capture(
                torch.inference_mode()(lambda: run(kind)), lambda: self._lengths(kind)
            )
        return self._steps[kind]

    def _lengths(self, kind: StepKind) -> list[int]:
        lens, _ = self._operators.board(self._buffers.first(kind.rows), self._loop_planes)
        lengths: list[int] = lens.tolist()
        return lengths

    # The steps. Everything below runs on the device alone.

    def _token_step(self, kind: StepKind) -> None:
        rows = self._buffers.first(kind.rows)
        tokens = self._tokens(rows)
        lens, _ = self._operators.board(rows, self._loop_planes)
        state = self._model.prelude(
            tokens, self._attend(Stage.PRELUDE, rows, lens, self._plane(0, kind.rows))
        )
        plane_of = self._groups[Stage.RECURRENT].plane_of_loop
        for loop in range(kind.loops):
            planes = self._plane(plane_of[loop], kind.rows)
            attend = self._attend(Stage.RECURRENT, rows, lens, planes)
            state = self._model.recurrent(state, tokens.angles, attend)
        attend = self._attend(Stage.CODA, rows, lens, self._plane(0, kind.rows))
        logits = self._model.head(self._model.coda(state, tokens.angles, attend))
        token, bad = self._sampler.on_device(logits, rows, self._operators, sampled=kind.sampled)
        ran = torch.full_like(rows.loop, kind.loops)
        self._operators.advance(rows, token, bad, rows.active, ran)

    def _loop_step(self, kind: StepKind) -> None:
        rows = self._buffers.first(kind.rows)
        tokens = self._tokens(rows)
        lens, planes = self._operators.board(rows, self._loop_planes)
        states = tuple(part[: kind.rows] for part in self._state)
        memory = tuple(part[: kind.rows] for part in self._memories[kind.rule])
        rule = self._rules[kind.rule] if kind.rule >= 0 else None
        fresh = rows.loop == 0
        begin = self._model.prelude(tokens, _no_layers)
        state = _chosen(fresh, begin, states)
        if rule is not None:
            memory = _chosen(fresh, rule.begin(begin), memory)
        state = self._model.recurrent(state, tokens.angles, self._attend(Stage.RECURRENT, rows, lens, planes))
        hidden, logits, by_rule = self._model.coda(state, tokens.angles, _no_layers), None, None
        if rule is not None:
            head = _Once(lambda: self._model.head(hidden))
            value, memory = rule.value(memory, state, head)
            by_rule, logits = rule.leaves(value, rows.threshold), head.found
        exited, ran = self._operators.leave(rows, by_rule)
        if logits is None:
            logits = self._model.head(hidden, exited)
        token, bad = self._sampler.on_device(logits, rows, self._operators, sampled=kind.sampled)
        self._keep(kind.rows, kind.rule, state, memory)
        keys, values = self._cache.group(self._groups[Stage.RECURRENT].name)
        self._operators.fill(keys, values, rows, self._loop_planes, exited, ran)
        self._operators.advance(rows, token, bad, exited, ran)

    def _tokens(self, rows: DecodeRows) -> Tokens:
        start = DeviceStart(rows.seed, rows.zero_start > 0)
        angles = tuple(part.index_select(0, rows.position) for part in self._angles)
        return Tokens(rows.token, rows.position, angles, start)

    def _plane(self, plane: int, rows: int) -> torch.Tensor:
        return self._planes[plane][:rows]

    def _attend(self, stage: Stage, rows: DecodeRows, lens: torch.Tensor, planes: torch.Tensor) -> Attend:
        if stage not in self._groups:
            return _no_layers
        batch = DecodeBatch(rows.page_table, planes, self._geometry.num_pages, lens)
        return DecodeStage(self._cache, self._attention, self._groups[stage].name, batch)

    def _keep(self, rows: int, rule: int, state: State, memory: State) -> None:
        """What the first rows carry to their next loop. Without values a memory stays as it is."""
        for buffers, values in ((self._state, state), (self._memories[rule] if memory else (), memory)):
            for buffer, value in zip(buffers, values, strict=True):
                buffer[:rows].copy_(value)

    def _allocate(self, rule: int) -> None:
        """Buffers for what rows carry between loops, of the shapes that a first step shows."""
        with torch.inference_mode():
            begin = self._model.prelude(self._tokens(self._buffers.first(1)), _no_layers)
            self._state = self._state or self._like(begin)
            if rule not in self._memories:
                self._memories[rule] = self._like(self._rules[rule].begin(begin))

    def _like(self, parts: State) -> State:
        return tuple(part.new_zeros((self._max_rows, *part.shape[1:])) for part in parts)


class _Once:
    """Calls once, when first asked."""

    def __init__(self, work: Callable[[], torch.Tensor]) -> None:
        self._work, self.found = work, cast("torch.Tensor | None", None)

    def __call__(self) -> torch.Tensor:
        if self.found is None:
            self.found = self._work()
        return self.found


def _copies(parts: State, rows: int) -> State:
    return tuple(part[:rows].clone() for part in parts)


def _chosen(fresh: torch.Tensor, begin: State, held: State) -> State:
    """`begin` for fresh rows, `held` for the others; all parts have rows first."""

    def choose(new: torch.Tensor, old: torch.Tensor) -> torch.Tensor:
        return torch.where(fresh.view(-1, *(1,) * (new.ndim - 1)), new, old)

    return tuple(choose(new, old) for new, old in zip(begin, held, strict=True))


def _no_layers(layer: int, projected: Projected) -> torch.Tensor:  # noqa: ARG001 - the signature of `Attend`
    raise AssertionError("a stage without layers has no attention")
