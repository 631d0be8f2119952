"""Builds an engine's parts from its options: selection first, then memory, weights and tensors.

Everything that can be refused is refused before weights are read.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rlt_hw.backends.attention.interface import Attention, AttentionGeometry
from rlt_hw.backends.catalog import load_registry
from rlt_hw.backends.kv.interface import KVCache, KVGeometry
from rlt_hw.backends.operators.interface import OperatorOptions, Operators
from rlt_hw.devices.choice import choose_device
from rlt_hw.devices.detect import detect
from rlt_hw.devices.platform import Platform, platform_for
from rlt_hw.errors import CapacityError, ConfigError, UnsupportedError
from rlt_hw.models.config import model_path, published_names, read_spec
from rlt_hw.models.loading import load_model
from rlt_hw.models.spec import KVLayout, ModelSpec
from rlt_hw.reasons import Code
from rlt_hw.registry import AUTO, JointDecision
from rlt_hw.runtime.adapters import Adapters, load_adapters
from rlt_hw.runtime.attention import PhasedAttention
from rlt_hw.runtime.decoding import Decoding
from rlt_hw.runtime.detokenizer import Detokenizer
from rlt_hw.runtime.kv_manager import KVManager, pages_for
from rlt_hw.runtime.memory import DEFAULT_KV_SHARE, KV_SHARE, MemoryPlan, plan_memory
from rlt_hw.runtime.planning import need_of
from rlt_hw.runtime.request import Request
from rlt_hw.runtime.runner import Runner
from rlt_hw.runtime.sampler import Sampler
from rlt_hw.runtime.sampling_params import MAX_SEED, SamplingParams
from rlt_hw.runtime.scheduler import Scheduler, SchedulerConfig
from rlt_hw.runtime.starts import check_states, start_mode
from rlt_hw.runtime.tokenizer import Tokenizer, stop_token_ids

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class EngineOptions:
    """The arguments of `Engine`, which documents them."""

    model: str
    device: str
    dtype: str
    attention: str
    operators: str
    batch_invariant: bool
    kv_cache_dtype: str
    page_size: int | None
    kv_layout: str
    graph: str
    max_num_seqs: int
    max_batched_tokens: int
    max_model_len: int | None
    max_loops: int | None
    kv_cache_bytes: int | None
    load_format: str
    seed: int
    refill: bool

    def __post_init__(self) -> None:
        for name in ("max_num_seqs", "max_batched_tokens", "max_model_len", "max_loops", "kv_cache_bytes"):
            value = getattr(self, name)
            optional = name not in ("max_num_seqs", "max_batched_tokens")
            if not (isinstance(value, int) and value >= 1) and not (optional and value is None):
                raise ConfigError(
                    name,
                    found=repr(value),
                    allowed="a whole number of at least 1" + (", or None" if optional else ""),
                )
        if not isinstance(self.seed, int) or not 0 <= self.seed <= MAX_SEED:
            raise ConfigError("seed", found=repr(self.seed), allowed=f"a whole number from 0 to {MAX_SEED}")


class Assembly:
    """An engine's parts."""

    def __init__(
        self,
        spec: ModelSpec,
        folder: Path | None,
        decision: JointDecision,
        *,
        scheduler: Scheduler,
        runner: Runner,
        cache: KVCache,
        platform: Platform,
        device: torch.device,
        max_loops: int,
    ) -> None:
        self.spec, self.folder, self.decision = spec, folder, decision
        self.scheduler, self.runner, self.cache = scheduler, runner, cache
        self.platform, self.device, self.max_loops = platform, device, max_loops

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """Raises CheckpointError (TOKENIZER) where there is none."""
        if self.folder is None:
            raise ConfigError(
                f"tokenizer of {self.spec.name}",
                found="a published name without files",
                allowed="prompts of token ids, or a checkpoint folder",
                code=Code.TOKENIZER,
            )
        return Tokenizer.from_folder(self.folder, self.spec)

    def request(
        self,
        request_id: str,
        prompt: str | Sequence[int],
        params: SamplingParams,
        seed: int,
        initial_states: np.ndarray | None = None,
    ) -> tuple[Request, Detokenizer | None]:
        """A checked request with its detokenizer, which is None where there is no tokenizer."""
        limits = params.resolve(self.spec, max_loops=self.max_loops)
        ids = self._encode(prompt)
        room = self.scheduler.config.max_model_len - len(ids)
        if room < 1:
            raise CapacityError(
                f"prompt of request {request_id}",
                found=f"{len(ids)} tokens",
                allowed=f"at most {self.scheduler.config.max_model_len - 1}, so that one can follow",
                remedy="Shorten the prompt or raise max_model_len.",
            )
        detokenizer = self._detokenizer(params, text=isinstance(prompt, str))
        request = Request(
            request_id=request_id,
            prompt=ids,
            max_tokens=min(params.max_tokens, room),
            min_tokens=params.min_tokens,
            stop_ids=frozenset(params.stop_token_ids),
            ignore_eos=params.ignore_eos,
            temperature=params.temperature,
            top_k=params.top_k,
            top_p=params.top_p,
            seed=seed,
            logprobs=-1 if params.logprobs is None else params.logprobs,
            min_loops=limits.min_loops,
            max_loops=limits.max_loops,
            rule=0 if limits.rule is None else self.spec.exit_rules.index(limits.rule),
            threshold=float("inf") if limits.threshold is None else limits.threshold,
            trace=self._trace(params),
            start_mode=start_mode(params.initial_state, given=initial_states is not None),
            start_states=initial_states,
        )
        if initial_states is not None:
            check_states(initial_states, self.spec, request)
        return request, detokenizer

    def _trace(self, params: SamplingParams) -> tuple[int, ...]:
        if params.exit_depths and self.scheduler.config.selects_output:
            raise UnsupportedError(
                "exit_depths",
                found="depths for an engine with kv_layout full, where every token runs every loop",
                allowed="a kv_layout in which tokens leave early",
                remedy="Create the engine with kv_layout='last_exited'.",
                code=Code.COMBINATION,
            )
        return params.exit_depths[: params.max_tokens]

    def close(self) -> None:
        """Drop the tensors and give cached memory back."""
        self.runner.close()
        del self.runner, self.cache
        self.platform.release_cached_memory()

    def _encode(self, prompt: str | Sequence[int]) -> np.ndarray:
        if isinstance(prompt, str):
            prompt = self.tokenizer.encode(prompt)
        ids = np.asarray(prompt)
        whole = ids.ndim == 1 and ids.size > 0 and np.issubdtype(ids.dtype, np.integer)
        if not whole or ids.min() < 0 or ids.max() >= self.spec.vocab_size:
            raise ConfigError(
                "prompt",
                found="no tokens" if ids.size == 0 else f"{ids.dtype} values {ids.flat[:4].tolist()}...",
                allowed=f"text, or token ids from 0 to {self.spec.vocab_size - 1}",
            )
        return ids.astype(np.int64)

    def _detokenizer(self, params: SamplingParams, *, text: bool) -> Detokenizer | None:
        has_tokenizer = self.folder is not None and (self.folder / "tokenizer.json").is_file()
        if not (text or params.stop or has_tokenizer):
            return None
        return self.tokenizer.detokenizer(stop=params.stop, min_tokens=params.min_tokens)


