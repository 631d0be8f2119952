"""Launches of the product and stream kernels on torch tensors."""

from __future__ import annotations

import torch
import torch.nn.functional as F
import triton

from rlt_hw.backends.kernels.pdl import launch_options
from rlt_hw.backends.kernels.products import (
    gemv_kernel,
    product_kernel,
    project_kernel,
    silu_product_kernel,
)
from rlt_hw.backends.kernels.stream import settle_kernel
from rlt_hw.backends.kernels.tables import (
    INVARIANT,
    INVARIANT_ROWS,
    MAX_SETTLED,
    Resources,
    Tile,
    block_rows,
    tile_for,
    vector_for,
)
from rlt_hw.backends.operators.interface import Add, OperatorOptions, Stream


class Products:
    """The kernels as methods.

    The first product of a stage, whose stream has nothing pending, is launched without PDL: it waits for
    everything in front of it, so that what a stage reads early was written before the stage began.
    """

    def __init__(self, options: OperatorOptions) -> None:
        self._invariant = options.batch_invariant
        self._device = options.device
        self._resources = _resources(options.device)

    def settles_in_product(self, x: torch.Tensor) -> bool:
        return x.shape[0] == 1 and x.shape[1] <= MAX_SETTLED and not self._invariant

    def project(
        self, stream: Stream, norm: torch.Tensor, weight: torch.Tensor, eps: float, *, gated: bool
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """One row: (settled stream, norm(stream) @ weight.T), or the gated product."""
        hidden = stream.hidden
        k = hidden.shape[1]
        n = weight.shape[0] // 2 if gated else weight.shape[0]
        keep = stream.add is not Add.ALONE
        settled = torch.empty_like(hidden) if keep else hidden
        out = torch.empty((1, n), dtype=hidden.dtype, device=hidden.device)
        shape = vector_for(n, k, gated=gated, settles=True, processors=self._resources.processors)
        project_kernel[(shape.programs,)](
            hidden,
            *_pending(stream),
            norm,
            weight,
            settled,
            out,
            n,
            eps,
            K=k,
            BLOCK_N=shape.block_n,
            BLOCK_K=shape.block_k,
            ADD=int(stream.add),
            WRITE=keep,
            GATED=gated,
            num_warps=shape.warps,
            **launch_options(self._device, wanted=keep),
        )
        return settled, out

    def settle(
        self, stream: Stream, norm: torch.Tensor | None, eps: float, *, keep: bool
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """(settled stream, normed or None). Without `keep` the settled stream is not stored."""
        hidden = stream.hidden
        rows, k = hidden.shape
        settled = torch.empty_like(hidden) if keep else hidden
        normed = hidden if norm is None else torch.empty_like(hidden)
        block = triton.next_power_of_2(k)
        if rows:
            settle_kernel[(rows,)](
                hidden,
                *_pending(stream),
                hidden if norm is None else norm,
                settled,
                normed,
                eps,
                K=k,
                SHARES=_shares(stream),
                BLOCK_K=block,
                ADD=int(stream.add),
                NORM=norm is not None,
                WRITE=keep,
                num_warps=8 if block >= 2048 else 4,
                **launch_options(self._device, wanted=stream.add is not Add.ALONE),
            )
        return settled, None if norm is None else normed

    def product(
        self,
        x: torch.Tensor,
        weight: torch.Tensor,
        *,
        gated: bool = False,
        shared: bool = False,
        out_dtype: torch.dtype | None = None,
        wanted: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """x @ weight.T, or silu(x @ gate.T) * (x @ up.T). shared: it may come in shares.

        wanted: int64 [rows]; where all are 0 nothing need be computed.
        """
        dtype = out_dtype or x.dtype
        rows = x.shape[0]
        if rows == 1 and not gated and not self._invariant:
            return self._gemv(x, weight, dtype, wanted)
        n = weight.shape[0] // 2 if gated else weight.shape[0]
        tile = self._tile(rows, n, x.dtype.itemsize, gated=gated, shared=shared)
        if tile is not None:
            return self._tiled(x, weight, tile, gated=gated, dtype=dtype, wanted=wanted)
        out = F.linear(x, weight)
        return silu_product(out) if gated else out.to(dtype)

    def _tile(self, rows: int, n: int, itemsize: int, *, gated: bool, shared: bool) -> Tile | None:
        if self._invariant:
            return INVARIANT
        return tile_for(rows, n, gated=gated, shared=shared, itemsize=itemsize, resources=self._resources)

    def _gemv(
        self, x: torch.Tensor, weight: torch.Tensor, dtype: torch.dtype, wanted: torch.Tensor | None
    ) -> torch.Tensor:
        n, k = weight.shape
        out = torch.empty((1, n), dtype=dtype, device=x.device)
        shape = vector_for(n, k, gated=False, settles=False, processors=self._resources.processors)
        gemv_kernel[(triton.cdiv(n, shape.block_n),)](
            x,
            weight,
            out,
            x if wanted is None else wanted,
            n,
            K=k,
            BLOCK_N=shape.block_n,
            BLOCK_K=shape.block_k,
            WANTED=wanted is not None,
            num_warps=shape.warps,
            **launch_options(self._device),
        )
        return out

    def _tiled(
        self,
        x: torch.Tensor,
        weight: torch.Tensor,
        tile: Tile,
        *,
        gated: bool,
        dtype: torch.dtype,
        wanted: torch.Tensor | None,
    ) -> torch.Tensor:
        rows, k = x.shape
        n = weight.shape[0] // 2 if gated else weight.shape[0]
        block_m = INVARIANT_ROWS if self._invariant else block_rows(rows, self._resources)
        whole = tile.shares == 1
        shape = (rows, n) if whole else (tile.shares, rows, n)
        out = torch.empty(shape, dtype=dtype if whole else torch.float32, device=x.device)
        if rows:
            product_kernel[(triton.cdiv(n, tile.block_n), tile.shares, triton.cdiv(rows, block_m))](
                x,
                weight,
                out,
                x if wanted is None else wanted,
                rows,
                n,
                x.stride(0),
                K=k,
                BLOCK_M=block_m,
                BLOCK_N=tile.block_n,
                BLOCK_K=tile.block_k,
                SHARES=tile.shares,
                GATED=gated,
                WANTED=wanted is not None,
                EARLY=0 if wanted is not None else tile.early,
                num_warps=tile.warps,
                num_stages=tile.stages,
                **launch_options(self._device),
            )
        return out


def silu_product(gate_up: torch.Tensor) -> torch.Tensor:
    """silu(gate) * up of [rows, 2 N], gates first."""
    rows, n = gate_up.shape[0], gate_up.shape[1] // 2
    out = torch.empty((rows, n), dtype=gate_up.dtype, device=gate_up.device)
    if rows:
        silu_product_kernel[(rows, triton.cdiv(n, 1024))](gate_up, out, n, BLOCK_N=1024, num_warps=4)
    return out


def _pending(stream: Stream) -> tuple[torch.Tensor, torch.Tensor]:
    """Branch and norm of the branch; the stream itself, which is not read, where there is none."""
    branch = stream.hidden if stream.branch is None else stream.branch
    return branch, stream.hidden if stream.branch_norm is None else stream.branch_norm


def _shares(stream: Stream) -> int:
    return stream.branch.shape[0] if stream.branch is not None and stream.branch.ndim == 3 else 1


def _resources(device: torch.device) -> Resources:
    if device.type == "cpu":
        return Resources(processors=1, shared_memory=1 << 30, max_rows=128)
    properties = torch.cuda.get_device_properties(device)
    hip = torch.version.hip is not None
    memory = getattr(properties, "shared_memory_per_block_optin", 0) or properties.shared_memory_per_block
    wide = not hip and properties.major >= 9
    return Resources(int(properties.multi_processor_count), int(memory), 128 if wide else 64)
