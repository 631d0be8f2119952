"""The torch backends through the conformance kit: nothing fails, and refused is what their specs say."""

from __future__ import annotations

import pytest

from rlt_hw.reasons import Code
from rlt_hw.verify.conformance import run

REFUSED = {
    "torch_reference": {Code.GRAPH},
    "torch_sdpa": {Code.GRAPH, Code.COMBINATION},
}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("name", REFUSED)
def test_conformance(name, dtype):
    results = run(name, "cpu", (dtype,), long=512)
    assert [str(row) for row in results if row.outcome == "failed"] == []
    assert {row.rejection.code for row in results if row.rejection} == REFUSED[name]
    assert sum(row.outcome == "passed" for row in results) > 20
