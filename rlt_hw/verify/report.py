"""A record as Markdown, for people."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from rlt_hw.registry import LEVELS


def report(record: Mapping[str, Any]) -> Iterator[str]:
    """Line by line."""
    device = record["device"]
    yield f"# {record['target']}: {device['name']}"
    yield ""
    yield from _origin(record)
    for title, part in (
        ("What it proves", _proven(record)),
        ("Conformance", _conformance(record["conformance"])),
        ("Engines", _engine(record["engine"])),
    ):
        yield from ("", f"## {title}", "")
        yield from part


def _origin(record: Mapping[str, Any]) -> Iterator[str]:
    device = record["device"]
    versions = [f"{name} {version}" for name, version in record["packages"].items()]
    software = [record["system"], f"Python {record['python']}", *versions]
    if device["driver"]:
        software.append(f"driver {device['driver']}")
    if record["emulated"]:
        yield f"This is no run of the device itself: {record['emulated']}."
    if record["commit"]:
        yield f"Level {record['level']}, {LEVELS[record['level']]}."
        yield f"Commit {record['commit']} ({record['commit_source']})."
    else:
        yield "Not recorded, so it is evidence of nothing."
    yield f"rlt-hw {record['version']}, {record['date']}; {', '.join(software)}."


def _proven(record: Mapping[str, Any]) -> Iterator[str]:
    if not record["proven"]:
        yield "Nothing: no backend ran in an engine and passed everything."
        return
    rows = []
    for name, proof in record["proven"].items():
        features = [
            f"{feature} ({', '.join(map(str, sizes))})" if any(sizes) else feature
            for feature, sizes in proof["features"].items()
        ]
        rows.append((name, ", ".join(proof["models"]), ", ".join(features)))
    yield from _table(("backend", "models", "features (head sizes)"), rows)


def _conformance(rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """The largest errors: a row a case, a column a dtype."""
    found: dict[tuple[str, str], dict[str, str]] = {}
    for row in rows:
        found.setdefault((row["backend"], row["case"]), {})[row["dtype"]] = _verdict(row)
    dtypes = list(dict.fromkeys(dtype for cells in found.values() for dtype in cells))
    cells = [(*key, *(verdicts.get(dtype, "") for dtype in dtypes)) for key, verdicts in found.items()]
    yield from _table(("backend", "case", *dtypes), cells)
    for row in rows:
        yield from (f"- {failure}" for failure in row["failed"])


def _verdict(row: Mapping[str, Any]) -> str:
    if row["failed"]:
        return f"FAILED {len(row['failed'])} of {len(row['failed']) + row['passed']}"
    if row["passed"]:
        return f"{row['max_error']:.1e}"
    return f"refused: {', '.join(row['refused'])}"


def _engine(rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    cells = [
        (row["model"], ", ".join(row["asked"].values()), row["check"], row["outcome"], row["found"])
        for row in rows
    ]
    yield from _table(("model", "backends", "check", "outcome", "found"), cells)


def _table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> Iterator[str]:
    heads = tuple(heads)
    yield f"| {' | '.join(heads)} |"
    yield f"|{' --- |' * len(heads)}"
    for row in rows:
        yield f"| {' | '.join(str(cell).replace('|', '/') for cell in row)} |"
