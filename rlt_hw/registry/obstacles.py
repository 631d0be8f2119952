"""What stands in the way whatever the backends: the target, its torch, the model's shape and wishes."""

from __future__ import annotations

from collections.abc import Iterator

from rlt_hw.devices.consistency import obstacles as torch_obstacles
from rlt_hw.devices.environment import Device, Environment
from rlt_hw.devices.facts import TargetFacts, facts
from rlt_hw.devices.target import Target
from rlt_hw.reasons import Code, Rejection
from rlt_hw.registry.need import AUTO, Need


def obstacles(target: Target, need: Need, environment: Environment) -> tuple[Rejection, ...]:
    """Every one of them, the target's first. Empty when a choice of backends decides."""
    return (*_of_target(target, environment), *_of_model(target, need))


def _of_target(target: Target, environment: Environment) -> tuple[Rejection, ...]:
    """ARCH_UNKNOWN, or why the installed torch cannot use such a device."""
    here = environment.devices_of(target)
    stand_in = Device(target, 0, str(target), driver=environment.drivers.get(target.vendor))
    return torch_obstacles(here[0] if here else stand_in, environment)


def _of_model(target: Target, need: Need) -> Iterator[Rejection]:
    known = facts(target)
    if isinstance(known, TargetFacts) and need.dtype == "bfloat16" and not known.bfloat16:
        yield Rejection(
            Code.DTYPE, str(target), "bfloat16, which it lacks", "float16, float32", "Set dtype='float16'."
        )
    if need.num_heads % need.num_kv_heads:
        yield Rejection(
            Code.GQA_RATIO,
            "model",
            f"{need.num_heads} query heads for {need.num_kv_heads} KV heads",
            "query heads that are a multiple of the KV heads",
            "Check num_key_value_heads in config.json.",
        )
    elif need.num_kv_heads % need.tensor_parallel:
        yield _indivisible(need)
    if need.kv_rule not in (AUTO, *need.allowed_kv_layouts):
        yield Rejection(
            Code.KV_LAYOUT,
            "model",
            need.kv_layout,
            ", ".join(need.allowed_kv_layouts),
            "Set kv_layout to one of these, or leave it auto.",
        )
    if need.exit_threshold is not None and need.exit_threshold < 1 and not need.exit_rules:
        yield Rejection(
            Code.MODEL_FEATURE,
            "exit_threshold",
            f"{need.exit_threshold:g}, for a model without an exit rule",
            "1 or none: every token runs all loops",
            "Leave exit_threshold unset, or run a model with an exit gate (Ouro).",
        )


def _indivisible(need: Need) -> Rejection:
    works = [str(size) for size in range(1, need.num_kv_heads + 1) if need.num_kv_heads % size == 0]
    heads = f"{need.num_heads} heads"
    if need.num_kv_heads != need.num_heads:
        heads += f" and {need.num_kv_heads} KV heads"
    return Rejection(
        Code.TP_DIVISIBILITY,
        "tensor_parallel",
        f"{need.tensor_parallel} for {heads}",
        ", ".join(works),
        "Set tensor_parallel to one of these.",
    )
