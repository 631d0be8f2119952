"""Launches of the row kernels on torch tensors; see `rlt_hw.backends.operators.interface.Operators`."""

from __future__ import annotations

import torch
import triton

from rlt_hw.backends.kernels.rows import (
    advance_kernel,
    best_kernel,
    best_of_chunks_kernel,
    board_kernel,
    fill_kernel,
    leave_kernel,
    uniform_kernel,
)
from rlt_hw.backends.operators.rows import DecodeRows, LoopPlanes

BLOCK = 64
CHUNK = 4096


def board(rows: DecodeRows, planes: LoopPlanes) -> tuple[torch.Tensor, torch.Tensor]:
    lens, plane = (torch.empty_like(rows.position, dtype=torch.int32) for _ in range(2))
    board_kernel[_grid(rows)](
        rows.position,
        rows.loop,
        rows.active,
        planes.of_loop,
        lens,
        plane,
        len(lens),
        BLOCK=BLOCK,
        num_warps=1,
    )
    return lens, plane


def leave(rows: DecodeRows, by_rule: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
    exited, ran = torch.empty_like(rows.loop), torch.empty_like(rows.loop)
    leave_kernel[_grid(rows)](
        rows.position,
        rows.loop,
        rows.active,
        rows.limit,
        rows.min_loops,
        rows.gate_from,
        exited if by_rule is None else by_rule,
        exited,
        ran,
        len(ran),
        RULE=by_rule is not None,
        BLOCK=BLOCK,
        num_warps=1,
    )
    return exited, ran


def best(logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    rows, n = logits.shape
    chunks, device = triton.cdiv(n, CHUNK), logits.device
    peaks = torch.empty((rows, chunks), dtype=torch.float32, device=device)
    places = torch.empty((rows, chunks), dtype=torch.int64, device=device)
    token = torch.empty(rows, dtype=torch.int64, device=device)
    bad = torch.empty(rows, dtype=torch.bool, device=device)
    if rows:
        best_kernel[(rows, chunks)](logits, peaks, places, logits.stride(0), n, BLOCK=CHUNK, num_warps=4)
        block = triton.next_power_of_2(chunks)
        best_of_chunks_kernel[(rows,)](peaks, places, token, bad, chunks, BLOCK=block, num_warps=1)
    return token, bad


def uniform(rows: DecodeRows) -> torch.Tensor:
    out = torch.empty_like(rows.temperature)
    uniform_kernel[_grid(rows)](rows.seed, rows.position, out, len(out), BLOCK=BLOCK, num_warps=1)
    return out


def fill(
    keys: torch.Tensor,
    values: torch.Tensor,
    rows: DecodeRows,
    planes: LoopPlanes,
    exited: torch.Tensor,
    ran: torch.Tensor,
) -> None:
    layers, _, page_size, kv_heads, head_dim = keys.shape
    if planes.count > 1:
        fill_kernel[(len(ran) * (planes.count - 1), layers)](
            keys,
            values,
            exited,
            ran,
            rows.depth,
            rows.position,
            rows.page_table,
            planes.of_loop,
            planes.newest,
            keys.stride(0),
            rows.page_table.stride(0),
            planes.num_pages * page_size,
            PAGE=page_size,
            COPIES=planes.count - 1,
            WIDTH=kv_heads * head_dim,
            BLOCK=1024,
            num_warps=4,
        )


def advance(
    rows: DecodeRows, token: torch.Tensor, bad: torch.Tensor, exited: torch.Tensor, ran: torch.Tensor
) -> None:
    advance_kernel[_grid(rows)](
        token,
        bad,
        exited,
        ran,
        rows.result,
        rows.token,
        rows.position,
        rows.loop,
        rows.active,
        rows.last,
        len(ran),
        BLOCK=BLOCK,
        num_warps=1,
    )


def _grid(rows: DecodeRows) -> tuple[int]:
    return (triton.cdiv(len(rows.loop), BLOCK),)
