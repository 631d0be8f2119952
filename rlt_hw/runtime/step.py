"""What the scheduler asks of the runner for one step, and what comes back. Arrays only.

A row is a run of consecutive tokens of one request that go through the loops together: one
token in decode, a chunk in prefill. Rows of one step may be at different loops. Rows with a single
token come first.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


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
    start: absolute position of the row's first token. length: its tokens.
    loop: loops its tokens have run (0: fresh). source: its row in the previous plan, -1 if fresh.
    limit: it leaves after this many loops. min_loops: it may not leave before.
    depth: loops the request may use at most; planes up to it must be valid when the row leaves.
    gated: bool, the exit rule applies. threshold: float32, of the rule.
    sample: bool, the row ends at the request's last known token, so leaving yields a new one.
    token_ids: int64 [tokens], packed in row order. page_table: int32 [rows, pages].
    """

    loops: int
    slot: np.ndarray
    serial: np.ndarray
    start: np.ndarray
    length: np.ndarray
    loop: np.ndarray
    source: np.ndarray
    limit: np.ndarray
    min_loops: np.ndarray
    depth: np.ndarray
    gated: np.ndarray
    threshold: np.ndarray
    sample: np.ndarray
    token_ids: np.ndarray
    page_table: np.ndarray
    sampling: SamplingRows

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
