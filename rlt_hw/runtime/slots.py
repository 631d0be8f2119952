"""The running requests as arrays: one row a slot, no object per token, plane or layer."""

from __future__ import annotations

import numpy as np

from rlt_hw.runtime.request import Request


class Slots:
    """State of up to `count` running requests of up to `max_len` tokens.

    known: tokens whose ids are known. computed: tokens whose KV is complete. length: tokens in
    flight (0: none). loop: loops those have run. row: their row in the last plan, -1 if none.
    traced: generated tokens whose depth is given. tokens, depths: [count, max_len], ids and exit
    depths by position; pages of memory that no request reaches are never touched.
    """

    def __init__(self, count: int, max_len: int) -> None:
        self.count = count
        self.active = np.zeros(count, bool)
        self.serial = np.zeros(count, np.int64)
        self.order = np.zeros(count, np.int64)
        self.prompt = np.zeros(count, np.int32)
        self.known = np.zeros(count, np.int32)
        self.computed = np.zeros(count, np.int32)
        self.length = np.zeros(count, np.int32)
        self.loop = np.zeros(count, np.int32)
        self.row = np.full(count, -1, np.int32)
        self.last = np.zeros(count, np.int32)
        self.min_tokens = np.zeros(count, np.int32)
        self.min_loops = np.ones(count, np.int32)
        self.max_loops = np.ones(count, np.int32)
        self.rule = np.zeros(count, np.int8)
        self.threshold = np.full(count, np.inf, np.float32)
        self.traced = np.zeros(count, np.int32)
        self.start_mode = np.zeros(count, np.int8)
        self.temperature = np.zeros(count, np.float32)
        self.top_k = np.zeros(count, np.int32)
        self.top_p = np.ones(count, np.float32)
        self.seed = np.zeros(count, np.uint64)
        self.logprobs = np.full(count, -1, np.int32)
        self.ignore_eos = np.zeros(count, bool)
        self.tokens = np.empty((count, max_len), np.int32)
        self.depths = np.empty((count, max_len), np.int16)
        self.requests: list[Request | None] = [None] * count
        self._serials = 0

    def free(self) -> np.ndarray:
        """Slots without a request."""
        return np.flatnonzero(~self.active)

    def find(self, request_id: str) -> int | None:
        for slot in np.flatnonzero(self.active):
            request = self.requests[slot]
            if request is not None and request.request_id == request_id:
                return int(slot)
        return None

    def put(self, slot: int, request: Request) -> None:
        """Seat a request, with what it had produced before a preemption."""
        self._serials += 1
        self.requests[slot] = request
        self.active[slot] = True
        self.serial[slot] = self._serials
        self.order[slot] = request.order
        self.prompt[slot] = len(request.prompt)
        self.known[slot] = request.known
        self.computed[slot] = self.length[slot] = self.loop[slot] = 0
        self.row[slot] = -1
        self.last[slot] = len(request.prompt) + request.max_tokens
        self.min_tokens[slot] = request.min_tokens
        self.min_loops[slot] = request.min_loops
        self.max_loops[slot] = request.max_loops
        self.rule[slot] = request.rule
        self.threshold[slot] = request.threshold
        self.traced[slot] = len(request.trace)
        self.start_mode[slot] = request.start_mode
        self.temperature[slot] = request.temperature
        self.top_k[slot] = request.top_k
        self.top_p[slot] = request.top_p
        self.seed[slot] = request.seed
        self.logprobs[slot] = request.logprobs
        self.ignore_eos[slot] = request.ignore_eos
        self.tokens[slot, : len(request.prompt)] = request.prompt
        self.tokens[slot, len(request.prompt) : request.known] = request.generated
        self.depths[slot, self.prompt[slot] - 1 :][: len(request.trace)] = request.trace
        self.depths[slot, : len(request.depths)] = request.depths

    def take(self, slot: int) -> Request:
        """Unseat a request; it keeps its tokens and depths."""
        request = self.requests[slot]
        assert request is not None
        known, prompt = self.known[slot], self.prompt[slot]
        request.generated = self.tokens[slot, prompt:known].astype(np.int64)
        request.depths = self.depths[slot, : max(known - 1, 0)].astype(np.int32)
        self.requests[slot] = None
        self.active[slot] = False
        self.length[slot] = self.loop[slot] = 0
        self.row[slot] = -1
        return request
