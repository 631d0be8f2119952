"""The deep check: import each vendor package in a process of its own and record what it says."""

from __future__ import annotations

import sys
from dataclasses import replace

from rlt_hw.devices.detect.machine import Machine, Ran
from rlt_hw.devices.detect.timebox import timed_out
from rlt_hw.devices.environment import Environment, Package
from rlt_hw.reasons import Code, Rejection

TIMEOUT_S = 60.0

# Distribution -> the module whose import proves that its binaries load.
MODULES = {
    "torch": "torch",
    "triton": "triton",
    "flashinfer-python": "flashinfer",
    "flash-attn": "flash_attn",
    "flash-attn-4": "flash_attn.cute",
    "amd-aiter": "aiter",
    "torch-npu": "torch_npu",
    "sgl-kernel": "sgl_kernel",
}


def check_imports(machine: Machine, environment: Environment) -> Environment:
    """The environment with `Package.error` and a finding for each package that does not import."""
    packages = dict(environment.packages)
    findings = list(environment.findings)
    for name, module in MODULES.items():
        package = packages.get(name)
        if package is None:
            continue
        ran = machine.run(sys.executable, "-c", f"import {module}", timeout=TIMEOUT_S)
        if ran.ok:
            packages[name] = replace(package, error=None)
            continue
        error = _last_line(ran)
        already_known = bool(package.error)
        packages[name] = replace(package, error=error)
        if ran.status == "timeout":
            findings.append(timed_out(f"import {module}", TIMEOUT_S))
        elif not already_known:
            findings.append(_broken(package, error))
    return replace(environment, packages=packages, findings=tuple(findings))


def _last_line(ran: Ran) -> str:
    """A traceback's last line names the exception; a crash has none."""
    lines = [line.strip() for line in ran.error.splitlines() if line.strip()]
    return lines[-1] if lines else "the import ended the process without a message"


def _broken(package: Package, error: str) -> Rejection:
    return Rejection(
        Code.PKG_BROKEN,
        package.name,
        f"{package.name} {package.version} does not import: {error}",
        "a build that matches the installed torch, driver and Python",
        f"`pip install --force-reinstall --no-deps {package.name}`",
    )
