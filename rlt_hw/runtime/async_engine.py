"""The engine for asyncio: one thread steps it, any number of tasks await their own outputs."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from rlt_hw.errors import ConfigError
from rlt_hw.registry import JointDecision
from rlt_hw.runtime.engine import Engine
from rlt_hw.runtime.outputs import RequestOutput
from rlt_hw.runtime.sampling_params import SamplingParams
from rlt_hw.runtime.stats import EngineStats
from rlt_hw.runtime.tokenizer import Tokenizer

T = TypeVar("T")
Inbox = asyncio.Queue[RequestOutput]


class AsyncEngine:
    """`Engine` behind a thread. Takes the same arguments; use it as an async context manager.

    Only the thread touches the engine: other threads hand it calls, which it runs between two steps.
    """

    def __init__(self, model: str | Path, **options: Any) -> None:
        self._engine = Engine(model, **options)
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._inboxes: dict[str, tuple[asyncio.AbstractEventLoop, Inbox]] = {}
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="rlt-hw engine", daemon=True)
        self._thread.start()

    @property
    def decision(self) -> JointDecision:
        return self._engine.decision

    @property
    def tokenizer(self) -> Tokenizer:
        return self._engine.tokenizer

    @property
    def max_model_len(self) -> int:
        return self._engine.max_model_len

    async def stream(
        self,
        prompt: str | Sequence[int],
        params: SamplingParams | None = None,
        *,
        request_id: str | None = None,
    ) -> AsyncIterator[RequestOutput]:
        """Yield the output so far each time it has grown. Leaving the iteration aborts the request.

        Outputs that come faster than they are read are merged: each holds everything so far.
        """
        loop = asyncio.get_running_loop()
        inbox: Inbox = asyncio.Queue()

        added: list[str] = []

        def add() -> None:
            name = self._engine.add_request(prompt, params, request_id=request_id)
            self._inboxes[name] = (loop, inbox)
            added.append(name)

        try:
            await self._call(add)
            output = await _newest(inbox)
            while not output.finished:
                yield output
                output = await _newest(inbox)
            yield output
        finally:
            self._calls.put(lambda: self._forget(added))

    async def generate(
        self,
        prompt: str | Sequence[int],
        params: SamplingParams | None = None,
        *,
        request_id: str | None = None,
    ) -> RequestOutput:
        """Run one prompt to its end. Cancelling the task aborts the request."""
        async for output in self.stream(prompt, params, request_id=request_id):
            if output.finished:
                return output
        raise AssertionError("a stream ends with a finished output")

    async def abort(self, request_id: str) -> bool:
        """End a request now; its stream gets a last output with finish_reason "abort"."""

        def abort() -> bool:
            found = self._engine.abort(request_id)
            if found:
                self._deliver(request_id)
            return found

        return await self._call(abort)

    async def stats(self) -> EngineStats:
        return await self._call(self._engine.stats)

    async def close(self) -> None:
        """Abort what runs, stop the thread and give the memory back."""
        if self._closed:
            return
        self._closed = True
        self._calls.put(None)
        await asyncio.to_thread(self._thread.join)
        while not self._calls.empty():
            if (call := self._calls.get()) is not None:
                call()
        for name in list(self._inboxes):
            self._engine.abort(name)
            self._deliver(name)
        self._engine.close()

    async def __aenter__(self) -> AsyncEngine:  # noqa: PYI034 - Self needs Python 3.11
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def _call(self, function: Callable[[], T]) -> T:
        """Run a function in the engine's thread."""
        if self._closed:
            raise ConfigError("engine", found="closed", allowed="open", remedy="Create a new AsyncEngine.")
        loop = asyncio.get_running_loop()
        result: asyncio.Future[T] = loop.create_future()

        def settle(value: T | None, error: BaseException | None) -> None:
            if result.cancelled():
                return
            if error is not None:
                result.set_exception(error)
            else:
                result.set_result(value)  # type: ignore[arg-type]

        def run() -> None:
            try:
                value = function()
            except Exception as error:  # noqa: BLE001 - handed to the caller
                loop.call_soon_threadsafe(settle, None, error)
            else:
                loop.call_soon_threadsafe(settle, value, None)

        self._calls.put(run)
        return await result

    def _run(self) -> None:
        """The thread: calls first, then a step; it waits for a call while there is nothing to do."""
        while True:
            idle = not self._engine.has_work()
            try:
                call = self._calls.get(block=idle)
            except queue.Empty:
                for name in self._engine.step():
                    self._deliver(name)
                continue
            if call is None:
                return
            call()

    def _deliver(self, name: str) -> None:
        if name not in self._inboxes:
            return
        loop, inbox = self._inboxes[name]
        loop.call_soon_threadsafe(inbox.put_nowait, self._engine.output(name))

    def _forget(self, names: Sequence[str]) -> None:
        for name in names:
            self._inboxes.pop(name, None)
            self._engine.release(name)


async def _newest(inbox: Inbox) -> RequestOutput:
    """The newest output, waiting for one where none has come; older ones are part of it."""
    output = await inbox.get()
    while not inbox.empty():
        output = inbox.get_nowait()
    return output
