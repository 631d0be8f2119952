"""Backends from separately installed packages: listed, selected when named, harmless when broken."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from rlt_hw.models.config import DEMO

HERE = Path(__file__).parent
PROBLEM = json.loads((DEMO / "problems-200.jsonl").read_text().splitlines()[0])


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """A folder with both packages installed, as pip installs them."""
    pytest.importorskip("hatchling")
    folder = tmp_path_factory.mktemp("site")
    options = ("--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--target", str(folder))
    for name in ("good", "broken"):
        command = [sys.executable, "-m", "pip", "install", *options, str(HERE / name)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stderr
    return folder


def rlt_hw(site: Path, *words: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join((str(site), str(HERE.parent.parent)))
    environment = os.environ | {"PYTHONPATH": path}
    command = [sys.executable, "-m", "rlt_hw.cli", *words]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)


def generate(site: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return rlt_hw(site, "generate", "--device", "cpu", "--prompt", PROBLEM["prompt"], "--json", *words)


def test_the_good_one_is_one_short_file():
    (file,) = HERE.glob("good/*.py")
    assert len(file.read_text().splitlines()) <= 150


def test_both_are_rows_of_probe(site):
    done = rlt_hw(site, "probe", "--json")
    assert done.returncode == 0, done.stderr
    (target,) = json.loads(done.stdout)["targets"]
    rows = {row["name"]: row for row in target["backends"]}
    assert rows["toy_dense"]["source"] == "toy-attention 1.2.3"
    assert rows["toy_dense"]["rung"] == "compatible"
    assert rows["broken_attention"]["source"] == "broken-attention 1.2.3"
    assert "PLUGIN" in json.dumps(rows["broken_attention"])
    assert "libvendor.so.7" in json.dumps(rows["broken_attention"])


def test_the_good_one_runs_when_it_is_named(site):
    done = generate(site, "--attention", "toy_dense")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["text"] == PROBLEM["solution"]


def test_auto_goes_on_beside_the_broken_one(site):
    done = generate(site)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["text"] == PROBLEM["solution"]


def test_naming_the_broken_one_is_refused_with_its_error(site):
    done = generate(site, "--attention", "broken_attention")
    assert done.returncode == 3, done.stderr
    assert json.loads(done.stdout)["error"]["code"] == "PLUGIN"
    assert "libvendor.so.7" in done.stderr
