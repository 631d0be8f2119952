"""What Ascend's chips are served with: the table, and the vendor's limits stated a second time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rlt_hw.backends.catalog import load_registry
from rlt_hw.devices.target import Target
from rlt_hw.reasons import Code
from rlt_hw.registry import assess_jointly
from tests.registry import ascend
from tests.registry.machines import machine

REGISTRY = load_registry(points=())
A2 = Target.parse("ascend:910b")


def decide(family, target=A2, **fields):
    return assess_jointly(target, ascend.need_of(family, **fields), machine(target), REGISTRY)


def codes(part, name):
    return [row.code for row in next(row for row in part.candidates if row.name == name).rejections]


def test_the_table():
    """On a difference: read it, then `python -m tests.registry.ascend --write`."""
    expected = ascend.TABLE.read_text(encoding="utf-8").splitlines()
    found = [ascend.HEADER, *ascend.rows()]
    assert len(found) == len(expected) > 300
    different = [pair for pair in zip(expected, found, strict=True) if pair[0] != pair[1]]
    assert not different, "\n".join(f"- {old}\n+ {new}" for old, new in different[:10])


@pytest.mark.parametrize("arch", ascend.TARGETS)
def test_limits_of_the_fused_operator_hold_in_every_combination(arch):
    for name, packages, fields in (row[1:] for row in ascend.cases() if row[0] == arch):
        target = Target.parse(f"ascend:{arch}")
        decision = assess_jointly(target, ascend.need_of(name, **fields), machine(target, packages), REGISTRY)
        if not decision.supported:
            continue
        prefill, decode = decision.prefill.chosen.name, decision.decode.chosen.name
        page, (heads, kv_heads, head_dim) = decision.page_size.value, ascend.FAMILIES[name]
        used = {name for name in (prefill, decode) if name.startswith("npu")}
        if used:
            assert arch in ("910b", "910_93")
            assert decision.dtype.value in ("bfloat16", "float16")
            assert page % 16 == 0
        if "npu_fia" in used:
            assert head_dim == 128 or (head_dim == 64 and heads == kv_heads)
            assert page <= 1024
        if decode == "npu_fia_decode":
            assert page <= 512
        if prefill == "npu_fia_prefill":
            assert page in (128, 256, 384, 512)


@pytest.mark.parametrize("family", ascend.FAMILIES)
def test_the_decision_says_how_each_family_is_served(family):
    decision = decide(family)
    names = (decision.prefill.chosen.name, decision.decode.chosen.name, decision.operators.chosen.name)
    packed = family != "huginn"
    assert names == (*(("npu_fia",) * 2 if packed else ("npu_fia_prefill", "npu_fia_decode")), "npu")
    assert str(decision.page_size) == f"128, from {names[1]}"
    assert codes(decision.decode, "npu_fia") == ([] if packed else [Code.HEAD_DIM])
    assert "HEAD_DIM: found 96; allowed 64, 128" in decision.table() or packed


def test_heads_of_64_that_share_keys_are_refused_packed():
    asked = replace(ascend.need_of("nanbeige"), head_dim=64)
    decision = assess_jointly(A2, asked, machine(A2), REGISTRY)
    assert codes(decision.decode, "npu_fia") == [Code.HEAD_DIM]
    assert decision.decode.chosen.name == "npu_fia_decode"


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"num_heads": 512, "num_kv_heads": 512, "head_dim": 128}, Code.RESOURCE),
        ({"num_heads": 130, "num_kv_heads": 2, "head_dim": 128}, Code.GQA_RATIO),
        ({"num_heads": 272, "num_kv_heads": 136, "head_dim": 96}, Code.RESOURCE),
        ({"head_dim": 88}, Code.HEAD_DIM),
        ({"head_dim": 528}, Code.HEAD_DIM),
    ],
)
def test_shapes_that_no_layout_of_the_fused_operator_takes(fields, code):
    asked = replace(ascend.need_of("ouro"), **fields)
    decision = assess_jointly(A2, asked, machine(A2), REGISTRY)
    assert decision.decode.chosen.name in ("npu_atb", "torch_sdpa")
    assert codes(decision.decode, "npu_fia_decode")[0] is code


def test_tensor_parallel_heads_count_by_process():
    asked = replace(ascend.need_of("ouro"), num_heads=512, num_kv_heads=512, tensor_parallel=2)
    assert assess_jointly(A2, asked, machine(A2), REGISTRY).decode.chosen.name == "npu_fia"


def test_mindie_sd_is_listed_and_refused_with_its_reason():
    decision = decide("ouro", attention="mindie_sd")
    assert not decision.supported
    for part in (decision.prefill, decision.decode):
        assert "no paged KV and no incremental decode" in str(part.rejections)
    assert codes(decision.decode, "mindie_sd") == [Code.PHASE, Code.KV_LAYOUT]
    assert "mindie_sd" in decide("ouro").table()


def test_float32_is_left_to_torch():
    decision = decide("ouro", dtype="float32")
    assert (decision.decode.chosen.name, decision.operators.chosen.name) == ("torch_sdpa", "torch_native")


def test_310p_and_950_are_refused_by_name_and_not_taken_for_the_nearest():
    for arch in ("310p", "950"):
        decision = decide("ouro", Target.parse(f"ascend:{arch}"))
        assert codes(decision.decode, "npu_fia") == [Code.ARCH]
        assert decision.decode.chosen.name == "torch_sdpa"
