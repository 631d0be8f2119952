"""`rlt-hw doctor`: one finding a line, one command that fixes it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rlt_hw.cli.output import write_json
from rlt_hw.cli.recorded import REDACT, report_of

PROBLEMS = 3


def doctor(
    deep: Annotated[
        bool, typer.Option("--deep", help="Import every vendor package, each by itself.")
    ] = False,
    environment: Annotated[Path | None, typer.Option(help="A recorded machine to judge.")] = None,
    redact: Annotated[bool, typer.Option("--redact", help=REDACT)] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Say what is wrong with this machine and what fixes it.

    Exit codes: 0 nothing is wrong (there may be advice), 3 something is, 2 wrong usage, 1 an internal error.
    """
    from rlt_hw.runtime.doctor import doctor as examine

    findings = examine(report_of(environment, deep=deep, redact=redact))
    problems = [finding for finding in findings if finding.problem]
    if as_json:
        write_json({"healthy": not problems, "findings": [finding.to_json() for finding in findings]})
    else:
        for finding in findings:
            print(f"{'!' if finding.problem else '+'} {finding.code} {finding.text}")
            print(f"    {finding.fix}")
        if not problems:
            print("Nothing is wrong.")
    if problems:
        raise typer.Exit(PROBLEMS)
