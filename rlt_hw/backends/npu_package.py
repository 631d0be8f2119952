"""The package of every backend for Ascend, and the chips whose limits it documents: Atlas A2 and A3."""

from __future__ import annotations

from rlt_hw.registry import Rank, Requirement

REQUIREMENT = Requirement("torch-npu", ">=2.10", "torch_npu")
TARGETS = ("ascend:910b", "ascend:910_93")


def order(value: int, evidence: str) -> tuple[Rank, ...]:
    return (Rank("ascend:*", value, f"not measured; {evidence}"),)
