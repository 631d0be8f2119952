"""The Triton kernels without a GPU: numbers from the interpreter, resources from the compiler."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

triton = pytest.importorskip("triton")

TOLERANCE = {"float32": 5e-6, "float16": 3e-3}


def interpret(*words: object) -> float:
    """The largest error that the interpreter's process prints."""
    command = [sys.executable, "-m", "tests.backends.kernels.interpret", *map(str, words)]
    environment = os.environ | {"TRITON_INTERPRET": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return float(done.stdout)


def test_grouped_heads_of_96_on_pages_of_16():
    assert interpret(96, 6, 1, 16, "float32") < TOLERANCE["float32"]


@pytest.mark.slow
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("page", [1, 16, 64])
@pytest.mark.parametrize("heads", [(2, 2), (6, 2)])
@pytest.mark.parametrize("dim", [64, 96, 128])
def test_numbers(dim, heads, page, dtype):
    assert interpret(dim, *heads, page, dtype) < TOLERANCE[dtype]


TARGETS = {
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
STACK = {"nvidia:sm80": 64, "nvidia:sm86": 64, "nvidia:sm89": 64}
"""Bytes of stack that prefill may use: its 255 registers are a few short where there is no wgmma."""


@pytest.mark.slow
@pytest.mark.parametrize("head_dim", [96, 128])
@pytest.mark.parametrize("target", TARGETS)
def test_kernels_compile_within_the_limits_of_the_target(target, head_dim):
    from rlt_hw.backends.kernels.compile_check import check
    from rlt_hw.devices.target import Target

    for row in check(Target.parse(target), head_dim, "bfloat16"):
        assert row.shared <= row.shared_limit, row
        allowed = STACK.get(target, 0) if row.kernel == "prefill_kernel" else 0
        assert row.spills <= allowed, row
        if row.kernel == "prefill_kernel":
            assert row.matrix.startswith(TARGETS[target]), row
        if row.kernel == "decode_kernel":
            assert row.matrix, row


def test_shares_are_powers_of_two_and_shrink_with_the_batch():
    from rlt_hw.backends.kernels.tuning import splits_for

    shares = [splits_for(rows, 16, 1024) for rows in (1, 8, 64, 256)]
    assert shares == [64, 8, 1, 1]
    assert splits_for(3, 16, 1024) == 16
