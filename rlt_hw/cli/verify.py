"""`rlt-hw verify`: whether backends and engines do on this device what they must, and the record of it."""

from __future__ import annotations

import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from rlt_hw.cli import engine_options as options
from rlt_hw.cli.output import write_json
from rlt_hw.errors import ConfigError

NOT_GOOD = 3


def verify(
    backend: Annotated[
        str,
        typer.Option(help="auto: what engines choose; all: what serves the target; or names."),
    ] = "auto",
    model: Annotated[
        list[str] | None, typer.Option(help="A checkpoint folder or demo:NAME; default every demo.")
    ] = None,
    device: options.Device = "auto",
    dtypes: Annotated[str, typer.Option(help="Dtypes of the cases.")] = "float32,bfloat16,float16",
    record: Annotated[
        Path | None, typer.Option(help="A folder for the evidence record and its report.")
    ] = None,
    commit: Annotated[
        str | None, typer.Option(help="The commit that runs, where no git tree says it.")
    ] = None,
    as_json: options.AsJson = False,
) -> None:
    """Run backends on conformance cases and engines on checks, on this device; print what was found.

    A record is written from a clean git tree, or with --commit where there is none. On an emulated device it
    says so, and is no evidence of the device itself.

    Exit codes: 0 something passed and nothing failed, 3 something failed or everything was refused, 2 wrong
    usage, 1 an internal error.
    """
    from rlt_hw.verify.conformance import DTYPES, machine_here
    from rlt_hw.verify.provenance import provenance
    from rlt_hw.verify.record import emulation, name_of, record_of, write
    from rlt_hw.verify.report import report
    from rlt_hw.verify.suite import verify as run_all
    from rlt_hw.verify.worker import Worker

    wanted = tuple(dtypes.split(","))
    if not set(wanted) <= set(DTYPES):
        raise ConfigError("--dtypes", found=repr(dtypes), allowed=", ".join(DTYPES))
    begun = time.monotonic()

    def say(text: str) -> None:
        print(f"[{time.monotonic() - begun:4.0f} s] {text}", file=sys.stderr, flush=True)

    origin = provenance(commit, apart_from=record) if record else None
    machine = machine_here(device, use=False)
    if emulation(machine):  # which a process beside this one would not be
        run = run_all(machine_here(device), backend, model or (), wanted, say=say)
    else:
        with closing(Worker(machine)) as worker:
            run = run_all(machine, backend, model or (), wanted, work=worker.rows, say=say)
    found = record_of(run, origin)
    path = write(found, record, name_of(run)) if record else None
    if as_json:
        write_json({**found, "record": str(path) if path else None})
    else:
        print("\n".join(report(found)))
        if path:
            print(f"\nrecord: {path}")
    if not run.good:
        raise typer.Exit(NOT_GOOD)
