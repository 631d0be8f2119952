"""The page about adding a backend says what works: its code is taken from it and run."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

import rlt_hw
from rlt_hw.backends.catalog import GROUP, load_registry
from rlt_hw.verify.conformance import machine_here, run

PAGE = (Path(__file__).parents[2] / "docs" / "add-a-backend.md").read_text(encoding="utf-8")
MASK = 'scores.masked_fill(unseen, float("-inf"))'
COMMAND = "rlt-hw verify --backend toy --device cpu --dtypes float32 --model demo:ouro"


def block(language: str) -> str:
    (text,) = re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    return text


def outcomes(folder: Path, source: str, monkeypatch) -> dict[str, set[str]]:
    """By case, with the page's file as a plugin."""
    (folder / "toy.py").write_text(source)
    monkeypatch.syspath_prepend(folder)
    monkeypatch.delitem(sys.modules, "toy", raising=False)
    registry = load_registry(points=(EntryPoint("toy", "toy", GROUP),))
    assert registry.broken == ()
    found: dict[str, set[str]] = {}
    for row in run("toy", machine_here("cpu", registry), ("float32",), long=64):
        found.setdefault(row.case, set()).add(row.outcome)
    return found


def test_its_file_passes_what_it_does_not_refuse(tmp_path, monkeypatch):
    found = outcomes(tmp_path, block("python"), monkeypatch)
    refused = {case for case, how in found.items() if how == {"refused"}}
    assert refused == {
        "the same to the bit in any batch",
        "decode step with rotation and write",
        "graph replay after growth",
    }
    assert all(how == {"passed"} for case, how in found.items() if case not in refused)


def test_without_the_mask_it_fails_as_the_page_says(tmp_path, monkeypatch):
    assert MASK in block("python")
    found = outcomes(tmp_path, block("python").replace(MASK, "scores"), monkeypatch)
    assert found["prefill, page edges"] == {"failed"} and found["decode, page edges"] == {"passed"}


def test_its_commands_are_there():
    assert COMMAND in block("bash").splitlines()


def command(path: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "rlt_hw.cli", *words],
        env={**os.environ, "PYTHONPATH": str(path)},
        cwd=path,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def test_a_file_in_the_folder_is_all(tmp_path):
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(Path(rlt_hw.__file__).parent, tmp_path / "rlt_hw", ignore=ignored)
    (tmp_path / "rlt_hw" / "backends" / "attention" / "toy.py").write_text(block("python"))
    done = command(tmp_path, "probe", "--json")
    assert done.returncode == 0, done.stderr
    rows = {row["name"]: row for row in json.loads(done.stdout)["targets"][0]["backends"]}
    assert (rows["toy"]["source"], rows["toy"]["rung"]) == ("rlt-hw", "compatible")


@pytest.mark.slow
def test_its_package_is_verified(tmp_path):
    package, site = tmp_path / "package", tmp_path / "site"
    package.mkdir()
    (package / "toy.py").write_text(block("python"))
    (package / "pyproject.toml").write_text(block("toml"))
    options = ("--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--target", str(site))
    subprocess.run([sys.executable, "-m", "pip", "install", *options, str(package)], check=True, timeout=120)
    (site / "rlt_hw").symlink_to(Path(rlt_hw.__file__).parent)
    done = command(site, *COMMAND.split()[1:], "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["proven"]["toy"]["families"] == ["ouro"]
    assert found["proven"]["toy"]["features"]["decode"] == [64, 96, 128]
