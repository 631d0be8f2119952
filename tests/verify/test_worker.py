"""What kills a process costs a row, and the others are there."""

from __future__ import annotations

import os
import signal
import time
from contextlib import closing
from dataclasses import dataclass

import pytest

from rlt_hw.devices.platforms.cpu import CpuPlatform
from rlt_hw.verify.conformance import machine_here
from rlt_hw.verify.engine_check import CheckResult
from rlt_hw.verify.worker import PATIENCE, Worker


@dataclass(frozen=True)
class Doing:
    """A row for each word: what happens when it is asked for."""

    words: tuple[str, ...]

    def count(self, machine):
        return len(self.words)

    def rows(self, machine, start=0):
        for word in self.words[start:]:
            if word == "crash":
                os.kill(os.getpid(), signal.SIGSEGV)
            if word == "hang":
                time.sleep(120)
            if word == "break the device":
                CpuPlatform.synchronize = broken
            yield CheckResult(word, str(os.getpid()), {}, "passed" if word == "pass" else "failed")

    def lost(self, machine, number, why):
        return CheckResult(self.words[number], "", {}, "failed", error=why)


def broken(self, index=0):
    raise RuntimeError("an illegal memory access")


@pytest.fixture
def rows_of():
    with closing(Worker(machine_here("cpu"), silence=30)) as worker:
        yield lambda *words: worker.rows(Doing(words))


def test_one_process_serves_as_long_as_it_lives(rows_of):
    first, second = rows_of("pass", "pass"), rows_of("fail", "pass")
    assert {row.outcome for row in first} == {"passed"} and second[0].outcome == "failed"
    assert len({row.model for row in first + second}) == 1


def test_a_crash_costs_one_row(rows_of):
    found = rows_of("pass", "crash", "pass")
    assert [row.outcome for row in found] == ["passed", "failed", "passed"]
    assert f"exit code {-signal.SIGSEGV}" in found[1].error and found[0].model != found[2].model


@pytest.mark.slow
def test_a_hang_costs_one_row(rows_of):
    found = rows_of("hang", "pass")
    assert [row.outcome for row in found] == ["failed", "passed"] and "no answer in 30 s" in found[0].error


def test_a_device_that_stopped_answering_gets_a_fresh_process(rows_of):
    found = rows_of("break the device", "pass")
    assert [row.outcome for row in found] == ["failed", "passed"] and found[0].model != found[1].model


@pytest.mark.slow
def test_patience_ends(rows_of):
    found = rows_of(*["crash"] * PATIENCE, "pass")
    assert "not run" in found[-1].error and len(found) == PATIENCE + 1
