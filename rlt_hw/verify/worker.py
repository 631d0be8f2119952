"""Runs units in a process beside this one. A crash, a device that stops answering or a hang costs the row
that caused it: a fresh process goes on with the next.
"""

from __future__ import annotations

import multiprocessing
import os
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

from rlt_hw.devices.choice import torch_name
from rlt_hw.devices.platform import platform_for
from rlt_hw.verify.conformance import Machine, machine_here
from rlt_hw.verify.units import Row, Unit

SILENCE = 900.0
"""Seconds without a row after which a process is taken to hang. The first call of a backend may compile."""
PATIENCE = 3
"""Processes that a unit may use up; its other rows are failed without being run."""
END, UNUSABLE = "end", "unusable"
"""After the last row of a unit; after a row that left the device unusable."""


class LostError(Exception):
    """The process gave no row; says why."""


class Worker:
    """At most one process at a time. silence: as `SILENCE`."""

    def __init__(self, machine: Machine, silence: float = SILENCE) -> None:
        self._machine = machine
        self._silence = silence
        self._process: Any = None
        self._pipe: Connection | None = None

    def close(self) -> None:
        if self._pipe is not None:
            self._pipe.close()
            self._process.kill()
            self._process.join()
        self._pipe = self._process = None

    def rows(self, unit: Unit) -> list[Row]:
        """A row for everything in the unit, whatever happens."""
        found: list[Row] = []
        used = 0
        while len(found) < unit.count(self._machine):
            if used == PATIENCE:
                why = f"not run: {used} processes of this unit were lost before"
                found.append(unit.lost(self._machine, len(found), why))
                continue
            try:
                self._collect(unit, found)
            except LostError as fault:
                used += 1
                found.append(unit.lost(self._machine, len(found), str(fault)))
            else:
                used += self._process is None
        return found

    def _collect(self, unit: Unit, found: list[Row]) -> None:
        """Rows from where `found` ends until the unit's end, or the process's."""
        pipe = self._start()
        with suppress(OSError):  # a process that has gone shows when its answer is read
            pipe.send((unit, len(found)))
        while (said := self._next(pipe)) not in (END, UNUSABLE):
            found.append(said)
        if said == UNUSABLE:
            self.close()

    def _next(self, pipe: Connection) -> Any:
        try:
            if not pipe.poll(self._silence):
                self.close()
                raise LostError(f"no answer in {self._silence:.0f} s; the process was ended")
            return pipe.recv()
        except (EOFError, OSError) as error:
            self._process.join(5)
            code = self._process.exitcode
            self.close()
            raise LostError(f"the process ended with exit code {code}") from error

    def _start(self) -> Connection:
        if self._pipe is None:
            context = multiprocessing.get_context("spawn")
            self._pipe, theirs = context.Pipe()
            name = torch_name(self._machine.found)
            self._process = context.Process(target=_serve, args=(theirs, name), daemon=True)
            self._process.start()
            theirs.close()
        return self._pipe


def _serve(pipe: Connection, device: str) -> None:
    """Answer units until the other end closes. What backends print goes to standard error."""
    os.dup2(2, 1)
    machine = machine_here(device)
    with suppress(EOFError, BrokenPipeError):
        while True:
            unit, start = pipe.recv()
            for row in unit.rows(machine, start):
                pipe.send(row)
                if row.outcome == "failed" and not _answers(machine):
                    pipe.send(UNUSABLE)
                    return
            pipe.send(END)


def _answers(machine: Machine) -> bool:
    """Whether the device still computes: after some faults it never does in the same process."""
    import torch

    try:
        platform_for(machine.target).synchronize(machine.found.index)
        return float(torch.ones(2, device=machine.device).sum()) == 2
    except Exception:  # noqa: BLE001 - whatever it raises, it does not compute
        return False
