"""The CPU. Its instruction-set extensions belong to the device, not to the target."""

from __future__ import annotations

from rlt_hw.devices.facts.record import TargetFacts
from rlt_hw.devices.target import Target

TARGETS = (
    TargetFacts(
        Target("cpu", "any"),
        ("any CPU that torch supports",),
        "torch releases; memory bandwidth depends on the board and is not published for a target",
    ),
)

# Machine names (`platform.machine()`) of the CPUs that torch is built for.
ARCHS = ("any", "x86_64", "amd64", "aarch64", "arm64", "ppc64le", "s390x", "riscv64", "loongarch64")
