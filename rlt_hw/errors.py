"""The exception tree.

    RltHwError
    ├── ConfigError        an argument, option or configuration value is wrong
    ├── UnsupportedError   no backend can serve the need; carries the decision
    ├── CheckpointError    weights, shard index or tokenizer files are unusable
    ├── CapacityError      memory, context or pool limits are exceeded
    └── PluginError        an out-of-tree backend breaks the contract

Every error says what was found, what is allowed and what to do, and carries a stable code.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rlt_hw.reasons import Code, Rejection

if TYPE_CHECKING:
    from rlt_hw.registry import Decision, JointDecision


class RltHwError(Exception):
    """Base of all errors raised on purpose. `rejection` is the same content as data."""

    default_code = "ERROR"

    def __init__(
        self,
        subject: str,
        *,
        found: str,
        allowed: str,
        remedy: str = "",
        code: Code | str | None = None,
    ) -> None:
        self.code = str(code or self.default_code)
        self.subject = subject
        self.found = found
        self.allowed = allowed
        self.remedy = remedy
        super().__init__(self._render())

    def _render(self) -> str:
        text = f"{self.subject}: found {self.found}; allowed: {self.allowed}."
        return f"{text} {self.remedy}" if self.remedy else text

    def to_json(self) -> dict[str, Any]:
        """The error as the CLI and the server print it."""
        return {
            "code": self.code,
            "subject": self.subject,
            "found": self.found,
            "allowed": self.allowed,
            "remedy": self.remedy,
        }


class ConfigError(RltHwError, ValueError):
    """An argument, option or configuration value is wrong."""

    default_code = "CONFIG"


class UnsupportedError(RltHwError):
    """Nothing can serve the need. `decision`, where there is one, lists every candidate."""

    default_code = "UNSUPPORTED"

    def __init__(self, *args: Any, decision: Decision | JointDecision | None = None, **fields: Any) -> None:
        super().__init__(*args, **fields)
        self.decision = decision

    @classmethod
    def from_rejection(cls, rejection: Rejection) -> UnsupportedError:
        return cls(
            rejection.subject,
            found=rejection.found,
            allowed=rejection.allowed,
            remedy=rejection.remedy,
            code=rejection.code,
        )

    def _render(self) -> str:
        return f"{self.code}: {super()._render()}"

    def __str__(self) -> str:
        text = super().__str__()
        decision = getattr(self, "decision", None)
        return f"{text}\n\n{decision.table()}" if decision is not None else text


class CheckpointError(RltHwError):
    """Weights, a shard index, a configuration or tokenizer file are missing or wrong."""

    default_code = "CHECKPOINT"


class CapacityError(RltHwError):
    """A request or an engine does not fit: memory, context length or pool size."""

    default_code = "CAPACITY"


class PluginError(RltHwError):
    """A backend from outside this repository breaks the contract."""

    default_code = "PLUGIN"
