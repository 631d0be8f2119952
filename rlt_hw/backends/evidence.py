"""Levels of evidence, from the records that verify runs leave behind.

A record is `rlt_hw/verify/records/*.json` with "target", "level" (1 to 4) and "backends" (names), and of a
run on a device the "device". A pair of backend and target without a record is at level 0: declared.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

RECORDS = Path(__file__).parent.parent / "verify" / "records"
EMULATED_AT_MOST = 3


def levels(records: Path = RECORDS) -> dict[tuple[str, str], int]:
    """(backend, target) -> the highest level that a record in the folder gives."""
    found: dict[tuple[str, str], int] = {}
    for path in sorted(records.glob("*.json")):
        record = json.loads(path.read_text(encoding="utf-8"))
        for name in record["backends"]:
            key = (name, record["target"])
            found[key] = max(level_of(record), found.get(key, 0))
    return found


def level_of(record: Mapping[str, Any]) -> int:
    """What a record says, and of an emulated device level 3 at most, whatever it says."""
    device: Mapping[str, Any] = record.get("device") or {}
    emulated = device.get("emulated") or record["target"].startswith("emulated:")
    level: int = record["level"]
    return min(level, EMULATED_AT_MOST) if emulated else level
