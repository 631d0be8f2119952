"""The torch backends against the float64 dense answer, with NaN in everything they may not read."""

from __future__ import annotations

import pytest
import torch

from rlt_hw.backends.attention.torch_reference import TorchReference
from rlt_hw.backends.attention.torch_sdpa import TorchSdpa
from tests.backends.cases import MIXED, make, run

ADAPTERS = {"reference": TorchReference, "sdpa": TorchSdpa}
TOLERANCE = {torch.float32: 5e-6, torch.bfloat16: 3e-2, torch.float16: 3e-3}
SINGLES = [(1, length) for length in (1, 2, 63, 64, 65, 130)]


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("page", [1, 16, 64])
@pytest.mark.parametrize(("heads", "kv_heads", "dim"), [(4, 4, 64), (6, 1, 128), (3, 3, 96), (8, 2, 80)])
@pytest.mark.parametrize("adapter", ADAPTERS)
def test_numbers(adapter, heads, kv_heads, dim, page, dtype):
    for rows in (MIXED, SINGLES):
        case = make(rows, heads=heads, kv_heads=kv_heads, dim=dim, page=page, dtype=dtype, planes=3)
        error = (run(ADAPTERS[adapter], case).double() - case.expected()).abs().max()
        assert error < TOLERANCE[dtype]


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_an_empty_batch_gives_an_empty_answer(adapter):
    case = make([], heads=2, kv_heads=2, dim=64, page=16, dtype=torch.float32)
    assert run(ADAPTERS[adapter], case).shape == (0, 2, 64)


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_a_row_does_not_depend_on_the_rows_beside_it(adapter):
    case = make(MIXED, heads=4, kv_heads=2, dim=64, page=16, dtype=torch.float32)
    before = run(ADAPTERS[adapter], case)
    case.query[4:] += 1.0
    after = run(ADAPTERS[adapter], case)
    assert torch.equal(before[:4], after[:4])
