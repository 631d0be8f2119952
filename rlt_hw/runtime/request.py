"""A request as the scheduler knows it."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from rlt_hw.runtime.step import StartMode


@dataclass
class Request:
    """What is asked, and, while it waits after a preemption, what it had produced.

    prompt: int64 [tokens]. max_tokens: new tokens at most. stop_ids: ids that end it in
    addition to the engine's stop set. seed: for the counter-based sampler.
    min_loops, max_loops, rule, threshold: loop limits and exit rule (its number in the
    spec); threshold is infinite for fixed depth. start_mode, start_states: see `StartMode`;
    float32 [positions, hidden], by absolute position.
    trace: depths to run the generated tokens to, one each from the first on, instead of a rule.
    generated, depths: tokens produced before a preemption and the exit depth of every known
    token but the last, kept so that a resumed request repeats its own past exactly.
    """

    request_id: str
    prompt: np.ndarray
    max_tokens: int
    min_tokens: int = 0
    stop_ids: frozenset[int] = frozenset()
    ignore_eos: bool = False
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0
    logprobs: int = -1
    min_loops: int = 1
    max_loops: int = 1
    rule: int = 0
    threshold: float = float("inf")
    trace: tuple[int, ...] = ()
    start_mode: StartMode = StartMode.RANDOM
    start_states: np.ndarray | None = None
    generated: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
    depths: np.ndarray = field(default_factory=lambda: np.empty(0, np.int32))
    order: int = -1
    bypassed: int = 0
    preemptions: int = 0

    @property
    def known(self) -> int:
        """Tokens whose ids are known: the prompt and what was generated so far."""
        return len(self.prompt) + len(self.generated)
