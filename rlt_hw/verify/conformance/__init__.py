"""The conformance kit: attention backends on small cases, against dense float64 answers.

It works on backends of any package and on any device. A backend is judged by what it was asked for: what
selection would refuse is refused with the same code, and counts neither for nor against it.
"""

from rlt_hw.verify.conformance.kit import DTYPES, Machine, machine_here, run
from rlt_hw.verify.conformance.result import CaseResult

__all__ = ["DTYPES", "CaseResult", "Machine", "machine_here", "run"]
