"""What one case of the kit came to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from rlt_hw.reasons import Rejection

Outcome = Literal["passed", "failed", "refused"]


@dataclass(frozen=True)
class CaseResult:
    """One backend on one case.

    settings: the shapes that ran. max_error: largest error, which passes up to `tolerance`; None
    where nothing ran. rejection: why selection would never run this. error: the exception of a failed case.
    """

    backend: str
    kind: str
    case: str
    dtype: str
    settings: Mapping[str, int]
    outcome: Outcome
    tolerance: float
    max_error: float | None = None
    rejection: Rejection | None = None
    error: str | None = None

    def to_json(self) -> dict[str, Any]:
        return {
            "backend": self.backend,
            "kind": self.kind,
            "case": self.case,
            "dtype": self.dtype,
            "settings": dict(self.settings),
            "outcome": self.outcome,
            "tolerance": self.tolerance,
            "max_error": self.max_error if self.max_error is None else _finite(self.max_error),
            "rejection": self.rejection.to_json() if self.rejection else None,
            "error": self.error,
        }

    def __str__(self) -> str:
        shape = ", ".join(f"{name} {value}" for name, value in self.settings.items())
        where = f"{self.backend}: {self.case} ({self.dtype}; {shape})"
        if self.rejection:
            return f"{where} refused, {self.rejection.code}: found {self.rejection.found}"
        if self.error:
            return f"{where} failed: {self.error}"
        return f"{where} {self.outcome}: error {self.max_error:.2e}, allowed {self.tolerance:.0e}"


def _finite(error: float) -> float | str:
    """JSON has no NaN and no infinity."""
    return error if error == error and abs(error) != float("inf") else str(error)  # noqa: PLR0124
