"""The least that a decode step reads, against figures counted by hand from the published shapes."""

from __future__ import annotations

import pytest

from rlt_hw.models.config import read_spec
from rlt_hw.verify.roofline import decode_cost, prefill_operations

BANDWIDTH = 4.581e12


def cost(model: str, rows: int, loops: int, context: int = 1024):
    return decode_cost(
        read_spec(model), rows=rows, context=context, loops=loops, dtype="bfloat16", kv_dtype="bfloat16"
    )


def test_weights_are_read_once_a_loop_however_many_rows_share_them():
    one, many = (cost("Ouro-1.4B", rows, 4, context=0) for rows in (1, 32))
    assert one.bytes_read == many.bytes_read == pytest.approx(10.07e9, rel=0.002)
    assert many.operations == 32 * one.operations


@pytest.mark.parametrize(
    ("model", "rows", "loops", "milliseconds"),
    [
        ("Ouro-1.4B", 1, 4, 2.37),
        ("Ouro-1.4B", 32, 4, 7.82),
        ("Ouro-1.4B", 128, 4, 24.7),
        ("Nanbeige4.2-3B", 1, 2, 3.01),
        ("Nanbeige4.2-3B", 32, 2, 4.26),
        ("Huginn-0125", 1, 32, 24.3),
        ("Huginn-0125", 32, 32, 43.7),
    ],
)
def test_least_time_of_a_step(model, rows, loops, milliseconds):
    found = 1e3 * cost(model, rows, loops).seconds(BANDWIDTH)
    assert found == pytest.approx(milliseconds, rel=0.01)


def test_prefill_counts_every_matrix_twice_a_token_and_causal_pairs():
    spec = read_spec("Ouro-1.4B")
    one, two = (prefill_operations(spec, tokens=tokens, loops=4) for tokens in (1, 2))
    attention = 4 * spec.recurrent_layers * 4 * spec.num_heads * spec.head_dim
    assert two - 2 * one == attention
