"""What a KV backend owns: the tensors of every plane, and the writes into them.

Which pages exist and who holds them is the KV manager's business, not this one's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import torch

    from rlt_hw.models.spec import KVGroup


@dataclass(frozen=True)
class KVGeometry:
    """What is fixed for the life of an engine. Pages are per plane; dtype is the cache's."""

    groups: Sequence[KVGroup]
    num_pages: int
    page_size: int
    dtype: torch.dtype
    device: torch.device


class KVCache(Protocol):
    """The KV of all planes. A flat slot is (plane * num_pages + page) * page_size + offset."""

    def __init__(self, geometry: KVGeometry) -> None: ...

    def layer(self, group: str, layer: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values of one layer, each [planes * num_pages, page_size, kv_heads, head_dim]."""

    def group(self, group: str) -> tuple[torch.Tensor, torch.Tensor]:
        """The same of all layers of a group, [layers, ...]."""

    def copy(self, group: str, source: torch.Tensor, target: torch.Tensor) -> None:
        """In every layer of a group, copy flat slots `source` to `target` (int64, same length)."""

    def nbytes(self) -> int:
        """Bytes held."""
