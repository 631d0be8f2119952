"""What is installed is what is in the repository."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.mark.slow
def test_the_wheel_holds_every_file_of_the_package(tmp_path):
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", tmp_path, ROOT]
    subprocess.run(command, check=True)
    (wheel,) = tmp_path.glob("rlt_hw-*.whl")
    held = set(zipfile.ZipFile(wheel).namelist())
    listed = subprocess.run(
        ["git", "ls-files", "rlt_hw"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    tracked = [name for name in listed.stdout.splitlines() if (ROOT / name).is_file()]
    assert [name for name in tracked if name not in held] == []
    assert "rlt_hw/models/demo/ouro/model.safetensors" in held
