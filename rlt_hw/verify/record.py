"""The evidence record of a verify run, as JSON, and its readable report.

A record's level follows from where it ran: 4 on a device, 3 where the device is emulated or the kernels are
interpreted. It says so in "emulated", and no option changes it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from datetime import date
from pathlib import Path
from typing import Any

from rlt_hw import __version__
from rlt_hw.errors import ConfigError
from rlt_hw.registry import AUTO
from rlt_hw.verify.conformance import CaseResult, Machine
from rlt_hw.verify.proof import proofs
from rlt_hw.verify.provenance import Provenance
from rlt_hw.verify.report import report
from rlt_hw.verify.suite import Run

EXECUTED, INTERPRETED = 4, 3
ROWS = ("conformance", "engine", "rows")
"""What has a line a row in the file."""


def emulation(machine: Machine) -> str | None:
    """Why a run here is not one of the device itself; None where it is."""
    if machine.found.emulated or machine.target.vendor == "emulated":
        return "the device is emulated on the CPU"
    if machine.environment.variables.get("TRITON_INTERPRET", "0") not in ("0", ""):
        return "Triton's interpreter stands for its compiler"
    return None


def record_of(run: Run, origin: Provenance | None) -> dict[str, Any]:
    machine, proven = run.machine, proofs(run.conformance, run.engine)
    environment = machine.environment.redacted()
    used = {row for spec in machine.registry.specs for row in spec.requirements}
    names = {"torch", *(name for row in used for name in (row.distribution, *row.also))}
    emulated = emulation(machine)
    return {
        "level": INTERPRETED if emulated else EXECUTED,
        "target": str(machine.target),
        "backends": list(proven),
        "emulated": emulated,
        "date": date.today().isoformat(),
        "commit": origin.commit if origin else None,
        "commit_source": origin.source if origin else None,
        "version": __version__,
        "device": machine.found.to_json(),
        "system": environment.system,
        "python": environment.python,
        "packages": {
            name: package.version for name, package in sorted(environment.packages.items()) if name in names
        },
        "toolkits": dict(environment.toolkits),
        "variables": dict(environment.variables),
        "proven": {name: proof.to_json() for name, proof in proven.items()},
        "conformance": list(by_case(run.conformance)),
        "engine": [row.to_json() for row in run.engine],
    }


def name_of(run: Run) -> str:
    """The file name without its ending: one record a target and choice of backends."""
    asked = [] if run.asked == AUTO else run.asked.split(",")
    return "-".join(("verified", str(run.machine.target).replace(":", "-"), *asked))


def write(found: Mapping[str, Any], folder: Path, name: str) -> Path:
    """Write a record and, beside it, its report; the path of the record."""
    path = folder / f"{name}.json"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        path.write_text(dump(found), encoding="utf-8")
        path.with_suffix(".md").write_text("\n".join(report(found)) + "\n", encoding="utf-8")
    except OSError as error:
        raise ConfigError("--record", found=str(error), allowed="a folder that can be written") from error
    return path


def by_case(cases: Iterable[CaseResult]) -> Iterator[dict[str, Any]]:
    """A row a backend, case and dtype: what passed with which error, what failed, why others were refused."""
    found: dict[tuple[str, str, str], list[CaseResult]] = {}
    for row in cases:
        found.setdefault((row.backend, row.case, row.dtype), []).append(row)
    for (backend, case, dtype), rows in found.items():
        yield {
            "backend": backend,
            "case": case,
            "dtype": dtype,
            "passed": sum(row.outcome == "passed" for row in rows),
            "failed": [str(row) for row in rows if row.outcome == "failed"],
            "refused": Counter(str(row.rejection.code) for row in rows if row.rejection),
            "max_error": max((row.max_error or 0.0 for row in rows if row.outcome == "passed"), default=None),
            "tolerance": rows[0].tolerance,
        }


def dump(found: Mapping[str, Any]) -> str:
    """JSON with a line a row, so that records can be read and compared."""
    lines = []
    for key, value in found.items():
        if key in ROWS and value:
            rows = ",\n".join(f"  {json.dumps(row)}" for row in value)
            lines.append(f" {json.dumps(key)}: [\n{rows}\n ]")
        else:
            lines.append(f" {json.dumps(key)}: {json.dumps(value)}")
    return "{\n" + ",\n".join(lines) + "\n}\n"
