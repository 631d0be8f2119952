"""PNG plots, where matplotlib is installed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rlt_hw.errors import ConfigError


@contextmanager
def figure(path: Path, *, title: str) -> Iterator[Any]:
    """Axes to draw on; the figure is written to `path` at the end."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ConfigError(
            "plot",
            found="no matplotlib",
            allowed="an installed matplotlib",
            remedy="pip install 'rlt-hw[plot]'",
        ) from error
    canvas = Figure(figsize=(8, 5), layout="constrained")
    axes = canvas.subplots()
    axes.set_title(title)
    axes.grid(visible=True, alpha=0.3)
    yield axes
    try:
        canvas.savefig(path, dpi=120)
    except OSError as error:
        raise ConfigError("plot", found=str(error), allowed="a file that can be written") from error
