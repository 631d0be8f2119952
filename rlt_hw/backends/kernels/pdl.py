"""Programmatic dependent launch: whether a device has it, and what a launch passes for it."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch


def launch_options(device: torch.device, *, wanted: bool = True) -> dict[str, Any]:
    """PDL for NVIDIA from sm90 on, where a kernel may start before the one in front of it has ended."""
    if not wanted or not _capable(device):
        return {"PDL": False}
    return {"PDL": True, "launch_pdl": True}


def loads_early(device: torch.device) -> bool:
    """Whether loading before the wait can gain anything: with PDL, and in the interpreter, which tests it."""
    return device.type == "cpu" or _capable(device)


@cache
def _capable(device: torch.device) -> bool:
    if device.type != "cuda" or torch.version.hip is not None:
        return False
    return torch.cuda.get_device_capability(device) >= (9, 0)
