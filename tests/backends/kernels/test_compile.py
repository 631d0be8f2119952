"""What Triton's compilers say of every kernel for targets that are not here."""

from __future__ import annotations

import pytest

pytest.importorskip("triton")
pytestmark = pytest.mark.compile

PREFILL = {
    "nvidia:sm80": "mma.sync",
    "nvidia:sm86": "mma.sync",
    "nvidia:sm89": "mma.sync",
    "nvidia:sm90": "wgmma",
    "nvidia:sm100": "tcgen05",
    "nvidia:sm120": "mma.sync",
    "amd:gfx90a": "v_mfma",
    "amd:gfx942": "v_mfma",
    "amd:gfx950": "v_mfma",
    "amd:gfx1100": "v_wmma",
    "amd:gfx1201": "v_wmma",
}
"""The matrix instruction that prefill must use."""
FAST = {("nvidia:sm90", 128), ("amd:gfx942", 96)}
STACK = 64
"""Bytes of stack that NVIDIA's compiler may use: 255 registers are a few short for some tiles."""
CASES = [
    pytest.param(target, head_dim, marks=() if (target, head_dim) in FAST else pytest.mark.slow)
    for target in PREFILL
    for head_dim in (96, 128)
]


@pytest.mark.parametrize(("target", "head_dim"), CASES)
def test_kernels_compile_within_the_limits_of_the_target(target, head_dim):
    from rlt_hw.backends.kernels.compile_check import PRODUCTS, check
    from rlt_hw.devices.target import Target

    for row in check(Target.parse(target), head_dim, "bfloat16"):
        name = row.kernel.partition(" ")[0]
        assert row.shared <= row.shared_limit, row
        assert row.spills <= (STACK if target.startswith("nvidia") else 0), row
        assert row.matrix or name not in PRODUCTS, row
        if name == "prefill_kernel":
            assert row.matrix.startswith(PREFILL[target]), row
