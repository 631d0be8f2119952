"""Known answers of Philox4x32-10 (Random123's published test vectors) and the draws made from it."""

import numpy as np
import pytest

from rlt_hw.philox import philox, uniform

ONES = 0xFFFFFFFF
VECTORS = [
    ([0] * 4, [0] * 2, [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
    ([ONES] * 4, [ONES] * 2, [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
    (
        [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
        [0xA4093822, 0x299F31D0],
        [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1],
    ),
]


@pytest.mark.parametrize(("counter", "key", "words"), VECTORS)
def test_known_answers(counter, key, words):
    found = philox(np.array([counter], np.uint32), np.array([key], np.uint32))
    assert found.tolist() == [words]


def test_draws_are_uniform_and_independent_of_the_batch():
    positions = np.arange(20_000)
    draws = uniform(np.full(20_000, 5, np.uint64), positions)
    assert draws.min() > 0
    assert draws.max() < 1
    assert abs(draws.mean() - 0.5) < 0.01 and abs(draws.std() - 12**-0.5) < 0.01
    alone = [uniform(np.array([5], np.uint64), positions[i : i + 1])[0] for i in (0, 7, 19_999)]
    assert alone == [draws[0], draws[7], draws[19_999]]


def test_seed_position_and_stream_all_matter():
    seed, position = np.array([1, 2, 1, 2**40], np.uint64), np.array([1, 1, 2, 1])
    draws = [*uniform(seed, position), *uniform(seed, position, stream=1)]
    assert len(set(draws)) == 8
