"""How many loops a request's tokens may run, decided once from its parameters and the model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rlt_hw.errors import ConfigError, UnsupportedError
from rlt_hw.models.spec import ModelSpec
from rlt_hw.reasons import Code

if TYPE_CHECKING:
    from rlt_hw.runtime.sampling_params import SamplingParams


@dataclass(frozen=True)
class LoopLimits:
    """A token runs max_loops loops; with a threshold, `rule` may end it from min_loops on.

    rule and threshold are both None for fixed depth.
    """

    min_loops: int
    max_loops: int
    threshold: float | None = None
    rule: str | None = None


def loop_limits(params: SamplingParams, spec: ModelSpec, max_loops: int) -> LoopLimits:
    """See `SamplingParams.resolve`. max_loops: the engine's maximum."""
    depth = _depth(params, spec, max_loops)
    if params.min_loops > depth:
        raise ConfigError(
            "min_loops",
            found=str(params.min_loops),
            allowed=f"at most the request's {depth} loops",
            remedy="Lower min_loops, or raise num_loops or max_loops.",
        )
    _check_trace(params, depth)
    rule = _rule(params, spec)
    threshold = _threshold(params, spec, rule)
    if threshold is None:
        return LoopLimits(params.min_loops, depth)
    return LoopLimits(params.min_loops, depth, threshold, rule)


def _check_trace(params: SamplingParams, depth: int) -> None:
    """Depths that are given must be possible, and leave nothing for a rule to decide."""
    trace = params.exit_depths
    if not trace:
        return
    if params.exit_rule is not None or params.exit_threshold is not None:
        raise ConfigError(
            "exit_depths",
            found="depths together with exit_threshold or exit_rule",
            allowed="one of the two",
            code=Code.COMBINATION,
        )
    if trace[0] != depth or not all(params.min_loops <= loops <= depth for loops in trace):
        raise ConfigError(
            "exit_depths",
            found=str(list(trace[:8])),
            allowed=f"{depth} first (the prompt's), then {params.min_loops} to {depth} for each token",
        )


def _depth(params: SamplingParams, spec: ModelSpec, max_loops: int) -> int:
    if params.num_loops is not None and params.max_loops not in (None, params.num_loops):
        raise ConfigError(
            "num_loops and max_loops",
            found=f"{params.num_loops} and {params.max_loops}",
            allowed="one of the two",
            remedy="num_loops already is the maximum of an adaptive exit.",
            code=Code.COMBINATION,
        )
    name = "num_loops" if params.num_loops is not None else "max_loops"
    asked = getattr(params, name)
    if asked is None:
        return min(spec.loops, max_loops)
    if asked > max_loops:
        raise ConfigError(
            name,
            found=str(asked),
            allowed=f"1 to {max_loops}, the engine's maximum",
            remedy=f"Create the engine with max_loops={asked}, which makes its KV cache larger.",
        )
    return int(asked)


def _rule(params: SamplingParams, spec: ModelSpec) -> str | None:
    if params.exit_rule is None:
        return spec.exit_rules[0] if spec.exit_rules else None
    if params.exit_rule in spec.exit_rules:
        return params.exit_rule
    raise UnsupportedError(
        "exit_rule",
        found=repr(params.exit_rule),
        allowed=", ".join(spec.exit_rules) or f"none: {spec.name or spec.family} has no adaptive exit",
        remedy="Leave exit_rule out; num_loops sets a fixed depth.",
        code=Code.MODEL_FEATURE,
    )


def _threshold(params: SamplingParams, spec: ModelSpec, rule: str | None) -> float | None:
    """The threshold in force, None for fixed depth."""
    asked = params.exit_threshold
    if rule is None:
        if asked is not None and asked < 1:
            raise UnsupportedError(
                "exit_threshold",
                found=str(asked),
                allowed=f"none, or 1 (fixed depth): {spec.name or spec.family} has no adaptive exit",
                remedy="Leave exit_threshold out; num_loops sets a fixed depth.",
                code=Code.MODEL_FEATURE,
            )
        return None
    if asked is None and params.exit_rule is not None:
        asked = spec.exit_defaults.get(rule, spec.exit_threshold)
    elif asked is None and params.num_loops is None:
        asked = spec.exit_threshold
    fixed = spec.fixed_from is not None and asked is not None and asked >= spec.fixed_from
    if asked is None or fixed:
        return None
    return float(asked)
