"""`--require-device` turns a skip into a failure."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from rlt_hw.devices.detect import detect

ROOT = Path(__file__).parent.parent.parent
SUITE = """
import pytest

@pytest.mark.device("amd:gfx1250")
def test_of_a_device_that_is_nowhere(): pass

@pytest.mark.device("{here}")
def test_of_this_device_that_cannot_run():
    pytest.skip("a package is missing")

def test_of_no_device():
    pytest.skip("for a reason of its own")
"""


@pytest.fixture
def counted(tmp_path):
    """Runs a small suite with the options and rules of this one: (exit status, counts, output)."""
    here = next(str(row.target) for row in detect().devices if row.target.vendor == "cpu")
    (tmp_path / "test_suite.py").write_text(SUITE.replace("{here}", here))

    def run(*options):
        options = [option.replace("HERE", here) for option in options]
        command = [sys.executable, "-m", "pytest", "-p", "tests.conftest", "-c", str(ROOT / "pyproject.toml")]
        done = subprocess.run(
            [*command, "--rootdir", str(tmp_path), "-p", "no:cacheprovider", *options, str(tmp_path)],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        counts = re.findall(r"(\d+) (failed|skipped|error)", done.stdout)
        return done.returncode, {word: int(count) for count, word in counts}, done.stdout

    return run


def test_without_it_everything_is_skipped(counted):
    status, counts, _ = counted()
    assert (status, counts) == (0, {"skipped": 3})


def test_a_required_device_that_is_missing(counted):
    status, counts, said = counted("--require-device=amd:gfx1250")
    assert (status, counts) == (1, {"error": 1, "skipped": 2})
    assert "required and not here: amd:gfx1250" in said


def test_a_required_device_whose_test_is_skipped(counted):
    status, counts, said = counted("--require-device=HERE")
    assert (status, counts) == (1, {"failed": 1, "skipped": 2})
    assert "skipped under --require-device: a package is missing" in said