def assemble(options: EngineOptions, *, progress: bool = False) -> Assembly:
    """Select, size the pool, load, build. See `Engine` for the errors."""
    spec = read_spec(options.model)
    folder = _folder(options)
    environment = detect()
    device = choose_device(options.device, environment).require()
    max_loops = options.max_loops or spec.loops
    if options.kv_layout != AUTO:
        KVLayout.parse(options.kv_layout)
    need = need_of(
        spec,
        loops=max_loops,
        dtype=options.dtype,
        kv_dtype=options.kv_cache_dtype,
        page_size=options.page_size,
        kv_layout=options.kv_layout,
        graph=options.graph,
        attention=options.attention,
        operators=options.operators,
        batch_invariant=options.batch_invariant,
    )
    decision, adapters = load_adapters(device.target, need, environment, load_registry())
    assert decision.kv_layout is not None
    assert decision.page_size is not None
    layout = KVLayout.parse(str(decision.kv_layout.value))
    platform = platform_for(device.target)
    torch_device = platform.torch_device(device.index)
    platform.set_device(device.index)
    max_model_len = _max_model_len(options, spec)
    memory = _memory(options, spec, decision, platform.memory(device.index).free, max_model_len, max_loops)
    pages = num_pages(options, memory)
    dtype = getattr(torch, str(decision.dtype.value))
    operators: Operators = adapters.operators(
        OperatorOptions(
            torch_device, dtype, max_rows=options.max_num_seqs, batch_invariant=options.batch_invariant
        )
    )
    model = load_model(
        spec,
        folder,
        dtype=dtype,
        device=torch_device,
        operators=operators,
        load_format=options.load_format,
        seed=options.seed,
        progress=progress,
    )
    geometry = KVGeometry(
        groups=spec.kv_groups(layout, max_loops),
        num_pages=pages,
        page_size=int(decision.page_size.value),
        dtype=getattr(torch, str(decision.kv_dtype.value)),
        device=torch_device,
    )
    cache = adapters.kv(geometry)
    stop_ids = frozenset(_stop_ids(folder, spec))
    attention, decode = _attention(adapters, spec, geometry, decision, options, max_model_len)
    sampler = Sampler(stop_ids, torch_device)
    decoding = None
    if decision.graph_level.value == "full":
        decoding = Decoding(
            model,
            cache,
            geometry,
            layout,
            decode,
            operators,
            graph=adapters.graph(torch_device),
            platform=platform,
            sampler=sampler,
            max_rows=options.max_num_seqs,
            max_pages=int(pages_for(max_model_len, geometry.page_size)),
            refill=options.refill,
        )
    runner = Runner(model, cache, geometry, layout, attention, operators, sampler, decoding)
    scheduler = Scheduler(
        SchedulerConfig(
            max_num_seqs=options.max_num_seqs,
            max_batched_tokens=options.max_batched_tokens,
            max_model_len=max_model_len,
            selects_output=layout == KVLayout.FULL,
            sequential=layout == KVLayout.SHARED,
            whole_prompt=layout.whole_prompt,
            refill=options.refill,
        ),
        KVManager(
            num_pages=geometry.num_pages,
            page_size=geometry.page_size,
            max_rows=options.max_num_seqs,
            max_tokens_per_row=max_model_len,
        ),
        stop_ids=stop_ids,
    )
    return Assembly(
        spec,
        folder,
        decision,
        scheduler=scheduler,
        runner=runner,
        cache=cache,
        platform=platform,
        device=torch_device,
        max_loops=max_loops,
    )


