"""torch's scaled_dot_product_attention over gathered pages, on any torch device.

Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.scaled_dot_product_attention.html
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rlt_hw.backends.attention.interface import AttentionBatch, AttentionGeometry
from rlt_hw.registry import BackendSpec, Kind, Rank

if TYPE_CHECKING:
    import numpy as np
    import torch

SPEC = BackendSpec(
    kind=Kind.ATTENTION,
    name="torch_sdpa",
    adapter="rlt_hw.backends.attention.torch_sdpa:TorchSdpa",
    summary="torch's scaled_dot_product_attention over gathered pages",
    targets=("*",),
    preferred_page=16,
    ranks=(
        Rank("*", 10, "2 to 4 times the time of a paged kernel on nvidia:sm90, measured (H200, torch 2.11)"),
        Rank("cpu", 50, "the only batched attention on the CPU"),
    ),
)


class TorchSdpa:
    """See `rlt_hw.backends.attention.interface.Attention`.

    Single-token rows run as one padded batch, longer rows one by one. Keys and values are
    gathered by token slot; padding repeats the row's first token, so a page's unused tail is
    never read, and is masked. Query heads that share a KV head are folded into the query length.
    """

    def __init__(self, geometry: AttentionGeometry) -> None:
        self._geometry = geometry

    def prepare(self, batch: AttentionBatch) -> None:
        import numpy as np

        lengths = np.diff(batch.query_start_host)
        self._rows = [
            self._prefill_row(batch, int(row))
            for row in np.flatnonzero((lengths > 1) & (batch.seq_lens_host > 0))
        ]
        decode = np.flatnonzero((lengths == 1) & (batch.seq_lens_host > 0))
        self._decode = self._decode_rows(batch, decode) if len(decode) else None

    def attend(
        self, query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, out: torch.Tensor
    ) -> None:
        geometry = self._geometry
        heads, dim = geometry.num_kv_heads, geometry.head_dim
        group = geometry.num_heads // heads
        keys, values = keys.view(-1, heads * dim), values.view(-1, heads * dim)
        if self._decode is not None:
            tokens, slots, mask, rows = self._decode
            queries = query if tokens is None else query[tokens]
            result = self._attention(
                queries.reshape(rows, heads, group, dim), keys, values, slots, mask
            ).view(rows, geometry.num_heads, dim)
            if tokens is None:
                out.copy_(result)
            else:
                out[tokens] = result
        for tokens, slots, mask in self._rows:
            length = tokens.stop - tokens.start
            queries = query[tokens].view(length, heads, group, dim).permute(1, 2, 0, 3)
            result = self._attention(
                queries.reshape(1, heads, group * length, dim), keys, values, slots, mask
            )
            packed = result.view(heads, group, length, dim).permute(2, 0, 1, 3)
            out[tokens] = packed.reshape(length, geometry.num_heads, dim)

    def _attention(
        self,
        queries: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
        slots: torch.Tensor,
        mask: torch.Tensor | None,
    ) -> torch.Tensor:
        """queries: [rows, kv_heads, folded, dim]; slots: [rows * context] into the flat cache."""
        import torch.nn.functional as F

        rows, heads, _, dim = queries.shape
        row_keys = keys.index_select(0, slots).view(rows, -1, heads, dim).transpose(1, 2)
        row_values = values.index_select(0, slots).view(rows, -1, heads, dim).transpose(1, 2)
        return F.scaled_dot_product_attention(
            queries, row_keys, row_values, attn_mask=mask, scale=self._geometry.scale
        )

    def _decode_rows(self, batch: AttentionBatch, rows: np.ndarray) -> tuple[Any, ...]:
        import torch

        device = batch.page_table.device
        everything = len(rows) == batch.rows
        picked = None if everything else torch.from_numpy(rows).to(device)
        seq_lens = batch.seq_lens if everything else batch.seq_lens[picked]
        page_table = batch.page_table if everything else batch.page_table[picked]
        longest = int(batch.seq_lens_host[rows].max())
        positions = torch.arange(longest, device=device)
        inside = positions < seq_lens[:, None]
        slots = self._slots(page_table, torch.where(inside, positions, 0))
        mask = None
        if not (batch.seq_lens_host[rows] == longest).all():
            mask = torch.zeros(inside.shape, dtype=self._geometry.dtype, device=device)
            mask = mask.masked_fill_(~inside, float("-inf"))[:, None, None]
        tokens = None
        if not everything:
            tokens = torch.from_numpy(batch.query_start_host[rows].astype("int64")).to(device)
        return tokens, slots.flatten(), mask, len(rows)

    def _prefill_row(self, batch: AttentionBatch, row: int) -> tuple[slice, torch.Tensor, torch.Tensor]:
        import torch

        first, last = (int(edge) for edge in batch.query_start_host[row : row + 2])
        length, context = last - first, int(batch.seq_lens_host[row])
        positions = torch.arange(context, device=batch.page_table.device)
        slots = self._slots(batch.page_table[row][None], positions[None])
        hidden = positions > positions[context - length :, None]
        mask = torch.zeros(hidden.shape, dtype=self._geometry.dtype, device=hidden.device)
        mask = mask.masked_fill_(hidden, float("-inf"))
        group = self._geometry.num_heads // self._geometry.num_kv_heads
        return slice(first, last), slots.flatten(), mask.repeat(group, 1)

    def _slots(self, page_table: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """Flat cache slots of positions [rows, n] (int64)."""
        page_size = self._geometry.page_size
        pages = page_table.long().gather(1, positions // page_size)
        return pages * page_size + positions % page_size
