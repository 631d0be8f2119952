"""Huginn's published exit criteria: one value a row after each recurrence.

A row leaves when its value is below the threshold; with argmax-stability, when it has reached it.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from rlt_hw.models.interface import ExitRule, State

Logits = Callable[[], torch.Tensor]
Value = tuple[torch.Tensor, State]


class Criterion:
    """What the criteria have in common. vocab_size: of the distributions that some compare."""

    def __init__(self, vocab_size: int) -> None:
        self._vocab_size = vocab_size

    def leaves(self, value: torch.Tensor, thresholds: torch.Tensor) -> torch.Tensor:
        return value < thresholds


class LatentDiff(Criterion):
    """|x - x'| / |x|, where x' is the state one recurrence earlier."""

    def begin(self, states: State) -> State:
        return (states[0],)

    def value(self, memory: State, states: State, logits: Logits) -> Value:
        return self.distance(states[0].float(), memory[0].float()), (states[0],)

    def distance(self, x: torch.Tensor, before: torch.Tensor) -> torch.Tensor:
        return torch.linalg.vector_norm(x - before, dim=-1) / torch.linalg.vector_norm(x, dim=-1)


class Cosine(LatentDiff):
    """1 - cos(x, x')."""

    def distance(self, x: torch.Tensor, before: torch.Tensor) -> torch.Tensor:
        return 1 - torch.cosine_similarity(x, before, dim=-1)


class EntropyDiff(Criterion):
    """|E - E'|, where E is the entropy of the next-token distribution; E' starts at 100."""

    def begin(self, states: State) -> State:
        return (states[0].new_full(states[0].shape[:1], 100.0, dtype=torch.float32),)

    def value(self, memory: State, states: State, logits: Logits) -> Value:
        p = logits().softmax(-1)
        entropy = -(p * (p + 1e-10).log()).sum(-1)
        return (entropy - memory[0]).abs(), (entropy,)


class KL(Criterion):
    """KL(p' | p), where p' is the distribution one recurrence earlier, at first uniform."""

    def begin(self, states: State) -> State:
        uniform = 1.0 / self._vocab_size
        shape = (states[0].shape[0], self._vocab_size)
        return (states[0].new_full(shape, uniform, dtype=torch.float32).log(),)

    def value(self, memory: State, states: State, logits: Logits) -> Value:
        log_p, before = self.log_distribution(logits()), memory[0]
        return (before.exp() * (before - log_p)).nan_to_num(nan=0.0).sum(-1), (log_p,)

    def log_distribution(self, logits: torch.Tensor) -> torch.Tensor:
        return logits.log_softmax(-1)


class MinPKL(KL):
    """KL after probabilities below a tenth of the largest were set to 1 / vocabulary."""

    def log_distribution(self, logits: torch.Tensor) -> torch.Tensor:
        p = logits.softmax(-1)
        p = torch.where(p < 0.1 * p.amax(-1, keepdim=True), 1.0 / self._vocab_size, p)
        return (p / p.sum(-1, keepdim=True)).log()


class ArgmaxStability(Criterion):
    """Number of consecutive recurrences that left the most likely token unchanged."""

    def begin(self, states: State) -> State:
        none = torch.zeros(states[0].shape[0], dtype=torch.int64, device=states[0].device)
        return none - 1, none

    def value(self, memory: State, states: State, logits: Logits) -> Value:
        best = logits().argmax(-1)
        count = torch.where(best == memory[0], memory[1] + 1, 0)
        return count.float(), (best, count)

    def leaves(self, value: torch.Tensor, thresholds: torch.Tensor) -> torch.Tensor:
        return value >= thresholds


RULES: dict[str, Callable[[int], ExitRule]] = {
    "latent-diff": LatentDiff,
    "cosine": Cosine,
    "entropy-diff": EntropyDiff,
    "kl": KL,
    "minp-kl": MinPKL,
    "argmax-stability": ArgmaxStability,
}
