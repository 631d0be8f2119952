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
    words = _words(seed, position, np.full(len(seed), stream, np.uint64))
    bits = (words[:, 0].astype(np.uint64) << np.uint64(20)) | (words[:, 1].astype(np.uint64) >> np.uint64(12))
    return (bits.astype(np.float64) + 0.5) / float(1 << 52)


def _words(seed: np.ndarray, position: np.ndarray, stream: np.ndarray) -> np.ndarray:
    seed, position = seed.astype(np.uint64), position.astype(np.uint64)
    key = np.stack((seed & _LOW, seed >> _HALF), axis=-1).astype(np.uint32)
    zero = np.zeros_like(position)
    counter = np.stack((position & _LOW, position >> _HALF, stream, zero), axis=-1).astype(np.uint32)
    return philox(counter, key)
