"""`rlt-hw verify`: whether backends compute on this device what they must."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from rlt_hw.cli import engine_options as options
from rlt_hw.cli.output import console, write_json
from rlt_hw.errors import ConfigError

if TYPE_CHECKING:
    from rlt_hw.verify.conformance import CaseResult, Machine

FAILED = 3


def verify(
    backend: Annotated[
        str, typer.Option(help="Backends, with commas between, or auto: all that serve the target.")
    ] = "auto",
    device: options.Device = "auto",
    dtypes: Annotated[str, typer.Option(help="Dtypes to run, with commas.")] = "float32,bfloat16,float16",
    as_json: options.AsJson = False,
) -> None:
    """Run the conformance cases on this device and print the largest errors.

    Exit codes: 0 nothing failed (what is refused did not run), 3 something did, 2 wrong usage, 1 an internal
    error.
    """
    from rlt_hw.verify.conformance import DTYPES, machine_here, run

    wanted = tuple(dtypes.split(","))
    if not set(wanted) <= set(DTYPES):
        raise ConfigError("--dtypes", found=repr(dtypes), allowed=", ".join(DTYPES))
    machine = machine_here(device)
    results = [row for name in _names(backend, machine) for row in run(name, machine, wanted)]
    failed = [row for row in results if row.outcome == "failed"]
    if as_json:
        write_json({"target": str(machine.target), "conformance": [row.to_json() for row in results]})
    else:
        print(f"{machine.target}: largest absolute errors against the kit's answers")
        for name in dict.fromkeys(row.backend for row in results):
            _print(name, [row for row in results if row.backend == name])
        for row in failed:
            print(f"! {row}")
    if failed:
        raise typer.Exit(FAILED)


def _names(backend: str, machine: Machine) -> list[str]:
    """The backends that were named, or all with cases that serve the target."""
    from rlt_hw.verify.conformance import KINDS

    if backend != "auto":
        return backend.split(",")
    specs = (spec for kind in KINDS for spec in machine.registry.of(kind))
    return [spec.name for spec in specs if spec.serves(machine.target)]


def _print(backend: str, results: list[CaseResult]) -> None:
    from rich.table import Table

    from rlt_hw.verify.conformance.summary import table, verdict

    rows = table(results)
    out = Table(title=backend, title_justify="left")
    dtypes = list(dict.fromkeys(row.dtype for row in results))
    for column in ("case", *dtypes):
        out.add_column(column)
    for case, found in rows.items():
        out.add_row(case, *(verdict(found[dtype]) for dtype in dtypes))
    console().print(out)
