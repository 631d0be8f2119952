"""The Triton kernels without a GPU: numbers from the interpreter, resources from the compiler."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

triton = pytest.importorskip("triton")

TOLERANCE = {"float32": 5e-6, "float16": 3e-3}


def interpret(*words: object, module: str = "interpret") -> float:
    """The largest error that the interpreter's process prints."""
    command = [sys.executable, "-m", f"tests.backends.kernels.{module}", *map(str, words)]
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


@pytest.mark.parametrize("case", ["projections", "products", "rotations", "decodes", "rows"])
def test_operators_and_the_fused_decode(case):
    assert interpret(case, module="interpret_operators") < TOLERANCE["float32"]


def test_shares_are_powers_of_two_and_shrink_with_the_batch():
    from rlt_hw.backends.kernels.tuning import Operands, decode_tiles

    shares = [decode_tiles(Operands(128, 2), rows, 16).splits for rows in (1, 3, 8, 32, 128)]
    assert shares == [32, 8, 4, 1, 1]


def test_tiles_fit_in_shared_memory():
    from rlt_hw.backends.kernels.tables import Resources, block_rows, tile_for

    for limit in (48 * 1024, 64 * 1024, 99 * 1024, 227 * 1024):
        for rows in (2, 32, 128):
            for itemsize in (2, 4):
                for gated in (False, True):
                    resources = Resources(132, limit, 64)
                    tile = tile_for(
                        rows, 2048, gated=gated, shared=not gated, itemsize=itemsize, resources=resources
                    )
                    if tile is not None:
                        block_m = block_rows(rows, resources)
                        assert tile.shared_memory(block_m, itemsize, gated=gated) <= limit
