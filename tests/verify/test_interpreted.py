"""Records of the interpreter's numbers, and the adapters that run in it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytest.importorskip("triton")

from rlt_hw.verify.interpreted import TILES, records

ROW = {"backend": "triton_paged", "passed": 3, "failed": []}
BAD = {"backend": "triton_fused", "passed": 3, "failed": ["one"]}
SCRIPT = """
from rlt_hw.verify import interpreted
interpreted.DTYPES = {"triton_paged": ("float16",), "triton_fused": ("float32",)}
interpreted._short = lambda case: case.name == "settled streams" or (
    case.name == "decode and prefill at mixed depths" and case.settings["heads"] == 4)
for row in interpreted.rows(interpreted.TILES["amd-wave32"]):
    print(row["backend"], row["passed"], len(row["failed"]))
"""


def test_a_record_for_every_target_with_the_tiles():
    found = {row["target"]: row for row in records({"amd-wave32": [ROW, BAD]}, "0" * 40, "a test")}
    assert set(found) == {"amd:gfx1100", "amd:gfx1101", "amd:gfx1151", "amd:gfx1200", "amd:gfx1201"}
    assert found["amd:gfx1100"]["level"] == 3 and found["amd:gfx1100"]["backends"] == ["triton_paged"]
    assert str(TILES["amd-wave32"]) == found["amd:gfx1100"]["tiles"]


def test_nothing_that_only_refused_is_right():
    rows = [{**ROW, "passed": 0}]
    assert {tuple(row["backends"]) for row in records({"nvidia": rows}, "0" * 40, "a test")} == {()}


@pytest.mark.slow
def test_cases_run_in_the_interpreter_with_the_tiles_of_a_target():
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = [line.split() for line in done.stdout.splitlines()]
    assert {name for name, *_ in found} == {"triton_paged", "triton_fused"}
    assert all(int(passed) and failed == "0" for _, passed, failed in found)
