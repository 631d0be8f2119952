"""Every environment variable that is read, in one place. Nothing here writes one."""

from __future__ import annotations

from collections.abc import Mapping

from rlt_hw.reasons import Code, Rejection

PREFIX = "RLT_HW_"

LOG_LEVEL = "RLT_HW_LOG_LEVEL"
EMULATED = "RLT_HW_EMULATED"

# Ours, with what each does. A variable is listed here when something reads it, and not before.
KNOWN = {
    LOG_LEVEL: "what the command line logs to stderr: DEBUG, INFO, WARNING or ERROR",
    EMULATED: "the torch device type that is emulated in this process; no run on it counts as executed",
}

# The vendors' variables that decide which devices a process sees, and in which order.
VISIBILITY = (
    "CUDA_VISIBLE_DEVICES",
    "CUDA_DEVICE_ORDER",
    "HIP_VISIBLE_DEVICES",
    "ROCR_VISIBLE_DEVICES",
    "GPU_DEVICE_ORDINAL",
    "HSA_OVERRIDE_GFX_VERSION",
    "ASCEND_RT_VISIBLE_DEVICES",
)

# Variables that decide how a package is found or behaves.
PACKAGING = (
    "CUDA_HOME",
    "ROCM_PATH",
    "ASCEND_HOME_PATH",
    "ASCEND_LAUNCH_BLOCKING",
    "TORCH_DEVICE_BACKEND_AUTOLOAD",
    "TRITON_INTERPRET",
    "FLASH_ATTENTION_TRITON_AMD_ENABLE",
)


def relevant(variables: Mapping[str, str]) -> dict[str, str]:
    """The subset that an environment records."""
    names = {*VISIBILITY, *PACKAGING}
    return {
        name: value for name, value in sorted(variables.items()) if name in names or name.startswith(PREFIX)
    }


def unknown(variables: Mapping[str, str]) -> tuple[Rejection, ...]:
    """ENV_UNKNOWN for each RLT_HW_* variable that nothing reads, with the nearest known name."""
    strangers = sorted(name for name in variables if name.startswith(PREFIX) and name not in KNOWN)
    return tuple(_stranger(name) for name in strangers)


def _stranger(name: str) -> Rejection:
    from difflib import get_close_matches

    nearest = get_close_matches(name, KNOWN, n=1, cutoff=0.0)[0]
    return Rejection(
        Code.ENV_UNKNOWN,
        name,
        f"{name} is set, and nothing reads it",
        ", ".join(KNOWN),
        f"Did you mean {nearest}? `unset {name}`",
    )
