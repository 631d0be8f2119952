"""What the scheduler asks of the runner for one step, and what comes back. Arrays only.

A row is a run of consecutive tokens of one request that go through the loops together: one
token in decode, a chunk in prefill. Rows of one step may be at different loops. Rows with a single
token come first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import IntEnum

import numpy as np


class StartMode(IntEnum):
    """What a token's loops start from, in families that do not start from the embedding.

    RANDOM: a state drawn from the request's seed and the position. ZERO: zeros. GIVEN: states that
    came with the request. WARM: the previous position's latent, and in the prompt RANDOM.
    WARM_GIVEN: likewise, and in the prompt GIVEN.
    """

    RANDOM = 0
    ZERO = 1
    GIVEN = 2
    WARM = 3
    WARM_GIVEN = 4


@dataclass(frozen=True)
class SamplingRows:
    """Sampling parameters by row; see `rlt_hw.runtime.sampler`.

    seed: uint64; position: int64, the absolute position of the token to be sampled.
    suppress_stop: the stop set must not be sampled yet (min_tokens).
    logprobs: number of top log-probabilities asked for, -1 for none.
    """

    temperature: np.ndarray
    top_k: np.ndarray
    top_p: np.ndarray
    seed: np.ndarray
    position: np.ndarray
    suppress_stop: np.ndarray
    logprobs: np.ndarray


@dataclass(frozen=True)
class StepPlan:
    """One step: prelude for fresh rows, `loops` loops for every row, coda and sampling for rows
    that leave. int32 [rows] unless said otherwise.

    slot: the request's slot. serial: int64, tells a reused slot from its former owner.
    start: absolute position of the row's first token. length: its tokens. prompt: tokens of the
    request's prompt.
    loop: loops its tokens have run (0: fresh). source: its row in the previous plan, -1 if fresh.
    limit: it leaves after this many loops. min_loops: it may not leave before.
    depth: loops the request may use at most; planes up to it must be valid when the row leaves.
    gated: bool, an exit rule applies: number `rule` (int8) of the spec, with float32 `threshold`.
    sample: bool, the row ends at the request's last known token, so leaving yields a new one.
    token_ids: int64 [tokens], packed in row order. page_table: int32 [rows, pages].
    start_mode: int8, a `StartMode`. given: start states [length, hidden] of GIVEN rows, by row.
    """

    loops: int
    slot: np.ndarray
    serial: np.ndarray
    start: np.ndarray
    length: np.ndarray
    prompt: np.ndarray
    loop: np.ndarray
    source: np.ndarray
    limit: np.ndarray
    min_loops: np.ndarray
    depth: np.ndarray
    gated: np.ndarray
    rule: np.ndarray
    threshold: np.ndarray
    sample: np.ndarray
    token_ids: np.ndarray
    page_table: np.ndarray
    last: np.ndarray
    stop_from: np.ndarray
    start_mode: np.ndarray
    given: Mapping[int, np.ndarray]
    sampling: SamplingRows
    alive: np.ndarray | None = None

    @property
    def adaptive(self) -> np.ndarray:
        """bool [rows]: rows whose generated tokens may leave early, whether or not this one may."""
        adaptive: np.ndarray = np.isfinite(self.threshold)
        return adaptive

    def with_loops(self, loops: int) -> StepPlan:
        """The same rows for another number of loops."""
        return replace(self, loops=loops)

    @property
    def rows(self) -> int:
        return len(self.slot)

    @property
    def tokens(self) -> int:
        return len(self.token_ids)


@dataclass(frozen=True)
class StepResult:
    """exited: bool [rows]. depth: int32 [rows], the exit depth of rows that exited.

    token: int64 [rows], the sampled token, -1 where none. bad: bool [rows], the row's logits were
    not finite and its request must fail. logprobs: (token's, top ids, top values) by row, or None.
    """

    exited: np.ndarray
    depth: np.ndarray
    token: np.ndarray
    bad: np.ndarray
    logprobs: dict[int, tuple[float, np.ndarray, np.ndarray]] | None = None
