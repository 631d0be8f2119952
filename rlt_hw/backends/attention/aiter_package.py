"""What the adapters of AMD's `aiter` share: its package, its entry points, and the ends of pages.

The package on the index that is named `aiter` is another one; detection marks it as broken. AMD's moves and
changes functions between releases, so each adapter names what it passes, and refuses a signature without it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rlt_hw.reasons import Code, Rejection
from rlt_hw.registry import Requirement, Toolkit

if TYPE_CHECKING:
    import torch

    from rlt_hw.backends.attention.interface import AttentionBatch

REQUIREMENT = Requirement("amd-aiter", ">=0.1.7", "aiter", also=("aiter",))
TOOLKIT = Toolkit("hipcc")
"""It compiles its modules when they are first used, some of them when it is imported."""


def lacks(function: Callable[..., Any], *names: str) -> Rejection | None:
    """PKG_VERSION where a function does not take these arguments; None too where it does not say."""
    parameters = inspect.signature(function).parameters
    missing = [name for name in names if name not in parameters]
    if not missing or any(row.kind is row.VAR_KEYWORD for row in parameters.values()):
        return None
    return Rejection(
        Code.PKG_VERSION,
        "aiter",
        f"{function.__name__} without {', '.join(missing)}",
        f"{REQUIREMENT} with {function.__name__}({', '.join(names)})",
        f"`pip install --upgrade '{REQUIREMENT}'`",
    )


def tail_slots(batch: AttentionBatch, page_size: int) -> torch.Tensor:
    """int64 slots in a layer's flat cache: those of each row's last page that come after its last token."""
    import numpy as np

    lengths = batch.seq_lens_host.astype(np.int64)
    empty = -lengths % page_size
    row = np.repeat(np.arange(len(lengths)), empty)
    ends = np.cumsum(empty)
    position = lengths[row] + np.arange(len(row)) - np.repeat(ends - empty, empty)
    return cache_slots(batch, row, position, page_size)


def cache_slots(batch: AttentionBatch, row: Any, position: Any, page_size: int) -> torch.Tensor:
    """int64 slots of positions (numpy, one a slot) of rows; page ids are read on the device."""
    import torch

    table = batch.page_table
    entry = torch.from_numpy(row * table.shape[1] + position // page_size).to(table.device)
    offset = torch.from_numpy(position % page_size).to(table.device)
    return table.flatten()[entry].long() * page_size + offset
