"""Launches of the attention kernels on torch tensors."""

from __future__ import annotations

from functools import partial

import torch
import triton

from rlt_hw.backends.attention.interface import AttentionGeometry, DecodeBatch
from rlt_hw.backends.kernels.paged_attention import decode_kernel, prefill_kernel
from rlt_hw.backends.kernels.pdl import launch_options, loads_early
from rlt_hw.backends.kernels.rotation import rotate_write_kernel
from rlt_hw.backends.kernels.tuning import (
    DecodeTiles,
    Operands,
    decode_tiles,
    invariant_decode_tiles,
    prefill_tiles,
)
from rlt_hw.backends.operators.interface import Projected

LOG2_E = 1.4426950408889634
ROTATED_HEADS = 8
"""Heads that one program rotates at most."""


class Attending:
    """The attention kernels for one geometry, with their workspace.

    parts: float32 [n, heads, dim], sums: float32 [n, heads]: shares of decode rows before they are joined; n
    counts rows times shares. arrived: int32 zeros [rows, kv_heads]. no_planes: int32 zeros [rows], for page
    tables that have the plane in them.
    """

    def __init__(self, geometry: AttentionGeometry, operands: Operands) -> None:
        self.geometry, self.operands = geometry, operands
        rows = max(geometry.max_rows, geometry.max_tokens)
        most = max(count * self.tiles(count).splits for count in range(1, rows + 1))
        floats = partial(torch.empty, dtype=torch.float32, device=geometry.device)
        zeros = partial(torch.zeros, dtype=torch.int32, device=geometry.device)
        self.parts = floats((most, geometry.num_heads, geometry.head_dim))
        self.sums = floats((most, geometry.num_heads))
        self.arrived = zeros((rows, geometry.num_kv_heads))
        self.no_planes = zeros(rows)

    def tiles(self, rows: int) -> DecodeTiles:
        kv_heads = self.geometry.num_kv_heads
        if self.geometry.batch_invariant:
            return invariant_decode_tiles(self.operands, kv_heads)
        return decode_tiles(self.operands, rows, kv_heads)

    def decode(
        self,
        query: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
        page_table: torch.Tensor,
        seq_lens: torch.Tensor,
        out: torch.Tensor,
    ) -> None:
        """One query token a row, its key and value already in the cache; shapes as in `Attention.attend`."""
        batch = DecodeBatch(page_table, self.no_planes, 0, seq_lens)
        self._decode(batch, query, None, keys, values, out)

    def decode_projected(
        self,
        batch: DecodeBatch,
        projected: Projected,
        keys: torch.Tensor,
        values: torch.Tensor,
        out: torch.Tensor,
    ) -> None:
        """Norm, rotation, cache write and attention of one new token a row in one kernel."""
        self._decode(batch, projected.qkv, projected, keys, values, out)

    def _decode(
        self,
        batch: DecodeBatch,
        query: torch.Tensor,
        projected: Projected | None,
        keys: torch.Tensor,
        values: torch.Tensor,
        out: torch.Tensor,
    ) -> None:
        """No host read, no allocation."""
        geometry, rotary = self.geometry, projected.rotary if projected else None
        rows, heads, dim = out.shape
        kv_heads = geometry.num_kv_heads
        group = heads // kv_heads
        tiles = self.tiles(rows)
        decode_kernel[(rows, kv_heads, tiles.splits)](
            query,
            keys,
            values,
            batch.page_table,
            batch.planes,
            batch.seq_lens,
            out,
            self.parts,
            self.sums,
            self.arrived,
            projected.cos if projected else query,
            projected.sin if projected else query,
            _or(rotary.query_bias if rotary else None, query),
            _or(rotary.key_bias if rotary else None, query),
            _or(rotary.query_norm if rotary else None, query),
            _or(rotary.key_norm if rotary else None, query),
            geometry.scale * LOG2_E,
            rotary.eps if rotary else 0.0,
            batch.plane_pages,
            query.stride(-2) if projected else query.stride(0),
            query.stride(0),
            out.stride(0),
            batch.page_table.stride(0),
            KV_HEADS=kv_heads,
            GROUP=group,
            DIM=dim,
            PAGE=geometry.page_size,
            SHARES=projected.shares if projected else 1,
            SPLITS=tiles.splits,
            BLOCK_H=max(triton.next_power_of_2(group), 16),
            BLOCK_N=tiles.block_n,
            BLOCK_D=triton.next_power_of_2(dim),
            FUSED=projected is not None,
            INTERLEAVED=rotary is not None and rotary.interleaved,
            BIAS=rotary is not None and rotary.query_bias is not None,
            NORM=rotary is not None and rotary.query_norm is not None,
            EARLY=tiles.early and projected is not None and loads_early(geometry.device),
            num_warps=tiles.warps,
            num_stages=tiles.stages,
            **launch_options(geometry.device, wanted=projected is not None),
        )

    def prefill(
        self,
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
        geometry, tiles = self.geometry, prefill_tiles(self.operands)
        rows, heads = page_table.shape[0], query.shape[1]
        prefill_kernel[(triton.cdiv(max_query, tiles.block_m), rows, heads)](
            query,
            keys,
            values,
            query_start,
            page_table,
            seq_lens,
            out,
            geometry.scale * LOG2_E,
            query.stride(0),
            out.stride(0),
            page_table.stride(0),
            KV_HEADS=geometry.num_kv_heads,
            GROUP=heads // geometry.num_kv_heads,
            DIM=geometry.head_dim,
            PAGE=geometry.page_size,
            BLOCK_M=tiles.block_m,
            BLOCK_N=tiles.block_n,
            BLOCK_D=triton.next_power_of_2(geometry.head_dim),
            num_warps=tiles.warps,
            num_stages=tiles.stages,
        )


def _or(tensor: torch.Tensor | None, other: torch.Tensor) -> torch.Tensor:
    """A pointer that the kernel does not read where there is no tensor."""
    return other if tensor is None else tensor


def rotate_write(
    projected: Projected, keys: torch.Tensor, values: torch.Tensor, slots: torch.Tensor
) -> torch.Tensor:
    """See `rlt_hw.backends.operators.interface.Operators.rotate`."""
    rotary, qkv = projected.rotary, projected.qkv
    tokens, dim = qkv.shape[-2], rotary.head_dim
    query = torch.empty((tokens, rotary.heads, dim), dtype=keys.dtype, device=qkv.device)
    if tokens:
        block_h = min(triton.next_power_of_2(rotary.kv_heads), ROTATED_HEADS)
        blocks = triton.cdiv(rotary.heads, block_h) + triton.cdiv(rotary.kv_heads, block_h)
        rotate_write_kernel[(tokens, blocks)](
            qkv,
            query,
            keys,
            values,
            slots,
            projected.cos,
            projected.sin,
            _or(rotary.query_bias, qkv),
            _or(rotary.key_bias, qkv),
            _or(rotary.query_norm, qkv),
            _or(rotary.key_norm, qkv),
            rotary.eps,
            qkv.stride(0),
            SHARES=projected.shares,
            HEADS=rotary.heads,
            KV_HEADS=rotary.kv_heads,
            DIM=dim,
            BLOCK_H=block_h,
            BLOCK_D=triton.next_power_of_2(dim),
            INTERLEAVED=rotary.interleaved,
            BIAS=rotary.query_bias is not None,
            NORM=rotary.query_norm is not None,
            num_warps=max(block_h // 2, 1),
        )
    return query
