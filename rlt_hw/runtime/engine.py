"""The engine: prompts in, text out, on the device and backends that selection chose.

It assembles the parts (selection, weights, KV pool, runner, scheduler) once, then only moves
requests between them. Whatever it chose is in `Engine.decision`; nothing changes after start.
"""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch

from rlt_hw.devices.platform import Platform
from rlt_hw.errors import ConfigError, RltHwError
from rlt_hw.models.spec import ModelSpec
from rlt_hw.registry import JointDecision
from rlt_hw.runtime.assembly import Assembly, EngineOptions, assemble
from rlt_hw.runtime.decoding import Ticket
from rlt_hw.runtime.live import Live
from rlt_hw.runtime.outputs import RequestOutput
from rlt_hw.runtime.sampling_params import MAX_SEED, SamplingParams
from rlt_hw.runtime.scheduler import Emission
from rlt_hw.runtime.stats import EngineStats, StatsCollector
from rlt_hw.runtime.step import StepPlan, StepResult
from rlt_hw.runtime.tokenizer import Tokenizer

logger = logging.getLogger(__name__)

Prompt = str | Sequence[int]
T = TypeVar("T")


class Engine:
    """Runs one looped model on one device. Use it as a context manager, or call `close`.

    model: a checkpoint folder or `demo:NAME`. device: "auto", "cpu", "cuda:0", "npu:0" or a target.
    dtype, kv_cache_dtype: "auto", "float32", "bfloat16", "float16". attention, operators: a backend name.
    page_size: tokens a KV page. kv_layout: "full", "last_exited", "shared". graph: a graph level.
    max_num_seqs: requests running at once. max_batched_tokens: tokens in flight at once.
    max_model_len: tokens a request may have in all, default what the model allows. max_loops: loops a
    request may ask for, default the checkpoint's count. kv_cache_bytes: size of the KV pool.
    batch_invariant: a request's tokens must not depend on what else runs, to the bit.
    load_format: "auto" or "dummy" (seeded random weights). seed: for requests that name none.

    Raises UnsupportedError (with the decision) when a choice cannot be honoured, ConfigError for
    bad values, CheckpointError for unusable files and CapacityError when memory does not suffice.
    """

    def __init__(
        self,
        model: str | Path,
        *,
        device: str = "auto",
        dtype: str = "auto",
        attention: str = "auto",
        operators: str = "auto",
        kv_cache_dtype: str = "auto",
        page_size: int | None = None,
        kv_layout: str = "auto",
        graph: str = "auto",
        max_num_seqs: int = 64,
        max_batched_tokens: int = 2048,
        max_model_len: int | None = None,
        max_loops: int | None = None,
        kv_cache_bytes: int | None = None,
        load_format: str = "auto",
        seed: int = 0,
        refill: bool = True,
        batch_invariant: bool = False,
        progress: bool = False,
    ) -> None:
        options = EngineOptions(
            model=str(model),
            device=device,
            dtype=dtype,
            attention=attention,
            operators=operators,
            batch_invariant=batch_invariant,
            kv_cache_dtype=kv_cache_dtype,
            page_size=page_size,
            kv_layout=kv_layout,
            graph=graph,
            max_num_seqs=max_num_seqs,
            max_batched_tokens=max_batched_tokens,
            max_model_len=max_model_len,
            max_loops=max_loops,
            kv_cache_bytes=kv_cache_bytes,
            load_format=load_format,
            seed=seed,
            refill=refill,
        )
        self._parts: Assembly = assemble(options, progress=progress)
        self._live: dict[str, Live] = {}
        self._names = (f"request-{number}" for number in itertools.count())
        self._seeds = ((seed + number) % (MAX_SEED + 1) for number in itertools.count())
        self._stats = StatsCollector()
        self._ticket: Ticket | None = None
        self._closed = False

    # What was chosen, and what is going on.

    @property
    def decision(self) -> JointDecision:
        """Every choice with its reason, and every rejected candidate."""
        return self._parts.decision

    @property
    def tokenizer(self) -> Tokenizer:
        """Raises CheckpointError (TOKENIZER) where the checkpoint has none."""
        return self._parts.tokenizer

    @property
    def spec(self) -> ModelSpec:
        """The model's shapes."""
        return self._parts.spec

    @property
    def platform(self) -> Platform:
        return self._parts.platform

    @property
    def torch_device(self) -> torch.device:
        return self._parts.device

    @property
    def max_model_len(self) -> int:
        return self._parts.scheduler.config.max_model_len

    @property
    def vocab_size(self) -> int:
        return self._parts.spec.vocab_size

    @property
    def max_loops(self) -> int:
        """Loops a request may ask for."""
        return self._parts.max_loops

    @property
    def exit_rules(self) -> tuple[str, ...]:
        """Adaptive exits a request may ask for, the default first; empty where the model has none."""
        return self._parts.spec.exit_rules

    @property
    def exit_defaults(self) -> Mapping[str, float]:
        """Published thresholds by exit rule; empty where a threshold is the user's to choose."""
        return self._parts.spec.exit_defaults

    def stats(self) -> EngineStats:
        """Counters since start and the state of the pool now."""
        return self._stats.snapshot(self._parts.scheduler, self._parts.cache.nbytes())

    # Whole batches.

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        params: SamplingParams | Sequence[SamplingParams] | None = None,
    ) -> list[RequestOutput]:
        """Run prompts to their end; results in the order of the prompts.

        Every prompt is checked before any runs. A request that fails while it runs ends with
        finish_reason "error" and leaves the others alone.
        """
        names = self._submit(prompts, params)
        try:
            while any(not self._live[name].finished for name in names):
                self.step()
            return [self.output(name) for name in names]
        finally:
            self._forget(names)

    def stream(
        self,
        prompts: Prompt | Sequence[Prompt],
        params: SamplingParams | Sequence[SamplingParams] | None = None,
    ) -> Iterator[RequestOutput]:
        """Yield a request's output so far each time it has grown. Closing the iterator aborts."""
        names = self._submit(prompts, params)
        return self._drain(names)

    def chat(
        self,
        messages: Sequence[dict[str, Any]],
        params: SamplingParams | None = None,
        **template: Any,
    ) -> RequestOutput:
        """Answer a conversation through the checkpoint's chat template.

        template: variables such as enable_thinking=True.
        """
        prompt = self.tokenizer.encode_chat(messages, **template)
        return self.generate([prompt], params)[0]

    # One request at a time.

    def add_request(
        self,
        prompt: Prompt,
        params: SamplingParams | None = None,
        *,
        request_id: str | None = None,
        initial_states: np.ndarray | None = None,
    ) -> str:
        """Queue a request and return its id. Nothing is queued when this raises.

        initial_states: float32 [positions, hidden], what the loops of each position start from, in
        families with a random start state; with initial_state "warm", of the prompt's positions.
        """
        self._require_open()
        params = params or SamplingParams()
        name = request_id or next(name for name in self._names if name not in self._live)
        if name in self._live:
            raise ConfigError(
                "request_id",
                found=f"{name!r}, which is in use",
                allowed="an id whose output was released",
                remedy="Choose another id, or release this one first.",
            )
        seed = next(self._seeds) if params.seed is None else params.seed
        request, detokenizer = self._parts.request(name, prompt, params, seed, initial_states)
        self._parts.scheduler.add(request)
        self._live[name] = Live(request, detokenizer)
        self._stats.added(len(request.prompt))
        return name

    def step(self) -> list[str]:
        """Advance everything by one step; ids of the requests that grew or ended."""
        self._require_open()
        ticket = self._ticket or self._launch(self._scheduled(self._parts.scheduler.plan))
        if ticket is None:
            return []
        self._ticket = None
        if isinstance(ticket, list):
            return ticket
        if ticket.free:
            following = self._launch(self._scheduled(lambda: self._parts.scheduler.plan_ahead(ticket.plan)))
            if isinstance(following, list):
                return following
            self._ticket = following
        try:
            result = ticket.result()
        except Exception as error:  # noqa: BLE001 - a fault of the device shows when its results are waited for
            return self._fail(ticket.plan, error)
        self._stats.step(ticket.plan, result)
        emissions = self._scheduled(lambda: self._parts.scheduler.apply(ticket.plan, result))
        return [self._advance(emission, result) for emission in emissions]

    def _launch(self, plan: StepPlan | None) -> Ticket | list[str] | None:
        """Start a plan: its ticket, or the requests that ended because it could not start."""
        if plan is None:
            return None
        try:
            return self._parts.runner.launch(plan)
        except Exception as error:  # noqa: BLE001 - ends the requests in flight, not the engine
            return self._fail(plan, error)

    def _scheduled(self, work: Callable[[], T]) -> T:
        """Do scheduling work, its time counted."""
        begin = time.perf_counter()
        done = work()
        self._stats.scheduling(time.perf_counter() - begin)
        return done

    def output(self, request_id: str) -> RequestOutput:
        """What a request has produced so far."""
        if request_id not in self._live:
            raise ConfigError(
                "request_id", found=repr(request_id), allowed="the id of a request not yet released"
            )
        return self._live[request_id].output()

    def abort(self, request_id: str) -> bool:
        """End a request now; its pages are free at once. False if it is not running."""
        live = self._live.get(request_id)
        if live is None or live.finished:
            return False
        self._parts.scheduler.cancel(request_id)
        live.finish("abort")
        self._stats.ended("abort")
        return True

    def has_work(self) -> bool:
        return self._parts.scheduler.has_work()

    def release(self, request_id: str) -> None:
        """Forget a request's output, aborting it if it still runs."""
        self.abort(request_id)
        self._live.pop(request_id, None)

    def close(self) -> None:
        """Abort what runs and give the memory back. The engine cannot be used again."""
        if self._closed:
            return
        for name in list(self._live):
            self.release(name)
        self._parts.scheduler.kv.check()
        self._parts.close()
        self._closed = True

    def __enter__(self) -> Engine:  # noqa: PYI034 - Self needs Python 3.11
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _submit(
        self,
        prompts: Prompt | Sequence[Prompt],
        params: SamplingParams | Sequence[SamplingParams] | None,
    ) -> list[str]:
        many = _as_batch(prompts)
        each = _params_for(many, params)
        names: list[str] = []
        try:
            for prompt, wanted in zip(many, each, strict=True):
                names.append(self.add_request(prompt, wanted))
        except RltHwError:
            self._forget(names)
            raise
        return names

    def _drain(self, names: list[str]) -> Iterator[RequestOutput]:
        seen = dict.fromkeys(names, 0)
        try:
            while seen:
                self.step()
                for name in list(seen):
                    live = self._live[name]
                    if live.version == seen[name]:
                        continue
                    seen[name] = live.version
                    if live.finished:
                        del seen[name]
                    yield live.output()
        finally:
            self._forget(names)

    def _advance(self, emission: Emission, result: StepResult) -> str:
        name = emission.request.request_id
        live = self._live[name]
        live.advance(emission, result.logprobs.get(emission.row) if result.logprobs else None)
        if live.reason is not None:
            if emission.reason is None:
                self._parts.scheduler.cancel(name)
            self._stats.ended(live.reason)
        return name

    def _fail(self, plan: StepPlan, error: Exception) -> list[str]:
        """End the requests of a plan that could not run. Every row in flight is in the plan."""
        logger.error("a step failed; its requests end with an error", exc_info=error)
        self._ticket = None
        names = self._parts.scheduler.drop(plan)
        for name in names:
            self._live[name].finish("error", f"{type(error).__name__}: {error}")
            self._stats.ended("error")
        self._parts.runner.reset()
        return names

    def _forget(self, names: Sequence[str]) -> None:
        for name in names:
            self.release(name)

    def _require_open(self) -> None:
        if self._closed:
            raise ConfigError(
                "engine", found="closed", allowed="an open engine", remedy="Create a new Engine."
            )


def _as_batch(prompts: Prompt | Sequence[Prompt]) -> list[Prompt]:
    if isinstance(prompts, str) or (len(prompts) > 0 and isinstance(prompts[0], int)):
        return [prompts]  # type: ignore[list-item]
    return list(prompts)  # type: ignore[arg-type]


def _params_for(
    prompts: Sequence[Prompt], params: SamplingParams | Sequence[SamplingParams] | None
) -> list[SamplingParams]:
    if params is None or isinstance(params, SamplingParams):
        return [params or SamplingParams()] * len(prompts)
    if len(params) != len(prompts):
        raise ConfigError(
            "params",
            found=f"{len(params)} for {len(prompts)} prompts",
            allowed="one SamplingParams, or one a prompt",
        )
    return list(params)
