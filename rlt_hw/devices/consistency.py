"""What an environment's parts say about each other: does this torch serve these devices?

Pure functions over an `Environment`, so a recorded machine gives the same answer.
"""

from __future__ import annotations

from collections.abc import Iterator

from rlt_hw.devices.environment import Device, Environment
from rlt_hw.devices.facts import TargetFacts, facts
from rlt_hw.devices.versions import older, release
from rlt_hw.reasons import Code, Rejection

MIN_TORCH = "2.8"

# CUDA major version of the runtime -> the oldest Linux driver of that family. Source: NVIDIA, CUDA
# Compatibility, table 1 "CUDA Toolkit driver version ranges" (minor version compatibility).
MIN_DRIVER = {11: "450.80.02", 12: "525.60.13", 13: "580"}

_INDEX = "https://download.pytorch.org/whl"


def consistency(environment: Environment) -> tuple[Rejection, ...]:
    """Every contradiction of the machine as a whole, each once: the same code and subject, one finding.

    Packages that do not import are left out: whoever looked at the package has said so.
    """
    first_of: dict[tuple[Code, str], Rejection] = {}
    for device in environment.devices:
        for finding in obstacles(device, environment):
            if finding.code is not Code.PKG_BROKEN:
                first_of.setdefault((finding.code, finding.subject), finding)
    return (*first_of.values(), *_rocm_without_device(environment), *_mixed(environment))


def obstacles(device: Device, environment: Environment) -> tuple[Rejection, ...]:
    """Why torch, as it is installed, cannot use this device. Empty when it can."""
    known = facts(device.target)
    if isinstance(known, Rejection):
        return (known,)
    if environment.torch is None:
        return (_torch_missing(device),)
    found = list(_torch_itself(environment))
    check = {"nvidia": _nvidia, "amd": _amd, "ascend": _ascend}.get(device.target.vendor)
    if check:
        found.extend(check(device, known, environment))
    return tuple(found)


def _torch_itself(environment: Environment) -> Iterator[Rejection]:
    package = environment.packages.get("torch")
    if package and package.error:
        yield Rejection(
            Code.PKG_BROKEN,
            "torch",
            package.error,
            "a torch that imports",
            "`export TORCH_DEVICE_BACKEND_AUTOLOAD=0`"
            if "backend extension" in package.error
            else "`pip install --force-reinstall torch`",
        )
    version = environment.torch.version if environment.torch else ""
    if older(version, MIN_TORCH):
        yield Rejection(
            Code.PKG_VERSION,
            "torch",
            f"torch {version}",
            f"torch >= {MIN_TORCH}",
            f"`pip install --upgrade 'torch>={MIN_TORCH}'`",
        )


def _nvidia(device: Device, known: TargetFacts, environment: Environment) -> Iterator[Rejection]:
    torch = environment.torch
    assert torch is not None
    if torch.cuda is None:
        yield _torch_build(environment, "a CUDA build of torch", _cuda_index(device))
        return
    minimum = MIN_DRIVER.get((release(torch.cuda) or (0,))[0])
    if device.driver and minimum and older(device.driver, minimum):
        yield Rejection(
            Code.DRIVER,
            "nvidia",
            f"driver {device.driver} with a torch built for CUDA {torch.cuda}",
            f"driver >= {minimum} for CUDA {release(torch.cuda)[0]}.x",
            f"Update the driver, or `{_reinstall(_cuda_index(device))}`",
        )
    if known.min_torch_cuda and older(torch.cuda, known.min_torch_cuda):
        yield Rejection(
            Code.TORCH_BUILD,
            "torch",
            f"torch {torch.version}, built for CUDA {torch.cuda} without kernels for {device.target.arch}",
            f"a build for CUDA >= {known.min_torch_cuda}",
            f"`{_reinstall(_cuda_index(device))}`",
        )


def _amd(_device: Device, _known: TargetFacts, environment: Environment) -> Iterator[Rejection]:
    torch = environment.torch
    assert torch is not None
    if torch.hip is None:
        yield _torch_build(environment, "a ROCm build of torch", "rocm6.4")


