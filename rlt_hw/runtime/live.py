"""A request from arrival to its last output: what it has produced and how it ended."""

from __future__ import annotations

import time

import numpy as np

from rlt_hw.runtime.detokenizer import Detokenizer
from rlt_hw.runtime.outputs import RequestMetrics, RequestOutput, TokenLogprobs
from rlt_hw.runtime.request import Request
from rlt_hw.runtime.scheduler import Emission

Logprobs = tuple[float, np.ndarray, np.ndarray]


class Live:
    """Grows token by token. `version` counts changes, so that a stream knows what is new.

    detokenizer: None where the checkpoint has no tokenizer.
    """

    def __init__(self, request: Request, detokenizer: Detokenizer | None) -> None:
        self.request = request
        self.reason: str | None = None
        self.error: str | None = None
        self.version = 0
        self._detokenizer = detokenizer
        self._tokens: list[int] = []
        self._depths: list[int] = []
        self._logprobs: list[TokenLogprobs] = []
        self._arrival = time.perf_counter()
        self._first: float | None = None
        self._end: float | None = None

    @property
    def finished(self) -> bool:
        return self.reason is not None

    def advance(self, emission: Emission, logprobs: Logprobs | None) -> None:
        """Take a token, and the end if it brought one. A stop string may end the request too."""
        self.version += 1
        if emission.reason == "error":
            self.finish("error", "the model's logits are not finite")
            return
        if self._first is None:
            self._first = time.perf_counter()
        self._tokens.append(emission.token)
        self._depths.append(emission.depth)
        if logprobs is not None:
            chosen, ids, values = logprobs
            top = tuple(zip(ids.tolist(), values.tolist(), strict=True))
            self._logprobs.append(TokenLogprobs(emission.token, chosen, top))
        if self._detokenizer is not None:
            self._detokenizer.add(emission.token)
        if self._detokenizer is not None and self._detokenizer.stopped_by is not None:
            self.finish("stop")
        elif emission.reason is not None:
            self.finish(emission.reason)

    def finish(self, reason: str, error: str | None = None) -> None:
        self.version += 1
        self.reason, self.error = reason, error
        self._end = time.perf_counter()
        if self._detokenizer is not None:
            self._detokenizer.finish()

    def output(self) -> RequestOutput:
        """Everything so far."""
        return RequestOutput(
            request_id=self.request.request_id,
            prompt_token_ids=tuple(self.request.prompt.tolist()),
            token_ids=tuple(self._tokens),
            text=None if self._detokenizer is None else self._detokenizer.text,
            exit_depths=tuple(self._depths),
            finish_reason=self.reason,
            metrics=RequestMetrics(self._arrival, self._first, self._end),
            logprobs=tuple(self._logprobs) if self.request.logprobs >= 0 else None,
            error=self.error,
        )
