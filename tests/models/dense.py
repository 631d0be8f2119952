"""The float32 dense oracle: one sequence at a time, plain tensors, no pages, no scheduler."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch

from rlt_hw.backends.operators.interface import Projected
from rlt_hw.backends.operators.torch_native import rotated
from rlt_hw.models.interface import Attend, LoopedModel, Start, State, Tokens
from rlt_hw.models.spec import KVLayout, Stage


@dataclass
class DenseCache:
    """Keys and values by (stage, loop, layer), each [positions, kv_heads, head_dim]."""

    entries: dict[tuple[Stage, int, int], tuple[torch.Tensor, torch.Tensor]] = field(default_factory=dict)

    def attend(self, stage: Stage, loop: int) -> Attend:
        def run(layer: int, projected: Projected) -> torch.Tensor:
            query, key, value = rotated(projected)
            where = (stage, loop, layer)
            if where in self.entries:
                keys, values = self.entries[where]
                key, value = torch.cat((keys, key)), torch.cat((values, value))
            self.entries[where] = (key, value)
            return causal(query, key, value)

        return run

    def truncate(self, loop: int, length: int) -> None:
        """Drop what a recurrent loop holds from position `length` on."""
        for where, (keys, values) in self.entries.items():
            if where[:2] == (Stage.RECURRENT, loop):
                self.entries[where] = (keys[:length], values[:length])

    def repeat(self, loop: int, until: int, count: int) -> None:
        """Append the newest `count` entries of a recurrent loop to the loops after it."""
        for (stage, at, layer), (keys, values) in list(self.entries.items()):
            if stage is not Stage.RECURRENT or at != loop:
                continue
            for deeper in range(loop + 1, until):
                where = (stage, deeper, layer)
                old_keys, old_values = self.entries.get(where, (keys[:0], values[:0]))
                self.entries[where] = (
                    torch.cat((old_keys, keys[-count:])),
                    torch.cat((old_values, values[-count:])),
                )


def causal(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """query: [new, heads, dim], key and value: [all, kv_heads, dim]; aligned to the right end."""
    new, heads, dim = query.shape
    total, kv_heads, _ = key.shape
    key = key.repeat_interleave(heads // kv_heads, 1)
    value = value.repeat_interleave(heads // kv_heads, 1)
    scores = torch.einsum("qhd,khd->hqk", query.double(), key.double()) * dim**-0.5
    seen = torch.arange(total)[None] <= torch.arange(total - new, total)[:, None]
    weights = scores.masked_fill(~seen, float("-inf")).softmax(-1)
    return torch.einsum("hqk,khd->qhd", weights, value.double()).to(query.dtype)


def seeded(positions: torch.Tensor) -> Start:
    """Random start states of one request of seed 0, for the families that have them."""
    none = np.zeros(len(positions), bool)
    return Start(np.zeros(len(positions), np.uint64), positions.numpy(), none, none)


@dataclass
class Trace:
    """Everything a forward pass computed. loops: the state after each loop."""

    start: State
    loops: list[State]
    head_input: torch.Tensor
    logits: torch.Tensor
    cache: DenseCache


@torch.inference_mode()
def forward(
    model: LoopedModel,
    ids: list[int] | torch.Tensor,
    *,
    loops: int | None = None,
    cache: DenseCache | None = None,
    position: int = 0,
    start: Start | None = None,
) -> Trace:
    """Run tokens at full depth after what `cache` holds."""
    cache = cache or DenseCache()
    ids = torch.as_tensor(ids, dtype=torch.int64).flatten()
    positions = torch.arange(position, position + len(ids))
    angles = model.angles(positions)
    tokens = Tokens(ids, positions, angles, start or seeded(positions))
    state = begin = model.prelude(tokens, cache.attend(Stage.PRELUDE, 0))
    states = []
    for loop in range(loops or model.spec.loops):
        state = model.recurrent(state, angles, cache.attend(Stage.RECURRENT, loop))
        states.append(state)
    hidden = model.coda(state, angles, cache.attend(Stage.CODA, 0))
    return Trace(begin, states, hidden, model.head(hidden), cache)


def slots(cache: DenseCache) -> dict[tuple[int, int], tuple[torch.Tensor, torch.Tensor]]:
    """Recurrent entries by (loop, layer)."""
    return {where[1:]: entry for where, entry in cache.entries.items() if where[0] is Stage.RECURRENT}


@dataclass
class Generated:
    """A greedy continuation: ids, exit depth and logits of every token."""

    ids: list[int]
    depths: list[int]
    logits: list[torch.Tensor]

    @property
    def margin(self) -> float:
        """Smallest distance between the best and the second-best logit."""
        best = [row.topk(2).values for row in self.logits]
        return min(float(pair[0] - pair[1]) for pair in best)


@torch.inference_mode()
def generate(
    model: LoopedModel,
    prompt: list[int],
    count: int,
    layout: KVLayout,
    *,
    threshold: float = float("inf"),
    min_loops: int = 1,
    max_loops: int | None = None,
) -> Generated:
    """Greedy decoding by the definition of a KV layout and of the gate's exit rule."""
    depth = max_loops or model.spec.loops
    cache, found = DenseCache(), Generated([], [], [])
    ids, position = list(prompt), 0
    while len(found.ids) < count:
        in_prompt = position < len(prompt)
        chunk = 1 if layout == KVLayout.SHARED or not in_prompt else len(prompt)
        last = position + chunk >= len(prompt)
        gated = threshold < float("inf") and last and (layout == KVLayout.FULL or not in_prompt)
        bounds = (threshold if gated else float("inf"), min_loops, depth)
        head_input, ran = _run(model, ids[position : position + chunk], position, cache, layout, bounds)
        position += chunk
        if last:
            logits = model.head(head_input[-1:])[0]
            found.ids.append(int(logits.argmax()))
            found.depths.append(ran)
            found.logits.append(logits)
            ids.append(found.ids[-1])
    return found


def _run(
    model: LoopedModel,
    ids: list[int],
    position: int,
    cache: DenseCache,
    layout: KVLayout,
    bounds: tuple[float, int, int],
) -> tuple[torch.Tensor, int]:
    threshold, low, depth = bounds
    positions = torch.arange(position, position + len(ids))
    angles = model.angles(positions)
    state = model.prelude(
        Tokens(torch.tensor(ids), positions, angles, seeded(positions)), cache.attend(Stage.PRELUDE, 0)
    )
    left, survival, chosen = 0.0, 1.0, None
    for loop in range(depth):
        plane = 0 if layout == KVLayout.SHARED else loop
        if layout == KVLayout.SHARED:
            cache.truncate(plane, position)
        state = model.recurrent(state, angles, cache.attend(Stage.RECURRENT, plane))
        if threshold == float("inf"):
            continue
        leave = float(torch.sigmoid(model.gate(state[0][-1:])))
        left, survival = left + survival * leave, survival * (1 - leave)
        if left >= threshold and loop + 1 >= low and chosen is None:
            chosen = (state, loop + 1)
            if layout != KVLayout.FULL:
                break
    output, ran = chosen or (state, depth)
    if layout == KVLayout.LAST_EXITED:
        cache.repeat(ran - 1, depth, len(ids))
    return model.coda(output, angles, cache.attend(Stage.CODA, 0)), ran
