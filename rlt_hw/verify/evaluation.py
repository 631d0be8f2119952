"""The quality gate: a trained checkpoint answers word problems, and a subtle fault costs accuracy.

A file of problems has one JSON object a line: id, variant, prompt, answer and, optionally, steps.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlt_hw.errors import ConfigError
from rlt_hw.models.config import DEMO

if TYPE_CHECKING:
    from rlt_hw.runtime.engine import Engine
    from rlt_hw.runtime.outputs import RequestOutput
    from rlt_hw.runtime.sampling_params import SamplingParams

DEFAULT_PROBLEMS = DEMO / "problems-200.jsonl"
MAX_TOKENS = 64
MARK = "####"
PUBLISHED: dict[str, dict[str, float]] = {
    "demo:ouro": {"cot": 1.00, "short": 0.95},
    "demo:nanbeige": {"cot": 1.00, "short": 0.88},
    "demo:huginn": {"cot": 1.00, "short": 0.85},
}
"""Accuracy by variant on `DEFAULT_PROBLEMS` in float32, at the depth that the checkpoint asks for."""


@dataclass(frozen=True)
class Problem:
    """A prompt and the text that must follow the last `####`."""

    problem_id: str
    variant: str
    prompt: str
    answer: str


@dataclass(frozen=True)
class Score:
    """One variant's result. accuracy: share of right answers, 0 to 1.

    mean_depth: mean loops of generated tokens after the first, None where there are none (the
    prompt, which gives the first token, always runs at full depth).
    """

    variant: str
    problems: int
    right: int
    mean_depth: float | None

    @property
    def accuracy(self) -> float:
        return self.right / self.problems

    def to_json(self) -> dict[str, Any]:
        return {
            "variant": self.variant,
            "problems": self.problems,
            "right": self.right,
            "accuracy": self.accuracy,
            "mean_depth": self.mean_depth,
        }


def read_problems(path: Path = DEFAULT_PROBLEMS) -> list[Problem]:
    """Raises ConfigError that names the line and what is wrong with it."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"problems {path}", found=str(error), allowed="a readable JSONL file") from error
    problems = [_problem(path, number, line) for number, line in enumerate(lines, 1) if line.strip()]
    if not problems:
        raise ConfigError(f"problems {path}", found="no problems", allowed="one JSON object a line")
    return problems


def evaluate(engine: Engine, problems: Sequence[Problem], params: SamplingParams) -> list[Score]:
    """Answer every problem and score it by variant, in the order in which variants appear."""
    outputs = engine.generate([problem.prompt for problem in problems], params)
    variants = dict.fromkeys(problem.variant for problem in problems)
    pairs = list(zip(problems, outputs, strict=True))
    return [_score(variant, [pair for pair in pairs if pair[0].variant == variant]) for variant in variants]


def is_right(problem: Problem, output: RequestOutput) -> bool:
    """Whether the text after the last mark is the answer, to the letter."""
    _, marked, answer = (output.text or "").rpartition(MARK)
    return bool(marked) and answer.strip() == problem.answer


def _score(variant: str, pairs: Sequence[tuple[Problem, RequestOutput]]) -> Score:
    depths = [depth for _, output in pairs for depth in output.exit_depths[1:]]
    right = sum(is_right(problem, output) for problem, output in pairs)
    return Score(variant, len(pairs), right, sum(depths) / len(depths) if depths else None)


def _problem(path: Path, number: int, line: str) -> Problem:
    try:
        data = json.loads(line)
        fields = [data[name] for name in ("id", "variant", "prompt", "answer")]
        texts = all(isinstance(field, str) for field in fields)
    except (ValueError, TypeError, KeyError) as error:
        raise _bad(path, number, f"{type(error).__name__}: {error}") from error
    if not texts:
        raise _bad(path, number, "a field that is no text")
    return Problem(*fields)


def _bad(path: Path, number: int, found: str) -> ConfigError:
    return ConfigError(
        f"problems {path}, line {number}",
        found=found,
        allowed="a JSON object with the texts id, variant, prompt and answer",
    )