def num_pages(options: EngineOptions, memory: MemoryPlan) -> int:
    """Pages of the pool: what kv_cache_bytes holds, or enough for every slot within the free memory.

    Raises CapacityError (MEMORY) when not even one page fits.
    """
    pool = options.kv_cache_bytes if options.kv_cache_bytes is not None else memory.kv_pool or 0
    pages = min(pool // memory.page_bytes, options.max_num_seqs * memory.pages_per_request)
    if pages < 1:
        raise CapacityError(
            "KV cache",
            found=f"room for {pool:,} bytes beside {memory.weights:,} of weights",
            allowed=f"at least one page of {memory.page_size} tokens, {memory.page_bytes:,} bytes",
            remedy="Raise kv_cache_bytes, lower max_loops, or use a smaller page_size.",
            code=Code.MEMORY,
        )
    return pages


def _memory(
    options: EngineOptions, spec: ModelSpec, decision: JointDecision, free: int, context: int, loops: int
) -> MemoryPlan:
    return plan_memory(
        spec,
        layout=KVLayout.parse(str(decision.kv_layout.value)),
        dtype=str(decision.dtype.value),
        kv_dtype=str(decision.kv_dtype.value),
        page_size=int(decision.page_size.value),
        context=context,
        max_num_seqs=options.max_num_seqs,
        max_batched_tokens=options.max_batched_tokens,
        loops=loops,
        total=free,
        kv_share=KV_SHARE.get(decision.target.vendor, DEFAULT_KV_SHARE),
    )


def _folder(options: EngineOptions) -> Path | None:
    """The checkpoint's folder; None for a published name, which only dummy weights can serve."""
    if options.model.rsplit("/", 1)[-1].lower() in {name.lower() for name in published_names()}:
        return None if not Path(options.model).is_dir() else Path(options.model)
    return model_path(options.model)


def _stop_ids(folder: Path | None, spec: ModelSpec) -> tuple[int, ...]:
    if folder is None:
        return spec.stop_token_ids
    has_tokenizer = (folder / "tokenizer.json").is_file()
    return (
        Tokenizer.from_folder(folder, spec).stop_token_ids if has_tokenizer else stop_token_ids(folder, spec)
    )


def _max_model_len(options: EngineOptions, spec: ModelSpec) -> int:
    if options.max_model_len is None:
        return spec.max_context
    if options.max_model_len > spec.max_context:
        raise ConfigError(
            "max_model_len",
            found=str(options.max_model_len),
            allowed=f"at most {spec.max_context}, the context of {spec.name}",
        )
    return options.max_model_len


def _attention(
    adapters: Adapters,
    spec: ModelSpec,
    geometry: KVGeometry,
    decision: JointDecision,
    options: EngineOptions,
    max_model_len: int,
) -> tuple[PhasedAttention, Any]:
    """Attention of both phases, and the decode backend itself."""
    shape = AttentionGeometry(
        num_heads=spec.num_heads,
        num_kv_heads=spec.num_kv_heads,
        head_dim=spec.head_dim,
        page_size=geometry.page_size,
        scale=spec.head_dim**-0.5,
        dtype=getattr(torch, str(decision.dtype.value)),
        device=geometry.device,
        max_rows=options.max_num_seqs,
        max_tokens=options.max_batched_tokens,
        max_pages_per_row=int(pages_for(max_model_len, geometry.page_size)),
        batch_invariant=options.batch_invariant,
    )
    decode: Attention = adapters.decode(shape)
    same = adapters.prefill is adapters.decode
    return PhasedAttention(decode if same else adapters.prefill(shape), decode), decode
