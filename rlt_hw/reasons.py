"""The vocabulary of refusal: stable codes and the record that carries one.

A rejection says why something cannot work and what to do about it. Codes are public API:
tests, JSON output, documentation pages and error bodies use the same spelling.
This module decides nothing and imports nothing of this package.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Code(str, Enum):
    """Every class of refusal. `docs/reasons/<CODE>.md` explains each one."""

    ARCH = "ARCH"
    ARCH_UNKNOWN = "ARCH_UNKNOWN"
    HEAD_DIM = "HEAD_DIM"
    GQA_RATIO = "GQA_RATIO"
    DTYPE = "DTYPE"
    KV_DTYPE = "KV_DTYPE"
    PAGE_SIZE = "PAGE_SIZE"
    KV_LAYOUT = "KV_LAYOUT"
    PHASE = "PHASE"
    GRAPH = "GRAPH"
    PKG_MISSING = "PKG_MISSING"
    PKG_VERSION = "PKG_VERSION"
    PKG_BROKEN = "PKG_BROKEN"
    TOOLCHAIN = "TOOLCHAIN"
    DRIVER = "DRIVER"
    TORCH_BUILD = "TORCH_BUILD"
    RESOURCE = "RESOURCE"
    MEMORY = "MEMORY"
    VISIBILITY = "VISIBILITY"
    MIXED_DEVICES = "MIXED_DEVICES"
    COMM = "COMM"
    TP_DIVISIBILITY = "TP_DIVISIBILITY"
    MODEL_FEATURE = "MODEL_FEATURE"
    LOOP_KV = "LOOP_KV"
    CHECKPOINT = "CHECKPOINT"
    TOKENIZER = "TOKENIZER"
    COMBINATION = "COMBINATION"
    PLUGIN = "PLUGIN"
    ENV_UNKNOWN = "ENV_UNKNOWN"
    PROBE_TIMEOUT = "PROBE_TIMEOUT"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True)
class Rejection:
    """Why `subject` cannot be used: what was found, what is allowed, what to do.

    `remedy` is one imperative sentence or a command; it may be empty only where nothing helps.
    """

    code: Code
    subject: str
    found: str
    allowed: str
    remedy: str

    def __str__(self) -> str:
        text = f"{self.code}: {self.subject}: found {self.found}; allowed {self.allowed}"
        return f"{text}. {self.remedy}" if self.remedy else text

    def to_json(self) -> dict[str, str]:
        return {
            "code": self.code.value,
            "subject": self.subject,
            "found": self.found,
            "allowed": self.allowed,
            "remedy": self.remedy,
        }

    @classmethod
    def from_json(cls, data: dict[str, str]) -> Rejection:
        fields = ("subject", "found", "allowed", "remedy")
        return cls(Code(data["code"]), *(data[field] for field in fields))
