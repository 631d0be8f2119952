"""Paged KV in plain torch, one canonical layout on every device.

A layer's cache is [planes * pages, page_size, kv_heads, head_dim]: the loop a row is in only
shifts its page ids, so rows at different depths share one attention call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlt_hw.backends.kv.interface import KVGeometry
from rlt_hw.registry import BackendSpec, Kind, Rank

if TYPE_CHECKING:
    import torch

SPEC = BackendSpec(
    kind=Kind.KV,
    name="paged",
    adapter="rlt_hw.backends.kv.paged:PagedKV",
    summary="paged planes in plain torch, one canonical layout on every device",
    targets=("*",),
    kv_dtypes=("float32", "bfloat16", "float16"),
    preferred_page=16,
    graph_levels=("none", "piecewise", "full"),
    ranks=(Rank("*", 50, "one layout serves the main path of every vendor"),),
)


class PagedKV:
    """See `rlt_hw.backends.kv.interface.KVCache`. One tensor a group for keys, one for values."""

    def __init__(self, geometry: KVGeometry) -> None:
        import torch

        self._tensors: dict[str, tuple[torch.Tensor, torch.Tensor]] = {}
        for group in geometry.groups:
            pages = group.planes * geometry.num_pages
            shape = (group.layers, pages, geometry.page_size, group.kv_heads, group.head_dim)
            self._tensors[group.name] = (
                torch.zeros(shape, dtype=geometry.dtype, device=geometry.device),
                torch.zeros(shape, dtype=geometry.dtype, device=geometry.device),
            )

    def layer(self, group: str, layer: int) -> tuple[torch.Tensor, torch.Tensor]:
        keys, values = self._tensors[group]
        return keys[layer], values[layer]

    def group(self, group: str) -> tuple[torch.Tensor, torch.Tensor]:
        return self._tensors[group]

    def copy(self, group: str, source: torch.Tensor, target: torch.Tensor) -> None:
        for tensor in self._tensors[group]:
            flat = tensor.flatten(1, 2)
            flat.index_copy_(1, target, flat.index_select(1, source))

    def nbytes(self) -> int:
        return sum(tensor.nbytes for pair in self._tensors.values() for tensor in pair)
