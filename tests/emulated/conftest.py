"""Processes in which a torch device is emulated. The library is compiled once and kept in pytest's cache."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rlt_hw.devices.variables import EMULATED
from tests.emulated.device import LIBRARY, build

ROOT = Path(__file__).parents[2]
SECONDS = 600


@pytest.fixture(scope="session")
def library(pytestconfig) -> Path:
    built = build(pytestconfig.cache.mkdir("emulated"))
    if built is None:
        pytest.skip("the emulated device needs a C++ compiler")
    return built


@pytest.fixture(scope="session")
def emulate(library) -> Callable[..., Any]:
    """emulate(kind, module, *arguments): what a module prints last, as JSON, where `kind` is emulated."""

    def run(kind: str, module: str, *arguments: str, **variables: str) -> Any:
        environment = {**os.environ, LIBRARY: str(library), EMULATED: kind, "OMP_NUM_THREADS": "1",
                       "TORCH_DEVICE_BACKEND_AUTOLOAD": "0", **variables}  # fmt: skip
        ran = subprocess.run(
            [sys.executable, "-m", f"tests.emulated.{module}", *arguments],
            cwd=ROOT, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False,
        )  # fmt: skip
        assert ran.returncode == 0, ran.stderr[-4000:]
        return json.loads(ran.stdout.splitlines()[-1])

    return run
