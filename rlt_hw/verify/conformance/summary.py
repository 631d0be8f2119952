"""Many results in few lines: a backend's cases by name and dtype."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rlt_hw.verify.conformance.result import CaseResult


def verdict(results: Sequence[CaseResult]) -> str:
    """The worst of several results: what failed, else the largest error, else why nothing ran."""
    failed = [row for row in results if row.outcome == "failed"]
    if failed:
        return f"{len(failed)} of {len(results)} FAILED"
    errors = [row.max_error for row in results if row.max_error is not None]
    if errors:
        return f"{max(errors):.1e}"
    return "refused: " + ", ".join(dict.fromkeys(str(row.rejection.code) for row in results if row.rejection))


def table(results: Iterable[CaseResult]) -> dict[str, dict[str, list[CaseResult]]]:
    """case -> dtype -> results, in the order in which they came."""
    found: dict[str, dict[str, list[CaseResult]]] = {}
    for row in results:
        found.setdefault(row.case, {}).setdefault(row.dtype, []).append(row)
    return found
