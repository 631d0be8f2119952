"""Compilers that backends build kernels with: nvcc and a host C++ compiler."""

from __future__ import annotations

import re

from rlt_hw.devices.detect.machine import Machine
from rlt_hw.devices.detect.seen import Seen
from rlt_hw.devices.detect.timebox import timed_out

TIMEOUT_S = 5.0


def probe(machine: Machine) -> Seen:
    """The nvcc that a build would use: CUDA_HOME's, else the PATH's, else /usr/local/cuda's."""
    home = machine.variables.get("CUDA_HOME") or machine.variables.get("CUDA_PATH")
    candidates = [f"{home}/bin/nvcc"] if home else ["nvcc", "/usr/local/cuda/bin/nvcc"]
    toolkits: dict[str, str] = {}
    for nvcc in candidates:
        ran = machine.run(nvcc, "--version", timeout=TIMEOUT_S)
        if ran.status == "timeout":
            return Seen(findings=(timed_out("nvcc", TIMEOUT_S),))
        version = re.search(r"release (\d+\.\d+)", ran.output)
        if version:
            toolkits["nvcc"] = version.group(1)
            break
    compiler = machine.run(
        *(machine.variables.get("CXX") or "c++").split(), "-dumpversion", timeout=TIMEOUT_S
    )
    if compiler.ok and compiler.output.strip():
        toolkits["cxx"] = compiler.output.strip()
    return Seen(toolkits=toolkits)
