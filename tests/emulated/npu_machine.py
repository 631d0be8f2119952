"""What detection looks at on a machine with an Ascend chip, as files in a folder."""

from __future__ import annotations

import os
from pathlib import Path

from tests.devices.machines import npu_table
from tests.emulated import npu

CHIP = "910B3"


def build(folder: Path) -> dict[str, str]:
    """The variables of a process on that machine: npu-smi, torch_npu as a package, and CANN's library."""
    (folder / "torch_npu-2.13.0.dist-info").mkdir(parents=True)
    (folder / "libhccl.so").touch()
    (folder / "torch_npu").mkdir()
    (folder / "torch_npu" / "__init__.py").write_text(f"from {npu.__name__} import install\n\ninstall()\n")
    (folder / "table").write_text(npu_table((0, 0, CHIP, 3353, 65536)).output)
    tool = folder / "npu-smi"
    tool.write_text(f"#!/bin/sh\ncat {folder / 'table'}\n")
    tool.chmod(0o755)
    paths = {"PATH": "", "PYTHONPATH": "", "LD_LIBRARY_PATH": ""}
    return {name: f"{folder}{os.pathsep}{os.environ.get(name, '')}" for name in paths}
