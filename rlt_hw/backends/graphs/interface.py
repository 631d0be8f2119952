"""What a graph backend does: repeat a step on static buffers, with as few launches as it can."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import torch

Step = Callable[[], None]
Lengths = Callable[[], list[int]]
"""Tokens that each row of the coming run may see, 0 for an empty row. Waits for the device."""


class Graph(Protocol):
    """One graph backend, built once per engine."""

    def __init__(self, device: torch.device) -> None: ...

    def capture(self, step: Step, lengths: Lengths) -> Step:
        """A callable that does what `step` does, on the same input and output tensors each time.

        `step` reads and writes tensors that stay where they are, and may run during the call. lengths: for
        graphs whose attention takes them on the host; others never call it.
        """

    def close(self) -> None:
        """Release what was captured. The returned callables must not be used afterwards."""
