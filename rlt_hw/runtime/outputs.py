"""What a request gave: tokens, text, the depth of every token, and when."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from rlt_hw.runtime.reasoning import split_reasoning


@dataclass(frozen=True)
class TokenLogprobs:
    """Natural-log probabilities at one position, under the distribution before temperature.

    logprob: of the token that was chosen. top: (id, logprob) of the most likely, best first.
    """

    token_id: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True)
class RequestMetrics:
    """Times in seconds on one monotonic clock; None for what has not happened."""

    arrival: float
    first_token: float | None = None
    finished: float | None = None

    @property
    def time_to_first_token(self) -> float | None:
        return None if self.first_token is None else self.first_token - self.arrival

    @property
    def latency(self) -> float | None:
        return None if self.finished is None else self.finished - self.arrival

    def time_per_token(self, tokens: int) -> float | None:
        """Mean seconds between tokens after the first; None before a second token."""
        if self.first_token is None or self.finished is None or tokens < 2:
            return None
        return (self.finished - self.first_token) / (tokens - 1)


@dataclass(frozen=True)
class RequestOutput:
    """A request's result so far.

    text: None where the checkpoint has no tokenizer. exit_depths: loops that each generated
    token ran. finish_reason: None while it runs, then "stop", "length", "abort" or "error".
    error: what went wrong, for finish_reason "error".
    """

    request_id: str
    prompt_token_ids: tuple[int, ...]
    token_ids: tuple[int, ...]
    text: str | None
    exit_depths: tuple[int, ...]
    finish_reason: str | None
    metrics: RequestMetrics
    logprobs: tuple[TokenLogprobs, ...] | None = None
    error: str | None = None

    @property
    def finished(self) -> bool:
        return self.finish_reason is not None

    @property
    def reasoning(self) -> str | None:
        """What a Thinking model thought, without its tags; None where there is none."""
        return split_reasoning(self.text or "")[0]

    @property
    def answer(self) -> str | None:
        """`text` without the reasoning."""
        return None if self.text is None else split_reasoning(self.text)[1]

    @property
    def mean_exit_depth(self) -> float | None:
        """Mean loops of a generated token; None before the first."""
        return sum(self.exit_depths) / len(self.exit_depths) if self.exit_depths else None

    def to_json(self) -> dict[str, Any]:
        """The record as the CLI and the server print it; durations in seconds."""
        data = asdict(self)
        data["metrics"] = {
            "time_to_first_token": self.metrics.time_to_first_token,
            "time_per_token": self.metrics.time_per_token(len(self.token_ids)),
            "latency": self.metrics.latency,
        }
        derived = ("reasoning", "answer", "mean_exit_depth")
        return data | {name: getattr(self, name) for name in derived}
