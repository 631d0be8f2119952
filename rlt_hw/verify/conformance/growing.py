"""Decode rows on static buffers that grow token by token, and the float32 answer to each step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from rlt_hw.backends.attention.interface import AttentionGeometry, DecodeBatch
from rlt_hw.backends.attention.torch_reference import TorchReference
from rlt_hw.backends.operators.interface import Projected, Rotary
from rlt_hw.verify.conformance.batches import NOWHERE
from rlt_hw.verify.conformance.error import distance

EPS = 1e-6
THETA = 10_000.0
ROOM = 8
"""Tokens by which a row can grow."""


class GrowingRows:
    """What `DecodeAttention.attend_projected` takes, on tensors that stay where they are.

    lengths: tokens of each row with the first new one, 0 for a row that is empty at first. Each row is on a
    plane of its own number modulo `planes`. The cache is NaN but for the tokens before each row's new one,
    and a page joins the table when a row reaches it. The shape decides the rotation: interleaved pairs in
    float32 with biases for grouped heads, halves in the dtype with norms for the others.
    """

    def __init__(
        self,
        lengths: Sequence[int],
        *,
        heads: int,
        kv_heads: int,
        head_dim: int,
        page_size: int,
        dtype: torch.dtype,
        device: torch.device,
        planes: int = 3,
        seed: int = 0,
    ) -> None:
        self._generator = torch.Generator().manual_seed(seed)
        rows, width = len(lengths), -(-(max(lengths) + ROOM) // page_size)
        self._pages = torch.randperm(rows * width, generator=self._generator).view(rows, width).int()
        self._table = torch.full((rows, width), NOWHERE, dtype=torch.int32)
        self._lens = torch.tensor(lengths, dtype=torch.int32)
        self._planes = torch.arange(rows, dtype=torch.int32) % planes
        self.geometry = AttentionGeometry(
            num_heads=heads,
            num_kv_heads=kv_heads,
            head_dim=head_dim,
            page_size=page_size,
            scale=head_dim**-0.5,
            dtype=dtype,
            device=device,
            max_rows=rows,
            max_tokens=rows,
            max_pages_per_row=width,
        )
        self._expected_cache = self._cache(planes * rows * width)
        self.keys, self.values = (cache.to(device, copy=True) for cache in self._expected_cache)
        self.batch = DecodeBatch(
            self._table.to(device, copy=True),
            self._planes.to(device, copy=True),
            rows * width,
            self._lens.to(device, copy=True),
        )
        self._interleaved = heads != kv_heads
        angles = torch.float32 if self._interleaved else dtype
        self._projected = drawn = self._draw(self._rotary(torch.device("cpu"), torch.float32))
        self.projected = replace(
            drawn,
            qkv=drawn.qkv.to(device, dtype, copy=True),
            rotary=self._rotary(device, dtype),
            cos=drawn.cos.to(device, angles, copy=True),
            sin=drawn.sin.to(device, angles, copy=True),
        )
        self.out = torch.zeros(rows, heads, head_dim, dtype=dtype, device=device)
        self._load()

    def grow(self) -> None:
        """One more token for every row, in the same tensors."""
        self._lens += 1
        self._projected = self._draw(self._projected.rotary)
        self._load()

    def error(self) -> float:
        """Largest error of the step that just ran, over its output and the cache."""
        out = torch.zeros(self.out.shape, dtype=torch.float32)
        geometry = replace(self.geometry, device=out.device, dtype=torch.float32)
        batch = DecodeBatch(self._table, self._planes, self.batch.plane_pages, self._lens)
        TorchReference(geometry).attend_projected(batch, self._projected, *self._expected_cache, out)
        pairs = [(self.out, out), *zip((self.keys, self.values), self._expected_cache, strict=True)]
        return max(distance(found, expected) for found, expected in pairs)

    def _load(self) -> None:
        """Copy what changed to the device, with the pages that rows have reached."""
        page_size = self.geometry.page_size
        reached = torch.arange(self._table.shape[1]) * page_size < self._lens[:, None]
        self._table = torch.where(reached, self._pages, NOWHERE).int()
        given, drawn = self.projected, self._projected
        for buffer, value in (
            (self.batch.page_table, self._table),
            (self.batch.seq_lens, self._lens),
            (given.qkv, drawn.qkv),
            (given.cos, drawn.cos),
            (given.sin, drawn.sin),
        ):
            buffer.copy_(value)
        self.out.fill_(float("nan"))

    def _draw(self, rotary: Rotary) -> Projected:
        """New tokens in float32, with values that the dtype can hold."""
        geometry, rows = self.geometry, len(self._lens)
        width = (geometry.num_heads + 2 * geometry.num_kv_heads) * geometry.head_dim
        half = geometry.head_dim // 2
        angles = (self._lens - 1)[:, None] * THETA ** (-torch.arange(half) / half)
        return Projected(
            self._held(torch.randn(rows, width, generator=self._generator)),
            rotary,
            angles.cos() if self._interleaved else self._held(angles.cos()),
            angles.sin() if self._interleaved else self._held(angles.sin()),
        )

    def _rotary(self, device: torch.device, dtype: torch.dtype) -> Rotary:
        """The same weights on every call."""
        geometry = self.geometry
        heads, kv_heads, dim = geometry.num_heads, geometry.num_kv_heads, geometry.head_dim
        generator = torch.Generator().manual_seed(1)

        def weight(middle: float, *shape: int) -> torch.Tensor:
            return self._held(middle + 0.1 * torch.randn(shape, generator=generator)).to(device, dtype)

        if self._interleaved:
            biases = {"query_bias": weight(0, heads, dim), "key_bias": weight(0, kv_heads, dim)}
            return Rotary(heads, kv_heads, dim, True, EPS, **biases)
        norms = {"query_norm": weight(1, dim), "key_norm": weight(1, dim)}
        return Rotary(heads, kv_heads, dim, False, EPS, **norms)

    def _cache(self, pages: int) -> tuple[torch.Tensor, torch.Tensor]:
        geometry = self.geometry
        shape = (pages, geometry.page_size, geometry.num_kv_heads, geometry.head_dim)
        keys = torch.full(shape, float("nan"), dtype=geometry.dtype)
        values = keys.clone()
        for row, length in enumerate(self._lens.tolist()):
            position = torch.arange(max(length - 1, 0))
            page = self._pages[row].long()[position // geometry.page_size]
            at = page + int(self._planes[row]) * self._pages.numel()
            for cache in (keys, values):
                fresh = torch.randn(len(position), *shape[2:], generator=self._generator)
                cache[at, position % geometry.page_size] = fresh.to(geometry.dtype)
        return keys, values

    def _held(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.to(self.geometry.dtype).float()
