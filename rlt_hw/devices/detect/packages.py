"""Installed distributions and what is wrong with them, by looking at files. Nothing is imported.

Names of folders are enough for names and versions: reading the metadata of hundreds of distributions
would cost more than the rest of a probe.
"""

from __future__ import annotations

import re
from dataclasses import replace

from rlt_hw.devices.detect.machine import Machine
from rlt_hw.devices.detect.seen import Seen
from rlt_hw.devices.environment import Package, TorchBuild
from rlt_hw.reasons import Code, Rejection

_FOLDER = re.compile(r"^(?P<name>[A-Za-z0-9_.]+?)-(?P<version>\d[^-]*)(?:-[^-]+)*\.(?:dist-info|egg-info)$")
_ASCEND_LIBRARIES = "/usr/local/Ascend/ascend-toolkit/latest/lib64"
_NOT_AITER = "the module `aiter` is the asyncio package of that name, not AMD's kernels"
_NO_AITER = "its ROCm build calls AMD's `aiter`, which is not installed"


def probe(machine: Machine) -> Seen:
    """Packages by canonical name, the torch build, and a finding for each package that cannot work."""
    packages = installed(machine)
    torch = torch_build(machine)
    if torch and "torch" not in packages:
        packages["torch"] = Package("torch", torch.version)
    findings: list[Rejection] = []
    for check in (_check_aiter, _check_flash_attn, _check_torch_npu):
        findings.extend(check(machine, packages, torch))
    return Seen(packages=packages, torch=torch, findings=tuple(findings))


def installed(machine: Machine) -> dict[str, Package]:
    """The distributions on the module search path; the first of a name wins, as in an import."""
    found: dict[str, Package] = {}
    for folder in dict.fromkeys(machine.search_path):
        for entry in machine.list(folder):
            match = _FOLDER.match(entry)
            if match:
                name = re.sub(r"[-_.]+", "-", match["name"]).lower()
                found.setdefault(name, Package(name, match["version"]))
    return found


def torch_build(machine: Machine) -> TorchBuild | None:
    """What the installed torch was built for, from the text of `torch/version.py`."""
    text = _read_module_file(machine, "torch/version.py")
    if text is None:
        return None
    values = dict(re.findall(r"^(\w+)(?:\s*:[^=]+)?\s*=\s*['\"]([^'\"]*)['\"]", text, re.MULTILINE))
    version = values.get("__version__", "unknown")
    return TorchBuild(version, cuda=values.get("cuda") or None, hip=values.get("hip") or None)


def _check_aiter(
    machine: Machine, packages: dict[str, Package], torch: TorchBuild | None
) -> tuple[Rejection, ...]:
    """`aiter` on the package index is an unrelated package; a source build of AMD's bears that name too."""
    folder = _module_folder(machine, "aiter")
    if folder is None:
        return ()
    if machine.exists(f"{folder}/ops/mha.py") or machine.exists(f"{folder}/jit/core.py"):
        source_build = packages.get("aiter")
        if source_build and "amd-aiter" not in packages:
            packages["amd-aiter"] = replace(source_build, name="amd-aiter")
        return ()
    for name in ("aiter", "amd-aiter"):
        if name in packages:
            packages[name] = replace(packages[name], error=_NOT_AITER)
    if not (torch and torch.hip):
        return ()
    return (
        _broken("aiter", _NOT_AITER, "AMD's package", "`pip uninstall -y aiter && pip install amd-aiter`"),
    )


def _check_flash_attn(
    machine: Machine, packages: dict[str, Package], torch: TorchBuild | None
) -> tuple[Rejection, ...]:
    """On ROCm without its compiled extension, flash-attn is a front for AITER's Triton kernels."""
    package = packages.get("flash-attn")
    if package is None or not (torch and torch.hip):
        return ()
    kernels = packages.get("amd-aiter")
    compiled = any(
        name.startswith("flash_attn_2_cuda")
        for folder in machine.search_path
        for name in machine.list(folder)
    )
    if compiled or (kernels and not kernels.error):
        return ()
    packages["flash-attn"] = replace(package, error=_NO_AITER)
    return (
        _broken("flash-attn", _NO_AITER, "flash-attn together with amd-aiter", "`pip install amd-aiter`"),
    )


def _check_torch_npu(
    machine: Machine, packages: dict[str, Package], _torch: TorchBuild | None
) -> tuple[Rejection, ...]:
    """torch_npu without CANN on the library path; torch loads it by itself and then fails to import."""
    package = packages.get("torch-npu")
    if package is None or any(machine.exists(f"{folder}/libhccl.so") for folder in _library_path(machine)):
        return ()
    error = "libhccl.so: cannot open shared object file: No such file or directory"
    packages["torch-npu"] = replace(package, error=error)
    autoload = machine.variables.get("TORCH_DEVICE_BACKEND_AUTOLOAD") != "0"
    if autoload and "torch" in packages:
        packages["torch"] = replace(
            packages["torch"], error="Failed to load the backend extension: torch_npu (" + error + ")"
        )
    if machine.exists(f"{_ASCEND_LIBRARIES}/libhccl.so"):
        remedy = "`source /usr/local/Ascend/ascend-toolkit/set_env.sh`"
    elif any(name.startswith("davinci") for name in machine.list("/dev")):
        remedy = "Install the CANN toolkit, then `source /usr/local/Ascend/ascend-toolkit/set_env.sh`"
    else:
        remedy = "`pip uninstall -y torch-npu`"
    found = f"{error}{'; `import torch` fails with it' if autoload else ''}"
    return (_broken("torch-npu", found, "CANN's libraries on LD_LIBRARY_PATH", remedy),)


def _library_path(machine: Machine) -> list[str]:
    home = machine.variables.get("ASCEND_HOME_PATH")
    listed = machine.variables.get("LD_LIBRARY_PATH", "").split(":")
    return [
        folder for folder in (*listed, f"{home}/lib64" if home else "", "/usr/lib", "/usr/lib64") if folder
    ]


def _module_folder(machine: Machine, module: str) -> str | None:
    """The folder that `import module` would use, by the order of the search path."""
    folders = (f"{folder}/{module}" for folder in machine.search_path)
    return next((folder for folder in folders if machine.exists(f"{folder}/__init__.py")), None)


def _read_module_file(machine: Machine, path: str) -> str | None:
    texts = (machine.read(f"{folder}/{path}") for folder in dict.fromkeys(machine.search_path))
    return next((text for text in texts if text is not None), None)


def _broken(subject: str, found: str, allowed: str, remedy: str) -> Rejection:
    return Rejection(Code.PKG_BROKEN, subject, found, allowed, remedy)
