"""The one interface of all looped models: prelude, recurrent, coda, head and an exit rule.

A model computes on packed tokens and knows nothing of requests, pages or scheduling. It reaches
earlier tokens only through `Attend`, which writes the new keys and values and attends.
"""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np
import torch

from rlt_hw.backends.operators.interface import Operators, Projected
from rlt_hw.models.spec import ModelSpec

State = tuple[torch.Tensor, ...]
"""What a token carries between loops: float tensors [tokens, ...], the output first."""


@dataclass(frozen=True)
class Start:
    """Where the loops of tokens start, for families whose start state is not the embedding.

    seeds: uint64 [tokens], positions: int64 [tokens], host; together they determine a random state.
    zero: bool [tokens], start from zero instead. given: bool [tokens], start from `states`
    [tokens, hidden] instead, which is None where no token does.
    """

    seeds: np.ndarray
    positions: np.ndarray
    zero: np.ndarray
    given: np.ndarray
    states: torch.Tensor | None = None


@dataclass(frozen=True)
class DeviceStart:
    """The same for starts that are random or zero, known on the device alone.

    seeds: int64 [tokens], the bits of a uint64. zero: bool [tokens].
    """

    seeds: torch.Tensor
    zero: torch.Tensor


@dataclass(frozen=True)
class Tokens:
    """Packed new tokens. ids, positions: int64 [tokens]; angles: from `LoopedModel.angles`."""

    ids: torch.Tensor
    positions: torch.Tensor
    angles: State
    start: Start | DeviceStart


class Attend(Protocol):
    """Causal attention over the cache of one stage's layers."""

    def __call__(self, layer: int, projected: Projected) -> torch.Tensor:
        """Norm and rotate, store keys and values, attend: [tokens, heads, head_dim]."""


class ExitRule(Protocol):
    """An adaptive exit rule, evaluated for one token a row after each loop, on the device.

    `memory` is what the rule remembers of a row between loops: tensors with rows first.
    """

    def begin(self, states: State) -> State:
        """The memory of rows that have run no loop; `states` are their states at that point."""

    def value(
        self, memory: State, states: State, logits: Callable[[], torch.Tensor]
    ) -> tuple[torch.Tensor, State]:
        """After a loop: (float32 [rows], the new memory).

        logits(): what the head would say now, float32 [rows, vocab].
        """

    def leaves(self, value: torch.Tensor, thresholds: torch.Tensor) -> torch.Tensor:
        """bool [rows]. thresholds: float32 [rows]."""


class LoopedModel(Protocol):
    """A loaded model. All tensors live on one device; activations have the model's dtype."""

    spec: ModelSpec
    embedding_name: ClassVar[str]
    """Checkpoint name of the token embedding, which a tied head repeats."""
    ignored_weights: ClassVar[tuple[str, ...]]
    """Patterns of tensors that checkpoints may hold and the model computes itself."""

    @classmethod
    def weight_shapes(cls, spec: ModelSpec) -> dict[str, tuple[int, ...]]:
        """Checkpoint tensor names and shapes that must be there."""

    def __init__(
        self, spec: ModelSpec, weights: MutableMapping[str, torch.Tensor], operators: Operators
    ) -> None: ...

    def angles(self, positions: torch.Tensor) -> State:
        """Rotary (cos, sin), [tokens, head_dim / 2], of int64 positions [tokens]."""

    def prelude(self, tokens: Tokens, attend: Attend) -> State:
        """The state before the first loop."""

    def recurrent(self, state: State, angles: State, attend: Attend) -> State:
        """One loop for every token."""

    def coda(self, state: State, angles: State, attend: Attend) -> torch.Tensor:
        """Head inputs [tokens, hidden]."""

    def head(self, hidden: torch.Tensor, wanted: torch.Tensor | None = None) -> torch.Tensor:
        """Logits, float32 [tokens, vocab]. wanted: int64 [tokens], 0 where what comes out is not used."""

    def exit_rule(self, name: str) -> ExitRule:
        """One of `spec.exit_rules`."""

    def latent(self, state: State) -> torch.Tensor:
        """[tokens, hidden]: what a warm-started next token starts from."""
