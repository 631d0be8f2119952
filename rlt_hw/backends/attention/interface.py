"""What an attention backend computes, and the batch it is given.

Every backend file holds a `SPEC` (data, see `rlt_hw.registry`) and an adapter class with this
interface. An adapter never chooses another implementation: it runs, or it raises.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import numpy as np
    import torch

    from rlt_hw.backends.operators.interface import Projected


@dataclass(frozen=True)
class AttentionGeometry:
    """What is fixed for the life of an engine. `scale` multiplies q.k (head_dim ** -0.5).

    batch_invariant: a row's result must not depend on the rows beside it.
    """

    num_heads: int
    num_kv_heads: int
    head_dim: int
    page_size: int
    scale: float
    dtype: torch.dtype
    device: torch.device
    max_rows: int
    max_tokens: int
    max_pages_per_row: int
    batch_invariant: bool = False


@dataclass(frozen=True)
class AttentionBatch:
    """Packed rows for one loop. A row is a run of consecutive new tokens of one request.

    query_start: int32 [rows + 1], first token of each row in the packed query.
    seq_lens: int32 [rows], tokens a row may see in all, its new tokens included (causal,
        aligned to the right end).
    page_table: int32 [rows, pages], page ids in the layer's cache; the plane of the row's loop is
        already part of the id. Entries past ceil(seq_len / page_size) are undefined.
    query_start_host, seq_lens_host: the same numbers in host memory.
    max_query, max_seq: their maxima, as Python integers.
    """

    query_start: torch.Tensor
    seq_lens: torch.Tensor
    page_table: torch.Tensor
    query_start_host: np.ndarray
    seq_lens_host: np.ndarray
    max_query: int
    max_seq: int

    @property
    def rows(self) -> int:
        return len(self.seq_lens_host)


@dataclass(frozen=True)
class DecodeBatch:
    """Rows of one new token each, on tensors that stay where they are, so that a graph can hold them.

    page_table: int32 [rows, pages], page ids without the plane. planes: int32 [rows], the plane of each row,
    plane_pages pages long. seq_lens: int32 [rows], tokens a row may see, the new one included; 0 for an
    empty row, which gives zeros and writes nothing. Entries past a row's tokens are undefined.
    """

    page_table: torch.Tensor
    planes: torch.Tensor
    plane_pages: int
    seq_lens: torch.Tensor


class DecodeAttention(Protocol):
    """What a decode backend adds when its spec says that it can be captured (graph level "full")."""

    def attend_projected(
        self,
        batch: DecodeBatch,
        projected: Projected,
        keys: torch.Tensor,
        values: torch.Tensor,
        out: torch.Tensor,
    ) -> None:
        """Norm, rotation, cache write and attention of one new token a row.

        keys, values: as in `Attention.attend`, the new tokens not yet in them. out: [rows, heads, head_dim].
        Reads nothing on the host and allocates nothing that outlives the call.
        """


class Attention(Protocol):
    """One attention backend, built once per engine."""

    def __init__(self, geometry: AttentionGeometry) -> None: ...

    def prepare(self, batch: AttentionBatch) -> None:
        """Called once per loop before its layers: host-side planning, index tensors."""

    def attend(
        self, query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, out: torch.Tensor
    ) -> None:
        """Causal attention of the prepared batch over one layer's cache, written to `out`.

        query, out: [tokens, num_heads, head_dim]. keys, values: [pages, page_size, num_kv_heads,
        head_dim], already holding the new tokens' entries. Nothing past a row's seq_len is read
        into the result, whatever it holds.
        """