def _ascend(_device: Device, _known: TargetFacts, environment: Environment) -> Iterator[Rejection]:
    torch, package = environment.torch, environment.packages.get("torch-npu")
    assert torch is not None
    line = ".".join(map(str, release(torch.version)[:2]))
    if package is None:
        yield Rejection(
            Code.PKG_MISSING,
            "torch-npu",
            "not installed",
            f"torch-npu {line}.* beside torch {torch.version}",
            f"`pip install 'torch-npu=={line}.*'`",
        )
    elif package.error:
        yield Rejection(
            Code.PKG_BROKEN,
            "torch-npu",
            package.error,
            "a torch-npu that imports",
            "`source /usr/local/Ascend/ascend-toolkit/set_env.sh`",
        )
    elif release(package.version)[:2] != release(torch.version)[:2]:
        yield Rejection(
            Code.PKG_VERSION,
            "torch-npu",
            f"torch-npu {package.version} beside torch {torch.version}",
            f"torch-npu {line}.*",
            f"`pip install 'torch-npu=={line}.*'`",
        )


def _rocm_without_device(environment: Environment) -> Iterator[Rejection]:
    """A ROCm torch is never installed by accident, so a machine without an AMD device is worth a word."""
    torch = environment.torch
    amd_seen = "amd" in environment.drivers or any(
        device.target.vendor == "amd" for device in environment.devices
    )
    if torch and torch.hip and not amd_seen and not _accelerators(environment):
        yield Rejection(
            Code.DRIVER,
            "amd",
            f"torch {torch.version} is built for ROCm {torch.hip}, and no AMD GPU is in /sys/class/kfd",
            "the amdgpu driver loaded; in a container, its device files",
            "`docker run --device /dev/kfd --device /dev/dri …`",
        )


def _accelerators(environment: Environment) -> list[Device]:
    return [device for device in environment.devices if device.target.vendor != "cpu"]


def _mixed(environment: Environment) -> Iterator[Rejection]:
    """Unlike accelerators: a choice made for one of them would be wrong for another."""
    accelerators = _accelerators(environment)
    kinds = list(dict.fromkeys((device.target, device.name) for device in accelerators))
    if len(kinds) < 2:
        return
    first = accelerators[0]
    alike = [
        str(device.index)
        for device in accelerators
        if (device.target, device.name) == (first.target, first.name)
    ]
    variable = {"nvidia": "CUDA_VISIBLE_DEVICES", "amd": "HIP_VISIBLE_DEVICES"}.get(
        first.target.vendor, "ASCEND_RT_VISIBLE_DEVICES"
    )
    yield Rejection(
        Code.MIXED_DEVICES,
        "devices",
        "; ".join(f"{name} ({target})" for target, name in kinds),
        "one kind of accelerator in an engine; name the device, or hide the others",
        f"`export {variable}={','.join(alike)}`",
    )


def _torch_missing(device: Device) -> Rejection:
    index = {"nvidia": _cuda_index(device), "amd": "rocm6.4"}.get(device.target.vendor)
    source = f" --index-url {_INDEX}/{index}" if index else ""
    return Rejection(
        Code.PKG_MISSING, "torch", "not installed", f"torch >= {MIN_TORCH}", f"`pip install torch{source}`"
    )


def _torch_build(environment: Environment, allowed: str, index: str) -> Rejection:
    torch = environment.torch
    assert torch is not None
    return Rejection(
        Code.TORCH_BUILD,
        "torch",
        f"torch {torch.version}, built for {torch.built_for}",
        allowed,
        f"`{_reinstall(index)}`",
    )


def _cuda_index(device: Device) -> str:
    """The newest wheel index that the driver can serve."""
    return "cu128" if device.driver and older(device.driver, MIN_DRIVER[13]) else "cu130"


def _reinstall(index: str) -> str:
    return f"pip install --force-reinstall torch --index-url {_INDEX}/{index}"
