"""How commands print: JSON with a schema version, or a console that is plain when piped."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

SCHEMA_VERSION = 1
PIPED_WIDTH = 200


def write_json(data: Mapping[str, Any]) -> None:
    """One JSON object on stdout, `schema_version` first."""
    import json

    json.dump({"schema_version": SCHEMA_VERSION, **data}, sys.stdout, indent=2, ensure_ascii=False)
    sys.stdout.write("\n")


def console() -> Console:
    """Standard output: colour and width of the terminal, or neither where there is none."""
    from rich.console import Console

    width = None if sys.stdout.isatty() else PIPED_WIDTH
    return Console(width=width, highlight=False, soft_wrap=False, emoji=False)


def gib(size: int | None) -> str:
    """A size in GiB with one decimal, or "?" where it is not known."""
    return f"{size / 1024**3:.1f} GiB" if size is not None else "?"
