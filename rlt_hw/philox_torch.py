"""The generator of `rlt_hw.philox` on tensors, bit for bit, on whatever device they live.

Words are held in int64, whose products wrap modulo 2^64 and so keep the bits that are needed.
"""

from __future__ import annotations

import torch

_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)
_LOW = 0xFFFFFFFF


def uniform(seed: torch.Tensor, position: torch.Tensor, stream: int = 0) -> torch.Tensor:
    """See `rlt_hw.philox.uniform`. seed: int64 [n], the bits of a uint64; position: int64 [n]."""
    words = _words(seed, position, stream, torch.zeros(1, dtype=torch.int64, device=seed.device))
    bits = (words[0] << 20) | (words[1] >> 12)
    return (bits[:, 0].double() + 0.5) / float(1 << 52)


def uniform_block(seed: torch.Tensor, position: torch.Tensor, count: int, stream: int) -> torch.Tensor:
    """See `rlt_hw.philox.uniform_block`: float64 [n, count]."""
    blocks = torch.arange(-(-count // 4), device=seed.device)
    words = torch.stack(_words(seed, position, stream, blocks), dim=-1).flatten(1)[:, :count]
    return (words.double() + 0.5) / float(1 << 32)


def _words(
    seed: torch.Tensor, position: torch.Tensor, stream: int, blocks: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Four words a block, each int64 [n, blocks]."""
    zero = torch.zeros_like(seed[:, None] * blocks[None])
    c0, c1 = zero + (position & _LOW)[:, None], zero + ((position >> 32) & _LOW)[:, None]
    c2, c3 = zero + stream, zero + blocks[None]
    k0, k1 = (seed & _LOW)[:, None], ((seed >> 32) & _LOW)[:, None]
    for _ in range(10):
        first, second = c0 * _MULTIPLIERS[0], c2 * _MULTIPLIERS[1]
        c0, c1, c2, c3 = (
            ((second >> 32) & _LOW) ^ c1 ^ k0,
            second & _LOW,
            ((first >> 32) & _LOW) ^ c3 ^ k1,
            first & _LOW,
        )
        k0, k1 = (k0 + _WEYL[0]) & _LOW, (k1 + _WEYL[1]) & _LOW
    return c0, c1, c2, c3
