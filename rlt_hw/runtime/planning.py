"""What would run a model on a target, and what would fit: without weights, torch or the device.

A target that is here is judged with the packages of this machine; any other one with an assumed machine,
and the report says what was assumed.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from rlt_hw.backends.catalog import load_registry
from rlt_hw.devices.detect import detect
from rlt_hw.devices.environment import Environment
from rlt_hw.devices.facts import find_target
from rlt_hw.devices.facts.memory import product_memory
from rlt_hw.devices.target import Target
from rlt_hw.errors import ConfigError
from rlt_hw.models.config import read_spec
from rlt_hw.models.spec import KVLayout, ModelSpec
from rlt_hw.registry import (
    AUTO,
    LEVELS,
    JointDecision,
    Need,
    Registry,
    assess_jointly,
    first_rejection,
    unsupported,
)
from rlt_hw.runtime.assumed import assumed_environment, assumptions
from rlt_hw.runtime.memory import (
    DEFAULT_KV_SHARE,
    ITEMSIZE,
    KV_SHARE,
    MemoryPlan,
    memory_rejection,
    plan_memory,
)
from rlt_hw.runtime.plan_report import PlanReport

DEFAULT_CONTEXT = 4096
DEFAULT_MAX_NUM_SEQS = 64


def need_of(spec: ModelSpec, *, loops: int | None = None, **asked: Any) -> Need:
    """The need of a model; `asked` are the fields of `Need` that the user may set."""
    return Need(
        num_heads=spec.num_heads,
        num_kv_heads=spec.num_kv_heads,
        head_dim=spec.head_dim,
        model_dtype=spec.dtype,
        allowed_kv_layouts=spec.kv_layouts,
        loops=loops or spec.loops,
        exit_rules=spec.exit_rules,
        **asked,
    )


def plan(model: str | Path | ModelSpec, target: str | Target, **options: Any) -> PlanReport:
    """Plan a model on a target. See `assess_plan` for the options.

    Raises UnsupportedError, with the decision, when it cannot run there; ConfigError for bad values.
    """
    report = assess_plan(model, target, **options)
    if not report.decision.supported:
        raise unsupported(report.decision, first_rejection(report.decision))
    return report


def assess_plan(
    model: str | Path | ModelSpec,
    target: str | Target,
    *,
    attention: str = AUTO,
    prefill: str = AUTO,
    decode: str = AUTO,
    operators: str = AUTO,
    kv_cache_dtype: str = AUTO,
    page_size: int | None = None,
    kv_layout: str = AUTO,
    graph: str = AUTO,
    dtype: str = AUTO,
    tensor_parallel: int = 1,
    max_num_seqs: int = DEFAULT_MAX_NUM_SEQS,
    context: int | None = None,
    memory_bytes: int | None = None,
    environment: Environment | None = None,
    registry: Registry | None = None,
    loops: int | None = None,
    exit_threshold: float | None = None,
    batch_invariant: bool = False,
) -> PlanReport:
    """The report whether or not it can run; a decision that cannot is not `supported`.

    target: "nvidia:sm90", a product name such as "H200", or a Target. context: tokens of a request in all,
    default 4,096 or the model's limit. memory_bytes: the device's memory, default what the device or its
    product has. environment: the machine to judge, default this one if the target is here.
    """
    spec = model if isinstance(model, ModelSpec) else read_spec(model)
    target = target if isinstance(target, Target) else find_target(target)
    context = _context(spec, context)
    if max_num_seqs < 1:
        raise ConfigError("max_num_seqs", found=str(max_num_seqs), allowed="a whole number of at least 1")
    environment, assumed = _environment(target, environment)
    need = need_of(
        spec,
        loops=loops,
        attention=attention,
        prefill=prefill,
        decode=decode,
        operators=operators,
        kv_dtype=kv_cache_dtype,
        page_size=page_size,
        kv_layout=kv_layout,
        graph=graph,
        dtype=dtype,
        tensor_parallel=tensor_parallel,
        exit_threshold=exit_threshold,
        batch_invariant=batch_invariant,
    )
    decision = assess_jointly(target, need, environment, registry or load_registry())
    total, source = _device_memory(target, environment, memory_bytes)
    memory = None
    if decision.supported:
        layout = KVLayout.parse(str(decision.kv_layout.value))
        sized = partial(
            plan_memory,
            spec,
            layout=layout,
            dtype=str(decision.dtype.value),
            kv_dtype=str(decision.kv_dtype.value),
            page_size=int(decision.page_size.value),
            context=context,
            max_num_seqs=max_num_seqs,
            loops=loops,
            total=total,
            kv_share=KV_SHARE.get(target.vendor, DEFAULT_KV_SHARE),
        )
        memory = sized(tensor_parallel=tensor_parallel)
        enough = (size for size in _divisors(spec.num_kv_heads) if sized(tensor_parallel=size).sequences)
        too_big = memory_rejection(memory, spec, layout, next(enough, None))
        if too_big:
            decision = replace(decision, obstacles=(too_big,))
    return PlanReport(
        spec, target, decision, memory, source, max_num_seqs, assumed,
        _notes(spec, decision, memory, max_num_seqs, tensor_parallel),
    )  # fmt: skip


def _divisors(number: int) -> list[int]:
    return [size for size in range(1, number + 1) if number % size == 0]


def _context(spec: ModelSpec, context: int | None) -> int:
    if context is None:
        return min(spec.max_context, DEFAULT_CONTEXT)
    if not 1 <= context <= spec.max_context:
        raise ConfigError(
            "context", found=str(context), allowed=f"1 to {spec.max_context}, the context of {spec.name}"
        )
    return context


def _environment(target: Target, given: Environment | None) -> tuple[Environment, tuple[str, ...]]:
    """The machine to judge, and what was assumed about it."""
    if given is not None:
        return given, ()
    here = detect()
    if any(_is(device.target, target) for device in here.devices):
        return here, ()
    machine = assumed_environment(target)
    return machine, assumptions(machine)


def _device_memory(target: Target, environment: Environment, given: int | None) -> tuple[int | None, str]:
    """(bytes, where they come from)."""
    if given is not None:
        return given, "given"
    device = next((device for device in environment.devices if _is(device.target, target)), None)
    if device and device.memory_total:
        return device.memory_total, device.name
    product = product_memory(target)
    return (product.size, product.product) if product else (None, "not known; pass memory_bytes")


def _is(found: Target, wanted: Target) -> bool:
    return found == wanted or (wanted.arch == "any" and found.vendor == wanted.vendor == "cpu")


def _notes(
    spec: ModelSpec,
    decision: JointDecision,
    memory: MemoryPlan | None,
    max_num_seqs: int,
    tensor_parallel: int,
) -> tuple[str, ...]:
    notes = []
    if tensor_parallel > 1:
        notes.append("Planned only: the engine of this release runs in one process, on one device.")
    unproven = {
        row.name: LEVELS[row.level]
        for part in decision.parts
        for row in part.candidates
        if part.chosen and row.name == part.chosen.name and row.level < len(LEVELS) - 1
    }
    if decision.supported and unproven:
        names = ", ".join(f"{name} ({level})" for name, level in unproven.items())
        notes.append(f"No run on {decision.target} is on record for {names}.")
    if memory and memory.sequences is not None and 0 < memory.sequences < max_num_seqs:
        notes.append(
            f"{memory.sequences} of {max_num_seqs} sequences of {memory.context:,} tokens fit at once; "
            "the others wait or are preempted."
        )
    if memory and memory.checkpoint > ITEMSIZE[spec.dtype] * spec.parameters:
        notes.append(
            f"The published files hold {memory.checkpoint / 1024**3:.1f} GiB on disk, more than the config's "
            f"{spec.dtype} needs; they are converted while they are read."
        )
    return tuple(notes)
