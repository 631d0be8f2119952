"""What a request asks for, checked twice: values when made, the model's abilities by `resolve`.

Nothing here is rewritten: a value is honoured or refused.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from rlt_hw.errors import ConfigError, UnsupportedError
from rlt_hw.models.spec import ModelSpec
from rlt_hw.reasons import Code
from rlt_hw.runtime.loop_limits import LoopLimits, loop_limits

INITIAL_STATES = ("random", "zero", "warm")
MAX_SEED = 2**64 - 1


@dataclass(frozen=True)
class SamplingParams:
    """How one request is decoded.

    max_tokens, min_tokens: new tokens at most, and before a stop token may end the request.
    temperature: 0 is greedy. top_k: 0 is off. top_p: in (0, 1]. seed: None takes the engine's next.
    stop: strings that end the text and are not part of it. stop_token_ids: ids that end it in
    addition to the model's. ignore_eos: go on past the model's stop tokens.
    num_loops: run exactly so many loops; beside exit_threshold, at most so many.
    min_loops, max_loops: bounds of an adaptive exit. exit_threshold: None is the checkpoint's;
    with Ouro's gate, 1 or more is fixed depth. exit_rule: None is the model's first.
    exit_depths: loops for each generated token, such as `RequestOutput.exit_depths` of another run; the
    first is the prompt's and full depth. logprobs: None, or how many of the most likely tokens to report
    beside the chosen one.
    initial_state: for models with a random start state. "random": drawn from the seed and the position;
    "zero"; "warm": generated tokens go on from the state of the token before them.

    Raises ConfigError that names the field, what was found and what is allowed.
    """

    max_tokens: int = 64
    min_tokens: int = 0
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int | None = None
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    num_loops: int | None = None
    min_loops: int = 1
    max_loops: int | None = None
    exit_threshold: float | None = None
    exit_rule: str | None = None
    exit_depths: tuple[int, ...] = ()
    logprobs: int | None = None
    initial_state: str = "random"

    def __post_init__(self) -> None:
        object.__setattr__(self, "stop", _strings("stop", self.stop))
        object.__setattr__(self, "stop_token_ids", _ids("stop_token_ids", self.stop_token_ids))
        object.__setattr__(self, "exit_depths", _ids("exit_depths", self.exit_depths))
        _whole("max_tokens", self.max_tokens, 1)
        _whole("min_tokens", self.min_tokens, 0, self.max_tokens)
        _real("temperature", self.temperature, "a finite number of at least 0", lambda t: t >= 0)
        _whole("top_k", self.top_k, 0)
        _real("top_p", self.top_p, "a number above 0 and at most 1", lambda p: 0 < p <= 1)
        _whole("min_loops", self.min_loops, 1)
        for name, low, high in _OPTIONAL_WHOLE:
            if getattr(self, name) is not None:
                _whole(name, getattr(self, name), low, high)
        if self.exit_threshold is not None:
            _real("exit_threshold", self.exit_threshold, "a finite number of at least 0", lambda q: q >= 0)
        if not isinstance(self.ignore_eos, bool):
            raise _wrong("ignore_eos", self.ignore_eos, "true or false")
        if self.exit_rule is not None and not isinstance(self.exit_rule, str):
            raise _wrong("exit_rule", self.exit_rule, "the name of an exit rule")
        if self.initial_state not in INITIAL_STATES:
            raise _wrong("initial_state", self.initial_state, " or ".join(map(repr, INITIAL_STATES)))

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> SamplingParams:
        """From a mapping such as a request body; unknown names are refused with the nearest one."""
        known = [field.name for field in fields(cls)]
        for name in values:
            if name not in known:
                near = difflib.get_close_matches(str(name), known, n=1)
                raise ConfigError(
                    "sampling parameter",
                    found=repr(name),
                    allowed=", ".join(known),
                    remedy=f"Did you mean {near[0]}?" if near else "",
                )
        return cls(**values)

    def resolve(self, spec: ModelSpec, *, max_loops: int) -> LoopLimits:
        """The loop limits for a model in an engine whose requests may run `max_loops` loops.

        Raises UnsupportedError (MODEL_FEATURE) for what the family cannot honour, ConfigError for
        a number of loops or a token id out of range.
        """
        for token in self.stop_token_ids:
            if token >= spec.vocab_size:
                raise _wrong("stop_token_ids", token, f"ids below the vocabulary size {spec.vocab_size}")
        if self.logprobs is not None and self.logprobs > spec.vocab_size:
            raise _wrong("logprobs", self.logprobs, f"at most the vocabulary size {spec.vocab_size}")
        if self.initial_state != "random" and not spec.random_start:
            raise UnsupportedError(
                "initial_state",
                found=repr(self.initial_state),
                allowed=f"'random' (no effect): {spec.name or spec.family} starts from the embedding",
                remedy="Leave initial_state out.",
                code=Code.MODEL_FEATURE,
            )
        return loop_limits(self, spec, max_loops)


_OPTIONAL_WHOLE = (
    ("seed", 0, MAX_SEED),
    ("num_loops", 1, None),
    ("max_loops", 1, None),
    ("logprobs", 0, None),
)


def _wrong(name: str, found: object, allowed: str) -> ConfigError:
    return ConfigError(name, found=repr(found), allowed=allowed)


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _whole(name: str, value: Any, low: int, high: int | None = None) -> None:
    if not _is_whole(value) or value < low or (high is not None and value > high):
        limit = f"of at least {low}" if high is None else f"from {low} to {high}"
        raise _wrong(name, value, f"a whole number {limit}")


def _real(name: str, value: Any, allowed: str, holds: Any) -> None:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not number or not math.isfinite(value) or not holds(value):
        raise _wrong(name, value, allowed)


def _strings(name: str, value: Any) -> tuple[str, ...]:
    values = (value,) if isinstance(value, str) else value
    listed = isinstance(values, Sequence) and not isinstance(values, bytes)
    if not listed or not all(isinstance(text, str) and text for text in values):
        raise _wrong(name, value, "a non-empty string, or a list of them")
    return tuple(values)


def _ids(name: str, value: Any) -> tuple[int, ...]:
    listed = isinstance(value, Sequence) and not isinstance(value, (str, bytes))
    if not listed or not all(_is_whole(token) and token >= 0 for token in value):
        raise _wrong(name, value, "a list of token ids, whole numbers of at least 0")
    return tuple(value)
