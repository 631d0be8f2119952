"""What a verify run consists of: the cases of a backend in one dtype, or one check of an engine."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from rlt_hw.verify.conformance import CaseResult, Machine, cases_of, lost, results, spec_of
from rlt_hw.verify.engine_check import Bench, CheckResult, judge
from rlt_hw.verify.engine_checks import CHECKS


@dataclass(frozen=True)
class Cases:
    """Every conformance case of a backend in a dtype, a row each."""

    backend: str
    dtype: str

    def __str__(self) -> str:
        return f"conformance of {self.backend} in {self.dtype}"

    def count(self, machine: Machine) -> int:
        return sum(1 for _ in cases_of(spec_of(self.backend, machine.registry)))

    def rows(self, machine: Machine, start: int = 0) -> Iterator[CaseResult]:
        """From row number `start` on."""
        return results(self.backend, machine, self.dtype, start=start)

    def lost(self, machine: Machine, number: int, why: str) -> CaseResult:
        """The row of a number that gave none."""
        return lost(self.backend, machine, self.dtype, number, why)


@dataclass(frozen=True)
class Check:
    """One check of an engine, which is one row."""

    check: str
    bench: Bench

    def __str__(self) -> str:
        return f"{self.bench.model} with {', '.join(self.bench.asked.values()) or 'auto'}: {self.check}"

    def count(self, machine: Machine) -> int:
        return 1

    def rows(self, machine: Machine, start: int = 0) -> Iterator[CheckResult]:
        yield judge(self.check, CHECKS[self.check], self.bench)

    def lost(self, machine: Machine, number: int, why: str) -> CheckResult:
        return CheckResult(self.check, self.bench.model, self.bench.asked, "failed", error=why)


Unit = Cases | Check
Row = CaseResult | CheckResult
