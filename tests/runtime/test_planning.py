"""Plans for every published checkpoint on targets that are not here."""

from __future__ import annotations

import json

import pytest

from rlt_hw import UnsupportedError, plan
from rlt_hw.models.config import published_names, read_spec
from rlt_hw.models.spec import KVLayout
from rlt_hw.runtime.planning import assess_plan

TARGETS = ("nvidia:sm80", "nvidia:sm90", "nvidia:sm120", "amd:gfx942", "ascend:910b", "cpu")
GIB = 2**30


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("model", published_names())
def test_a_decision_and_a_memory_plan(model, target):
    report = assess_plan(model, target, memory_bytes=80 * GIB)
    assert report.decision.supported, report.decision.table()
    assert report.memory.weights == read_spec(model).parameters * (4 if target == "cpu" else 2)
    assert report.memory.sequences >= 1
    json.dumps(report.to_json())


# KV bytes a token, bfloat16, as the published shapes give them.
KV_BYTES = {
    "Ouro-1.4B": 786_432,
    "Ouro-2.6B": 1_572_864,
    "Nanbeige4.2-3B": 180_224,
    "Huginn-0125": 2_787_840,
}
PLANES = {"Ouro-1.4B": 96, "Ouro-2.6B": 192, "Nanbeige4.2-3B": 44, "Huginn-0125": 132}


@pytest.mark.parametrize("model", KV_BYTES)
def test_kv_arithmetic(model):
    memory = plan(model, "nvidia:sm90", context=4096, page_size=16).memory
    assert memory.kv_per_token == KV_BYTES[model]
    assert memory.planes == PLANES[model]
    assert memory.blocks_per_request == PLANES[model] * 256
    assert memory.page_bytes == 16 * KV_BYTES[model]


@pytest.mark.parametrize(
    ("layout", "planes"), [("full", 132), ("ring:2", 12), ("anchor:8", 40), ("shared", 8)]
)
def test_huginn_planes_by_layout(layout, planes):
    spec = read_spec("Huginn-0125")
    groups = spec.kv_groups(KVLayout.parse(layout))
    assert sum(group.layers * group.planes for group in groups) == planes
    assert plan("Huginn-0125", "nvidia:sm90", kv_layout=layout).memory.planes == planes


def test_huginn_on_two_devices_is_refused_with_what_would_work():
    with pytest.raises(UnsupportedError, match="5, 11") as refused:
        plan("Huginn-0125", "nvidia:sm90", tensor_parallel=2)
    assert refused.value.code == "TP_DIVISIBILITY"
    assert plan("Huginn-0125", "nvidia:sm90", tensor_parallel=5).decision.supported


def test_what_does_not_fit_says_what_would():
    with pytest.raises(UnsupportedError, match="GiB") as refused:
        plan("Huginn-0125", "nvidia:sm120", memory_bytes=8 * GIB)
    assert refused.value.code == "MEMORY"
    assert plan("Huginn-0125", "nvidia:sm120", memory_bytes=80 * GIB).memory.sequences > 0


def test_every_choice_has_its_origin():
    decision = plan("Ouro-1.4B", "nvidia:sm90", page_size=32).decision
    assert str(decision.page_size) == "32, set by the user"
    assert "triton_paged" in str(plan("Ouro-1.4B", "nvidia:sm90").decision.page_size)
