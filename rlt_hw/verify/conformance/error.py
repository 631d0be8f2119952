"""How far a result is from what it should be."""

from __future__ import annotations

import torch


def distance(found: torch.Tensor, expected: torch.Tensor) -> float:
    """The largest error: absolute up to values of 1, relative to the expected value beyond.

    Infinite where one is NaN and the other is not, 0 for empty tensors.

    Raises ValueError for another shape.
    """
    if found.shape != expected.shape:
        raise ValueError(f"a result of shape {tuple(found.shape)}, not {tuple(expected.shape)}")
    found, expected = found.cpu().double(), expected.cpu().double()
    if not torch.equal(found.isnan(), expected.isnan()):
        return float("inf")
    apart = ((found - expected).abs() / expected.abs().clamp(min=1))[~expected.isnan()]
    return float(apart.max()) if apart.numel() else 0.0
