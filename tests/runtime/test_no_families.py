"""The runtime knows no family: what differs between them is data on the spec, or the model's own method."""

from __future__ import annotations

import re
from pathlib import Path

import rlt_hw.runtime

FORBIDDEN = re.compile(
    r"family\s*(==|!=|in\b)|getattr\([^)]*family|isinstance\([^)]*(Ouro|Nanbeige|Huginn)"
    r"|rlt_hw\.models\.(ouro|nanbeige|huginn)|[\"'](ouro|nanbeige|huginn)[\"']"
)


def test_no_family_is_named_or_asked_for():
    folder = Path(rlt_hw.runtime.__file__).parent
    found = [
        f"{path.name}: {line.strip()}"
        for path in folder.glob("*.py")
        for line in path.read_text(encoding="utf-8").splitlines()
        if FORBIDDEN.search(line)
    ]
    assert not found
