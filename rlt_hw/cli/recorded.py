"""The machine that a command judges: this one, or a recorded one from a file."""

from __future__ import annotations

import json
from pathlib import Path

from rlt_hw.devices.environment import Environment
from rlt_hw.errors import ConfigError


def machine_of(record: Path | None, *, deep: bool = False, redact: bool = False) -> Environment:
    """The recorded machine, or this one; without paths where asked."""
    from rlt_hw.devices.detect import detect

    machine = read_machine(record) if record else detect(deep=deep)
    return machine.redacted() if redact else machine


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
