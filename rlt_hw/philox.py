"""Philox4x32-10, a counter-based random generator (Salmon et al., SC'11, doi:10.1145/2063384.2063405).

A number depends on its key and counter alone, so a request's draws never depend on the batch, on
its slot or on what ran before.
"""

from __future__ import annotations

import numpy as np

_MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
_WEYL = (np.uint64(0x9E3779B9), np.uint64(0xBB67AE85))
_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)


def philox(counter: np.ndarray, key: np.ndarray) -> np.ndarray:
    """Four 32-bit words for each counter. counter: uint32 [..., 4]; key: uint32 [..., 2]."""
    c0, c1, c2, c3 = (counter[..., i].astype(np.uint64) for i in range(4))
    k0, k1 = (key[..., i].astype(np.uint64) for i in range(2))
    for _ in range(10):
        first, second = c0 * _MULTIPLIERS[0], c2 * _MULTIPLIERS[1]
        c0, c1, c2, c3 = (second >> _HALF) ^ c1 ^ k0, second & _LOW, (first >> _HALF) ^ c3 ^ k1, first & _LOW
        k0, k1 = (k0 + _WEYL[0]) & _LOW, (k1 + _WEYL[1]) & _LOW
    return np.stack((c0, c1, c2, c3), axis=-1).astype(np.uint32)


def uniform(seed: np.ndarray, position: np.ndarray, stream: int = 0) -> np.ndarray:
    """One float64 in (0, 1) for each (seed, position), with 52 random bits.

    seed: uint64 [n]; position: int64 [n]; `stream` separates uses (0: token sampling).
    """
    words = _words(seed, position, stream, np.zeros(1, np.uint64))[:, 0]
    high, low = words[:, 0].astype(np.uint64), words[:, 1].astype(np.uint64)
    bits = (high << np.uint64(20)) | (low >> np.uint64(12))
    return (bits.astype(np.float64) + 0.5) / float(1 << 52)


def uniform_block(seed: np.ndarray, position: np.ndarray, count: int, stream: int) -> np.ndarray:
    """`count` float64 in (0, 1) for each (seed, position), [n, count], with 32 random bits each."""
    blocks = np.arange(-(-count // 4), dtype=np.uint64)
    words = _words(seed, position, stream, blocks).reshape(len(seed), -1)[:, :count]
    return (words.astype(np.float64) + 0.5) / float(1 << 32)


def _words(seed: np.ndarray, position: np.ndarray, stream: int, blocks: np.ndarray) -> np.ndarray:
    """uint32 [n, blocks, 4]."""
    seed, position = seed.astype(np.uint64)[:, None], position.astype(np.uint64)[:, None]
    shape = (len(seed), len(blocks))

    def stack(*columns: np.ndarray) -> np.ndarray:
        return np.stack([np.broadcast_to(column, shape) for column in columns], axis=-1).astype(np.uint32)

    counter = stack(position & _LOW, position >> _HALF, np.array(stream, np.uint64), blocks[None])
    return philox(counter, stack(seed & _LOW, seed >> _HALF))
