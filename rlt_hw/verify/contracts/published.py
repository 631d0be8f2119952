"""What the vendors published: signatures by name, one record for each distribution and version."""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from rlt_hw.verify.contracts.signature import parse

FOLDER = Path(__file__).parent / "published"


@dataclass(frozen=True)
class Published:
    """One version. source: the archive, or the repository and revision, that it was read from.

    calls: dotted name -> signature, whose defaults and annotations are text.
    """

    distribution: str
    version: str
    source: str
    calls: Mapping[str, inspect.Signature]

    def __str__(self) -> str:
        return f"{self.distribution} {self.version}"


@cache
def published() -> tuple[Published, ...]:
    """One a version; files of the same version add to each other."""
    found: dict[tuple[str, str], Published] = {}
    for path in sorted(FOLDER.glob("*.json")):
        row = _read(path)
        key = row.distribution, row.version
        if key in found:
            first = found[key]
            row = replace(first, source=f"{first.source}; {row.source}", calls={**first.calls, **row.calls})
        found[key] = row
    return tuple(found.values())


def _read(path: Path) -> Published:
    record = json.loads(path.read_text(encoding="utf-8"))
    calls = {name: parse(text) for name, text in record["calls"].items()}
    return Published(record["distribution"], record["version"], record["source"], calls)
