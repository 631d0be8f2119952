"""Lists of exact targets that several specs share. A new architecture joins when somebody decided so."""

from __future__ import annotations

AMPERE_TO_BLACKWELL = (
    "nvidia:sm80", "nvidia:sm86", "nvidia:sm87", "nvidia:sm89", "nvidia:sm90", "nvidia:sm100", "nvidia:sm103",
    "nvidia:sm120", "nvidia:sm121",
)  # fmt: skip
"""NVIDIA without Thor (sm110), which Triton 3.6 cannot target and FlashAttention 2 does not name."""

AMD = (
    "amd:gfx90a", "amd:gfx942", "amd:gfx950", "amd:gfx1100", "amd:gfx1101", "amd:gfx1151", "amd:gfx1200",
    "amd:gfx1201",
)  # fmt: skip
