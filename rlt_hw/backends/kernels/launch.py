"""Launches of the attention kernels on torch tensors."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton

from rlt_hw.backends.attention.interface import AttentionGeometry
from rlt_hw.backends.kernels.paged_attention import combine_kernel, decode_kernel, prefill_kernel
from rlt_hw.backends.kernels.tuning import MAX_SPLITS, Tiles, splits_for


@dataclass(frozen=True)
class Workspace:
    """Shares of decode rows before they are joined. parts: float32 [n, heads, dim]; lse: float32 [n, heads].

    n counts rows times shares and is enough for every batch of the geometry.
    """

    parts: torch.Tensor
    lse: torch.Tensor

    @classmethod
    def allocate(cls, geometry: AttentionGeometry, tiles: Tiles) -> Workspace:
        rows = range(1, geometry.max_rows + 1)
        most = max(count * splits_for(count, geometry.num_kv_heads, tiles.programs) for count in rows)
        shape = (max(most, MAX_SPLITS), geometry.num_heads)
        empty = torch.empty
        return cls(
            empty((*shape, geometry.head_dim), dtype=torch.float32, device=geometry.device),
            empty(shape, dtype=torch.float32, device=geometry.device),
        )


def decode(
    geometry: AttentionGeometry,
    tiles: Tiles,
    workspace: Workspace,
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    page_table: torch.Tensor,
    seq_lens: torch.Tensor,
    out: torch.Tensor,
) -> None:
    """One query token a row; shapes as in `Attention.attend`. No host read, no allocation."""
    rows, heads, dim = query.shape
    kv_heads = geometry.num_kv_heads
    group = heads // kv_heads
    splits = splits_for(rows, kv_heads, tiles.programs)
    single = splits == 1
    block_d = triton.next_power_of_2(dim)
    decode_kernel[(rows, kv_heads, splits)](
        query,
        keys,
        values,
        page_table,
        seq_lens,
        out if single else workspace.parts,
        workspace.lse,
        geometry.scale,
        query.stride(0),
        out.stride(0),
        page_table.stride(0),
        KV_HEADS=kv_heads,
        GROUP=group,
        DIM=dim,
        PAGE=geometry.page_size,
        SPLITS=splits,
        BLOCK_H=max(triton.next_power_of_2(group), 16),
        BLOCK_N=tiles.decode_block_n,
        BLOCK_D=block_d,
        num_warps=tiles.decode_warps,
        num_stages=tiles.decode_stages,
    )
    if not single:
        combine_kernel[(rows, heads)](
            workspace.parts,
            workspace.lse,
            out,
            out.stride(0),
            HEADS=heads,
            DIM=dim,
            SPLITS=splits,
            BLOCK_D=block_d,
            num_warps=4,
        )


def prefill(
    geometry: AttentionGeometry,
    tiles: Tiles,
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    query_start: torch.Tensor,
    page_table: torch.Tensor,
    seq_lens: torch.Tensor,
    max_query: int,
    out: torch.Tensor,
) -> None:
    """Rows of any length; tokens are where `query_start` says."""
    rows, heads = page_table.shape[0], query.shape[1]
    prefill_kernel[(triton.cdiv(max_query, tiles.prefill_block_m), rows, heads)](
        query,
        keys,
        values,
        query_start,
        page_table,
        seq_lens,
        out,
        geometry.scale,
        query.stride(0),
        out.stride(0),
        page_table.stride(0),
        KV_HEADS=geometry.num_kv_heads,
        GROUP=heads // geometry.num_kv_heads,
        DIM=geometry.head_dim,
        PAGE=geometry.page_size,
        BLOCK_M=tiles.prefill_block_m,
        BLOCK_N=tiles.prefill_block_n,
        BLOCK_D=triton.next_power_of_2(geometry.head_dim),
        num_warps=tiles.prefill_warps,
        num_stages=tiles.prefill_stages,
    )
