"""The selection table, and what must hold in every row whatever the table says."""

from itertools import product

import pytest

from rlt_hw.backends.catalog import load_registry
from rlt_hw.devices.target import Target
from rlt_hw.registry import assess_jointly
from tests.registry.machines import MACHINES, machine, need
from tests.registry.selection import DTYPES, HEAD_DIMS, HEADER, PAGES, TABLE, rows

REGISTRY = load_registry(points=())
AITER = {"aiter_flash", "aiter_paged", "aiter_unified"}
PAGED = {"flash_attn", "flash_attn_4", "flashinfer", "flashinfer_xqa", "triton_paged", *AITER}


def test_the_table():
    """On a difference: read it, then `python -m tests.registry.selection --write`."""
    expected = TABLE.read_text(encoding="utf-8").splitlines()
    assert expected[0] == HEADER
    assert len(expected) > 200
    found = list(rows())
    assert len(found) == len(expected) - 1
    different = [pair for pair in zip(expected[1:], found, strict=True) if pair[0] != pair[1]]
    assert not different, "\n".join(f"- {old}\n+ {new}" for old, new in different[:10])


def backends(decision):
    return {part.chosen.name for part in (decision.prefill, decision.decode) if part.chosen}


@pytest.mark.parametrize("name", MACHINES)
def test_limits_that_were_measured_or_published_hold_in_every_combination(name):
    """Stated a second time, from the vendors' documents, without the specs."""
    target = Target.parse(name)
    for dtype, head_dim, page in product(DTYPES, HEAD_DIMS, (None, *PAGES)):
        asked = need(dtype=dtype, head_dim=head_dim, page_size=page)
        decision = assess_jointly(target, asked, machine(target), REGISTRY)
        if name == "nvidia:sm75":
            assert not decision.supported
            continue
        assert decision.supported
        used, size = backends(decision), decision.page_size.value
        assert page is None or size == page
        assert decision.dtype.value == dtype
        if "flash_attn_4" in used:
            assert target.arch in ("sm90", "sm100")
            assert size in (16, 32, 64)
        if "flash_attn" in used:
            assert target.vendor == "nvidia" or target.arch in ("gfx90a", "gfx942", "gfx950")
            assert size % 256 == 0
        if "flashinfer" in used:
            assert head_dim in (64, 128, 256)
        if "flashinfer_xqa" in used:
            assert target.arch in ("sm90", "sm100", "sm103", "sm120", "sm121")
            assert 16 <= size <= 128
            assert decision.prefill.chosen.name != "flashinfer_xqa"
        if "triton_paged" in used:
            assert size == 1 or size % 16 == 0
        if dtype == "float32":
            assert used <= {"triton_paged", "torch_sdpa"}
        if head_dim == 264 or target.vendor in ("cpu", "ascend"):
            assert not used & PAGED


@pytest.mark.parametrize("name", [name for name in MACHINES if name.startswith("amd:")])
def test_limits_of_aiter_hold_in_every_combination(name):
    target = Target.parse(name)
    for dtype, head_dim, page in product(DTYPES, HEAD_DIMS, (None, *PAGES)):
        asked = need(dtype=dtype, head_dim=head_dim, page_size=page)
        decision = assess_jointly(target, asked, machine(target), REGISTRY)
        used, size = backends(decision), decision.page_size.value
        if used & {"aiter_flash", "aiter_paged"}:
            assert target.arch in ("gfx942", "gfx950")
            assert head_dim in (64, 128, 256)
        if "aiter_paged" in used:
            assert decision.prefill.chosen.name != "aiter_paged"
            assert head_dim in (64, 128)
            assert size in (16, 32)
        if "aiter_unified" in used:
            assert size in (16, 32, 64)


def test_on_an_h200_what_has_run_there_goes_before_what_is_faster_on_paper():
    target = Target.parse("nvidia:sm90")
    decision = assess_jointly(target, need(), machine(target), REGISTRY)
    assert decision.decode.chosen.name == "triton_paged"
    order = [row.name for row in decision.prefill.candidates if not row.rejections]
    assert order[:3] == ["triton_paged", "flash_attn_4", "flashinfer"]
