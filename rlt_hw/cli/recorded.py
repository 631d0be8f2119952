"""The machine that a command judges: this one, or a recorded one from a file; redacted where asked."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from rlt_hw.devices.environment import Environment
from rlt_hw.errors import ConfigError

if TYPE_CHECKING:
    from rlt_hw.runtime.probing import ProbeReport

REDACT = "Leave out paths, user and host names, addresses and ids of devices."


def report_of(
    record: Path | None, model: str | None = None, *, deep: bool = False, redact: bool = False
) -> ProbeReport:
    """On the recorded machine, or this one. redact: without what names a person or a machine."""
    from rlt_hw.backends.catalog import load_registry
    from rlt_hw.devices.detect import detect
    from rlt_hw.devices.redaction import of_this_process
    from rlt_hw.runtime.probing import DEFAULT_MODEL, probe

    machine, registry = read_machine(record) if record else detect(deep=deep), load_registry()
    if redact:
        names = of_this_process()
        machine = machine.redacted(names)
        plugins = (replace(row, rejection=names.rejection(row.rejection)) for row in registry.broken)
        registry = replace(registry, broken=tuple(plugins))
    return probe(model or DEFAULT_MODEL, environment=machine, registry=registry)


def read_machine(path: Path) -> Environment:
    """A machine from a file of `rlt-hw probe --save` or `probe --json`. Raises ConfigError."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise _wrong("--environment", str(error), "a file of `rlt-hw probe --save FILE`") from error
    if not isinstance(data, dict):
        raise _wrong("--environment", f"a JSON {type(data).__name__}", "a JSON object of `rlt-hw probe`")
    return Environment.from_json(data.get("environment", data))


def write_machine(path: Path, environment: Environment) -> None:
    """Write what `read_machine` reads. Raises ConfigError where the file cannot be written."""
    text = json.dumps(environment.to_json(), indent=2, ensure_ascii=False)
    try:
        path.write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise _wrong("--save", str(error), "a file that can be written") from error


def _wrong(subject: str, found: str, allowed: str) -> ConfigError:
    return ConfigError(subject, found=found, allowed=allowed)
