"""Ascend's whole path on an emulated `npu`: adapters, operators, engine. It shows that our calls are right by
the operators' documents, and nothing of the device."""

from __future__ import annotations

import pytest

from rlt_hw.verify.evaluation import PUBLISHED
from tests.emulated import npu_machine
from tests.models.golden import ATOL
from tests.runtime.continuations import CASES

WAITS = 1
"""Copies to the host in a decode step: the tokens with their flags."""
HALF_ERROR, NEAR_TIE = 0.25, 0.05
"""In float16: largest error of a log-probability, and how near two tokens are where another one was taken."""
PACKED, ROWS = ["npu_fia", "npu_fia"], ["npu_fia_prefill", "npu_fia_decode"]
LAYOUTS = {"ouro-a": PACKED, "ouro-b": ROWS, "nanbeige-a": ROWS, "nanbeige-b": PACKED, "huginn-a": ROWS,
           "huginn-b": ROWS}  # fmt: skip
"""By head size: 64 with keys of its own is packed; 32 and 96 are not."""
POINT = 0.0101


@pytest.fixture(scope="module")
def npu(emulate, tmp_path_factory):
    variables = npu_machine.build(tmp_path_factory.mktemp("machine"))
    return lambda part: emulate("npu", "run_npu", part, **variables)


@pytest.fixture(scope="module")
def answer(npu):
    return npu("golden")


def test_the_device_is_found_and_marked(answer):
    (device,) = (row for row in answer["devices"] if row["target"] == "ascend:910b")
    assert (device["name"], device["emulated"]) == ("Ascend 910B3", True)


@pytest.mark.parametrize("name", CASES)
def test_reference_continuations(answer, name):
    for row in answer["golden"][name]:
        assert row["found"] == row["expected"]
        assert row["error"] < 2 * ATOL


@pytest.mark.parametrize("name", CASES)
def test_the_host_waits_as_often_as_it_must(answer, name):
    steps = answer["steps"][name]
    print(f"{name}: {' '.join(steps['chosen'])}, waits of the host by decode step: {steps['waits']}")
    assert steps["chosen"] == [*LAYOUTS[name], "npu"]
    assert set(steps["waits"]) == {WAITS}


def test_what_the_vendor_lets_through_is_refused_here(answer):
    assert answer["refused"] == [
        "num_heads", "key heads", "block_size", "head size", "float32", "small mask", "int64 table",
        "tensor of lengths", "page that is not there", "twice", "negative", "too far",
    ]  # fmt: skip


@pytest.mark.parametrize(("at", "found"), [(0, "error code is 561002"), (1, "apart")])
def test_a_cann_that_reads_no_pages_packed_is_found_out_on_the_device(answer, at, found):
    older = answer["older"][at]
    assert older["chosen"] == "npu_fia_decode"
    (row,) = older["rejections"]
    assert row["code"] == "PKG_VERSION"
    assert found in row["found"]


@pytest.mark.slow
def test_reference_continuations_in_float16(npu):
    for rows in npu("half").values():
        for row in rows:
            assert row["error"] < HALF_ERROR
            assert row["margin"] < NEAR_TIE


@pytest.mark.slow
def test_captured_steps_give_what_eager_gives(npu):
    """The host waits for the lengths and for the result; once more where a request ends."""
    for name, (eager, captured) in npu("graphs").items():
        print(f"{name}: {captured['replays']} replays, waits of the host by step: {captured['waits']}")
        assert captured["outputs"] == eager["outputs"]
        assert captured["replays"] > 20 and eager["replays"] == 0
        assert sum(captured["waits"]) <= 2 * len(captured["waits"])


@pytest.mark.slow
def test_conformance_and_its_record(npu):
    found = npu("conformance")
    assert found["failed"] == []
    assert min(found["passed"].values()) >= 12
    record = found["record"]
    assert (record["level"], record["target"]) == (3, "ascend:910b")
    assert record["emulated"] == "the device is emulated on the CPU"


@pytest.mark.slow
def test_the_quality_gate(npu):
    found = npu("demo")
    for name, accuracy in PUBLISHED.items():
        layout = PACKED if name == "demo:ouro" else ROWS
        assert found[name].pop("chosen") == layout
        assert all(abs(found[name][variant] - accuracy[variant]) < POINT for variant in accuracy)
