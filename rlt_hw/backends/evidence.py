"""Levels of evidence, from the records that verify runs leave behind.

A record is `rlt_hw/verify/records/*.json` with "target", "level" (1 to 4) and "backends" (names). A pair
of backend and target without a record is at level 0: declared.
"""

from __future__ import annotations

import json
from pathlib import Path

RECORDS = Path(__file__).parent.parent / "verify" / "records"


def levels(records: Path = RECORDS) -> dict[tuple[str, str], int]:
    """(backend, target) -> the highest level that a record in the folder gives."""
    found: dict[tuple[str, str], int] = {}
    for path in sorted(records.glob("*.json")):
        record = json.loads(path.read_text(encoding="utf-8"))
        for name in record["backends"]:
            key = (name, record["target"])
            found[key] = max(record["level"], found.get(key, 0))
    return found
