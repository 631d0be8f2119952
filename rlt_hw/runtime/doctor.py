"""From a probe report to what a person should do: one finding, one command that fixes it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from rlt_hw.reasons import Code, Rejection
from rlt_hw.registry import Decision
from rlt_hw.runtime.probing import ProbeReport

_INSTALLABLE = {Code.PKG_MISSING, Code.PKG_VERSION, Code.PKG_BROKEN, Code.TOOLCHAIN}


@dataclass(frozen=True)
class Finding:
    """problem: something is broken or hidden; otherwise it is advice. fix: a command where one helps."""

    code: Code
    text: str
    fix: str
    problem: bool = True

    def to_json(self) -> dict[str, Any]:
        return {"code": self.code.value, "text": self.text, "fix": self.fix, "problem": self.problem}


def doctor(report: ProbeReport) -> tuple[Finding, ...]:
    """Problems first, then packages that would bring a better backend for the device that "auto" takes."""
    problems = [Finding(row.code, f"{row.subject}: {row.found}", _fix(row)) for row in report.findings]
    advice: dict[str, Finding] = {}
    if report.outlook and report.outlook.decision.supported:
        for part in report.outlook.decision.parts:
            for finding in _better(part):
                advice.setdefault(finding.fix, finding)
    return (*problems, *advice.values())


def _better(part: Decision) -> Iterator[Finding]:
    """The best-ranked backend above the chosen one that only lacks something one can install."""
    if part.chosen is None:
        return
    chosen = part.chosen.rank(part.target, part.phase).value
    for row in part.candidates:
        lacks_software = row.rejections and {reason.code for reason in row.rejections} <= _INSTALLABLE
        if lacks_software and row.rank.value > chosen:
            first = row.rejections[0]
            what = f"{row.name} (rank {row.rank.value}: {row.rank.evidence}) over {part.chosen.name}"
            yield Finding(first.code, f"{part.title} would take {what}: {first.found}", _fix(first), False)
            return


def _fix(row: Rejection) -> str:
    """The command in a remedy, which stands in backquotes; the whole sentence where there is none."""
    command = re.search(r"`([^`]+)`", row.remedy)
    return command.group(1) if command else row.remedy
