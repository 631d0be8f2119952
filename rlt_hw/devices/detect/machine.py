"""Everything that detection may do to a machine: run a command, read a file, list a folder.

All looking goes through a `Machine`, so that a recorded machine answers in tests. `LocalMachine` is the
only code of this package that touches the operating system.
"""

from __future__ import annotations

import contextlib
import os
import platform
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True)
class Ran:
    """How a command ended: `status` is "ok", "failed", "missing" or "timeout"."""

    status: str
    output: str = ""
    error: str = ""

    @property
    def ok(self) -> bool:
        return self.status == "ok"

    @property
    def complaint(self) -> str:
        """The first telling line of what a failed command printed."""
        lines = [line.strip() for line in (self.error or self.output).splitlines() if line.strip()]
        return lines[0] if lines else self.status


class Machine(Protocol):
    """What a probe may ask of a machine. No method raises for what a machine can do wrong."""

    system: str
    python: str
    variables: Mapping[str, str]
    search_path: tuple[str, ...]
    """Folders where Python looks for modules, in order."""

    def run(self, *command: str, timeout: float) -> Ran:
        """Run a command without a shell and give up after `timeout` seconds."""
        ...

    def read(self, path: str) -> str | None:
        """The text of a file, or None when it cannot be read."""
        ...

    def list(self, path: str) -> tuple[str, ...]:
        """The sorted names in a folder; empty when it is no folder."""
        ...

    def exists(self, path: str) -> bool: ...

    def writable(self, path: str) -> bool:
        """Whether this process may open the file for reading and writing."""
        ...


class LocalMachine:
    """The machine that this process runs on."""

    def __init__(self) -> None:
        self.system = f"{platform.system().lower()}-{platform.machine().lower()}"
        self.python = platform.python_version()
        self.variables: Mapping[str, str] = dict(os.environ)
        self.search_path = tuple(entry or str(Path.cwd()) for entry in sys.path)

    def run(self, *command: str, timeout: float) -> Ran:
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
                start_new_session=True,
            )
        except OSError as error:
            return Ran("missing", error=str(error))
        try:
            output, complaint = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            _abandon(process)
            return Ran("timeout", error=f"no answer within {timeout:g} s")
        return Ran("ok" if process.returncode == 0 else "failed", output, complaint)

    def read(self, path: str) -> str | None:
        try:
            return Path(path).read_text(encoding="utf-8", errors="replace")
        except OSError:
            return None

    def list(self, path: str) -> tuple[str, ...]:
        try:
            return tuple(sorted(entry.name for entry in os.scandir(path)))
        except OSError:
            return ()

    def exists(self, path: str) -> bool:
        return Path(path).exists()

    def writable(self, path: str) -> bool:
        return os.access(path, os.R_OK | os.W_OK)


def number(text: str | None) -> int | None:
    """The first whole number in a text, or None."""
    match = re.search(r"\d+", text or "")
    return int(match.group()) if match else None


def _abandon(process: subprocess.Popen[str]) -> None:
    """Kill a command and its children. A process stuck in its driver cannot be waited for."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (OSError, AttributeError):
        process.kill()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(timeout=0.2)
    for pipe in (process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()
