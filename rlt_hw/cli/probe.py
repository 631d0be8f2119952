"""`rlt-hw probe`: the devices, packages and backends of this machine, and what "auto" would choose."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rlt_hw.cli.output import console, gib, write_json
from rlt_hw.cli.recorded import REDACT, report_of, write_machine

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from rlt_hw.devices.environment import Device, Environment
    from rlt_hw.runtime.probing import BackendRow, Outlook, ProbeReport

# Packages that some backend or platform uses; the JSON has all that are installed.
_SHOWN = (
    "torch", "triton", "triton-rocm", "triton-ascend", "flashinfer-python", "flash-attn", "flash-attn-4",
    "amd-aiter", "aiter", "torch-npu", "numpy", "safetensors", "tokenizers",
)  # fmt: skip


def probe(
    model: Annotated[str, typer.Option(help="Hold the backends against this model's need.")] = "Ouro-1.4B",
    deep: Annotated[
        bool, typer.Option("--deep", help="Import every vendor package, each by itself.")
    ] = False,
    environment: Annotated[Path | None, typer.Option(help="A recorded machine to judge.")] = None,
    save: Annotated[Path | None, typer.Option(help="Record the machine in this file.")] = None,
    redact: Annotated[bool, typer.Option("--redact", help=REDACT)] = False,
    matrix: Annotated[
        bool, typer.Option("--matrix", help="Print what is supported where, at which level of evidence.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show the devices, packages and backends of this machine, and what auto would choose."""
    if matrix:
        _show_matrix(as_json)
        return
    report = report_of(environment, model, deep=deep, redact=redact)
    if save:
        write_machine(save, report.environment)
    if as_json:
        write_json(report.to_json())
    else:
        _show(report)


def _show_matrix(as_json: bool) -> None:
    """Of every target, from the specs and records of this package."""
    from rlt_hw.verify.matrix import lines
    from rlt_hw.verify.matrix import matrix as cells

    if as_json:
        write_json({"cells": [cell.to_json() for cell in cells()]})
    else:
        print("\n".join(lines(cells())))


def _show(report: ProbeReport) -> None:
    out = console()
    _machine(out, report.environment)
    out.print(_devices(report))
    _choice(out, report)
    # Without a usable device the reasons are wanted most, so every target is shown.
    for outlook in [report.outlook] if report.outlook else report.outlooks:
        out.print(f"\nbackends on {outlook.target}, for {report.model}", style="bold", markup=False)
        out.print(_backends(outlook))
    if report.findings:
        out.print()
        for finding in report.findings:
            out.print(f"! {finding.code} {finding.subject}: {finding.found}", style="yellow", markup=False)
        out.print("`rlt-hw doctor` says what to do about each.", markup=False)


def _machine(out: Console, machine: Environment) -> None:
    packages = [machine.packages[name] for name in _SHOWN if name in machine.packages]
    shown = [f"{row.name} {row.version}{' (broken)' if row.error else ''}" for row in packages]
    tools = [f"{vendor} driver {version}" for vendor, version in machine.drivers.items()]
    tools += [f"{name} {version}" for name, version in machine.toolkits.items()]
    torch = machine.torch
    lines = {
        "machine": f"{machine.system}, Python {machine.python}",
        "torch": f"{torch.version}, built for {torch.built_for}" if torch else "not installed",
        "packages": ", ".join(shown),
        "tools": ", ".join(tools),
        "variables": " ".join(f"{name}={value}" for name, value in machine.variables.items()),
    }
    for name, text in lines.items():
        if text:
            out.print(f"{name:10} {text}", markup=False)
    out.print()


def _table(*columns: str) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def _devices(report: ProbeReport) -> Table:
    from rlt_hw.devices.choice import torch_name

    table = _table("device", "target", "name", "memory free / total", "features")
    for device in report.environment.devices:
        table.add_row(
            torch_name(device), str(device.target), device.name, _memory(device), ", ".join(device.features)
        )
    return table


def _memory(device: Device) -> str:
    return f"{gib(device.memory_free)} / {gib(device.memory_total)}" if device.memory_total else "?"


def _choice(out: Console, report: ProbeReport) -> None:
    from rlt_hw.devices.choice import torch_name

    device = report.choice.device
    out.print(f"\nauto takes {torch_name(device) if device else 'no device'}", style="bold", markup=False)
    for row in report.choice.passed_over:
        out.print(f"  not {torch_name(row.device)}: {row.reasons[0]}", markup=False)
    if report.outlook and report.outlook.decision.supported:
        values = report.outlook.decision.derived.items()
        out.print("  " + ", ".join(f"{name} {value.value}" for name, value in values), markup=False)


def _backends(outlook: Outlook) -> Table:
    table = _table("kind", "backend", "rung", "chosen for", "first reason")
    table.columns[-1].no_wrap, table.columns[-1].overflow = True, "ellipsis"
    for row in outlook.backends:
        table.add_row(*_cells(row), style="green" if row.chosen_for else "dim" if row.reasons else None)
    for column in table.columns[:-1]:
        column.min_width = max(map(len, map(str, column.cells)), default=0)
    return table


def _cells(row: BackendRow) -> tuple[str, ...]:
    from rich.markup import escape

    name = row.name if row.source == "rlt-hw" else f"{row.name} ({row.source})"
    first = row.reasons[0] if row.reasons else None
    reason = f"{first.code}: found {first.found}; allowed {first.allowed}" if first else ""
    return row.kind, escape(name), row.rung, ", ".join(row.chosen_for), escape(reason)
