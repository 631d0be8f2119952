"""Comparing dotted versions of drivers, toolkits and packages by their numeric parts."""

from __future__ import annotations

import re


def release(version: str) -> tuple[int, ...]:
    """The leading numbers of a version: "2.13.0+cpu" -> (2, 13, 0), "580.159.04" -> (580, 159, 4)."""
    match = re.match(r"\s*v?(\d+(?:\.\d+)*)", version)
    return tuple(int(part) for part in match.group(1).split(".")) if match else ()


def older(version: str, than: str) -> bool:
    """Whether `version` precedes `than`; missing parts count as zero, an unreadable one is not older."""
    left, right = release(version), release(than)
    width = max(len(left), len(right))
    return bool(left) and left + (0,) * (width - len(left)) < right + (0,) * (width - len(right))
