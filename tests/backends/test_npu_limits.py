"""Limits of Ascend's operators that depend on an engine's sizes, and tables that name pages only."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from rlt_hw.backends.attention.npu_limits import (
    MASK_SIZE,
    block_table,
    causal_mask,
    check_elements,
    check_rows,
)
from rlt_hw.errors import CapacityError, ConfigError
from tests.backends.rows import decode_batch


def test_more_rows_than_a_call_takes():
    geometry = decode_batch([1], 16)[-1]
    check_rows(replace(geometry, max_rows=4096))
    with pytest.raises(ConfigError, match="max_num_seqs: found 4097; allowed: at most 4096"):
        check_rows(replace(geometry, max_rows=4097))


def test_more_elements_than_the_operator_counts():
    check_elements(torch.empty(2**31 - 1, dtype=torch.int8, device="meta"))
    with pytest.raises(CapacityError, match="2,147,483,648 elements"):
        check_elements(torch.empty(2**31, dtype=torch.int8, device="meta"))


def test_a_table_names_page_0_behind_each_rows_last_page():
    batch = decode_batch([1, 16, 17, 40], page_size=16)[0]
    table = block_table(batch, 16)
    assert (table != 0).sum(1).tolist() == [1, 1, 2, 2]
    assert torch.equal(table[3], batch.page_table[3])
    assert table.dtype == torch.int32 and table.is_contiguous()


def test_the_mask_hides_what_comes_later():
    mask = causal_mask(torch.device("cpu"))
    assert (mask.shape, mask.dtype) == ((MASK_SIZE, MASK_SIZE), torch.int8)
    assert mask[5, 5] == 0 and mask[5, 6] == 1 and mask[6, 5] == 0
