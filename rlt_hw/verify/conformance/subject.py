"""What the kit runs: a case of any kind, and a backend on it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from rlt_hw.registry import Need

PLAIN = {"float32": 5e-6, "bfloat16": 3e-2, "float16": 3e-3}
ROTATED = {"float32": 2e-5, "bfloat16": 8e-2, "float16": 1e-2}
"""Largest errors by dtype, for values of a normal distribution. What is normed, multiplied or rotated first
is rounded more often."""


class Case(Protocol):
    """captured: whether the check needs the target's graph backend."""

    @property
    def name(self) -> str: ...

    @property
    def captured(self) -> bool: ...

    @property
    def settings(self) -> Mapping[str, int]: ...

    @property
    def tolerances(self) -> Mapping[str, float]: ...

    def need(self, backend: str, dtype: str) -> Need:
        """What selection is asked for."""

    def check(self, subject: Subject) -> float:
        """The largest error."""


@dataclass(frozen=True)
class Subject:
    """A backend's class on a case. graph: the class of the graph backend."""

    adapter: Any
    graph: Any
    case: Any
    dtype: torch.dtype
    device: torch.device
