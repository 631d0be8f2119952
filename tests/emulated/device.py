"""Registers the emulated accelerator with torch under a name. One name a process, so tests start processes.

`build` compiles it; it needs a C++ compiler and torch's own headers, nothing else.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import types
from pathlib import Path

import torch

SOURCE = Path(__file__).with_name("device.cpp")
LIBRARY = "RLT_HW_TEST_LIBRARY"
"""Variable that names the compiled library in the processes that tests start."""


def build(folder: Path) -> Path | None:
    """The compiled library in a folder, or None where there is no compiler."""
    compiler = os.environ.get("CXX") or shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        return None
    home = Path(torch.__file__).parent
    key = hashlib.sha256(SOURCE.read_bytes() + torch.__version__.encode()).hexdigest()[:16]
    library = folder / f"device-{key}.so"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not library.exists():
            made = library.with_suffix(".part")
            includes = (f"-I{home}/include", f"-I{home}/include/torch/csrc/api/include")
            links = (f"-L{home}/lib", "-ltorch_cpu", "-lc10", f"-Wl,-rpath,{home}/lib")
            flags = ("-std=c++20", "-O1", "-w", "-shared", "-fPIC")
            subprocess.run([compiler, *flags, *includes, str(SOURCE), *links, "-o", str(made)], check=True)
            made.rename(library)
    return library


class DeviceModule(types.ModuleType):
    """What `torch.NAME` is, as far as the platform seam asks for it."""

    def is_available(self) -> bool:
        return True

    def _is_in_bad_fork(self) -> bool:
        return False

    def device_count(self) -> int:
        return torch.accelerator.device_count()

    def current_device(self) -> int:
        return torch.ops.rlt_emulated.device()

    def set_device(self, index: int) -> None:
        torch.ops.rlt_emulated.set_device(index)

    def synchronize(self, index: int | None = None) -> None:
        torch.accelerator.synchronize()

    def memory_allocated(self, index: int = 0) -> int:
        return torch.ops.rlt_emulated.stats()[0]

    def max_memory_allocated(self, index: int = 0) -> int:
        return torch.ops.rlt_emulated.stats()[1]


def synchronisations() -> int:
    """How often the host has waited for the device so far."""
    return torch.ops.rlt_emulated.stats()[2]


def register(name: str, module: type[DeviceModule] = DeviceModule) -> DeviceModule:
    """Make `torch.NAME` and the device type of that name."""
    torch.ops.load_library(os.environ[LIBRARY])
    torch.utils.rename_privateuse1_backend(name)
    made = module(f"torch.{name}")
    torch._register_device_module(name, made)
    return made
