"""The conformance kit: attention and operators on small cases, against answers in float64 or float32.

It works on backends of any package and on any device. A backend is judged by what it was asked for: what
selection would refuse is refused with the same code, and counts neither for nor against it.
"""

from rlt_hw.verify.conformance.kit import (
    DTYPES,
    KINDS,
    Machine,
    cases_of,
    lost,
    machine_here,
    results,
    run,
    spec_of,
)
from rlt_hw.verify.conformance.result import CaseResult

__all__ = [
    "DTYPES",
    "KINDS",
    "CaseResult",
    "Machine",
    "cases_of",
    "lost",
    "machine_here",
    "results",
    "run",
    "spec_of",
]
