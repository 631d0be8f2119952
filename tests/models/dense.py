"""The float32 dense oracle: one sequence at a time, plain tensors, no pages, no scheduler."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

import torch

from rlt_hw.models.interface import Attend, LoopedModel, State, Tokens
from rlt_hw.models.spec import Stage


@dataclass
class DenseCache:
    """Keys and values by (stage, loop, layer), each [positions, kv_heads, head_dim]."""

    entries: dict[tuple[Stage, int, int], tuple[torch.Tensor, torch.Tensor]] = field(default_factory=dict)

    def attend(self, stage: Stage, loop: int) -> Attend:
        def run(layer: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
            where = (stage, loop, layer)
            if where in self.entries:
                keys, values = self.entries[where]
                key, value = torch.cat((keys, key)), torch.cat((values, value))
            self.entries[where] = (key, value)
            return causal(query, key, value)

        return run


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
) -> Trace:
    """Run tokens at full depth after what `cache` holds."""
    cache = cache or DenseCache()
    ids = torch.as_tensor(ids, dtype=torch.int64).flatten()
    positions = torch.arange(position, position + len(ids))
    angles = model.angles(positions)
    state = start = model.prelude(Tokens(ids, positions, angles), cache.attend(Stage.PRELUDE, 0))
    states = []
    for loop in range(loops or model.spec.loops):
        state = model.recurrent(state, angles, cache.attend(Stage.RECURRENT, loop))
        states.append(state)
    hidden = model.coda(state, angles, cache.attend(Stage.CODA, 0))
    return Trace(start, states, hidden, model.head(hidden), cache)


def slots(cache: DenseCache) -> dict[tuple[int, int], tuple[torch.Tensor, torch.Tensor]]:
    """Recurrent entries by (loop, layer)."""
    found: dict[tuple[int, int], tuple[torch.Tensor, torch.Tensor]] = defaultdict()
    for (stage, loop, layer), entry in cache.entries.items():
        if stage is Stage.RECURRENT:
            found[loop, layer] = entry
    return found
