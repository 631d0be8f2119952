"""The adapters of AITER and flash-attn on doubles of the vendors' functions, through the conformance kit."""

from __future__ import annotations

import sys

import pytest
import torch

from rlt_hw.backends.attention import aiter_package
from rlt_hw.backends.catalog import in_tree, load_registry
from rlt_hw.devices.target import Target
from rlt_hw.reasons import Code, Rejection
from rlt_hw.registry import assess_jointly
from rlt_hw.runtime.adapters import load_adapter, load_adapters
from rlt_hw.verify.conformance import run
from rlt_hw.verify.conformance.kit import Machine
from tests.backends import doubles
from tests.registry.machines import machine, need

MI300X = Target.parse("amd:gfx942")
VERSIONS = ("0.1.7.post2.dev18", "main")
SPECS = {spec.name: spec for spec in in_tree()}


def here(target=MI300X):
    simulated = machine(target)
    return Machine(simulated.devices[0], torch.device("cpu"), simulated, load_registry(points=()))


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("name", "passed"), [("aiter_flash", 8), ("aiter_paged", 6), ("aiter_unified", 20)]
)  # fmt: skip
def test_conformance(monkeypatch, name, passed, version):
    doubles.install(monkeypatch, version)
    results = run(name, here(), ("bfloat16", "float16"), long=512)
    assert [str(row) for row in results if row.outcome == "failed"] == []
    assert sum(row.outcome == "passed" for row in results) >= passed


def test_flash_attn_reads_pages_of_256_tokens(monkeypatch):
    doubles.install(monkeypatch, VERSIONS[0])
    results = run("flash_attn", here(), ("bfloat16",), long=512)
    assert [str(row) for row in results if row.outcome == "failed"] == []
    assert sum(row.outcome == "passed" for row in results) > 10


@pytest.mark.parametrize("name", ["aiter_flash", "aiter_paged", "aiter_unified"])
def test_an_aiter_without_an_argument_is_refused_before_it_is_chosen(monkeypatch, name):
    doubles.install(monkeypatch, VERSIONS[0])
    older = lambda query: query  # noqa: E731
    for module, attribute in (
        ("aiter", "flash_attn_varlen_func"),
        ("aiter", "paged_attention_v1"),
        ("aiter.ops.triton.unified_attention", "unified_attention"),
    ):
        monkeypatch.setattr(sys.modules[module], attribute, older)
    row = load_adapter(SPECS[name])
    assert isinstance(row, Rejection)
    assert (row.code, row.subject) == (Code.PKG_VERSION, "aiter")
    environment = machine(MI300X)
    decision, adapters = load_adapters(MI300X, need(), environment, load_registry(points=()))
    assert decision.decode.chosen.name == "triton_paged"
    assert adapters.prefill.__name__ == "TritonPaged"
    rejected = {row.name: row.rejections for row in decision.decode.candidates}
    assert "without" in rejected["aiter_unified"][0].found


def test_a_signature_that_says_nothing_is_not_held_against_the_package():
    assert aiter_package.lacks(lambda *args, **kwargs: None, "block_table") is None


def test_an_aiter_that_builds_nothing_is_a_row(monkeypatch):
    """What the package does without ROCm: a RuntimeError on import."""

    class Broken:
        def find_spec(self, name, path=None, target=None):
            if name == "aiter":
                raise RuntimeError("ROCm version file not found")

    monkeypatch.delitem(sys.modules, "aiter", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Broken(), *sys.meta_path])
    row = load_adapter(SPECS["aiter_paged"])
    assert (row.code, "ROCm version file not found" in row.found) == (Code.PKG_BROKEN, True)


def test_flash_attn_without_its_compiled_extension_is_refused_on_rocm(monkeypatch):
    doubles.install(monkeypatch, VERSIONS[0])
    monkeypatch.setattr(torch.version, "hip", "7.1")
    row = load_adapter(SPECS["flash_attn"])
    assert row.code is Code.KV_LAYOUT
    assert "ignore the page table" in row.found


def test_flash_attn_with_triton_kernels_is_refused_on_rocm_only():
    for name, refused in (("amd:gfx942", True), ("nvidia:sm90", False)):
        target = Target.parse(name)
        environment = machine(target)
        environment.variables["FLASH_ATTENTION_TRITON_AMD_ENABLE"] = "TRUE"
        decision = assess_jointly(target, need(page_size=256), environment, load_registry(points=()))
        rows = {row.name: row.rejections for row in decision.decode.candidates}["flash_attn"]
        assert (Code.KV_LAYOUT in [row.code for row in rows]) == refused


def test_only_the_slots_after_a_rows_last_token_are_cleared(monkeypatch):
    doubles.install(monkeypatch, VERSIONS[0])
    lengths = [1, 16, 17, 40]
    from tests.backends.rows import decode_batch

    batch, keys, values, query, geometry = decode_batch(lengths, page_size=16)
    before = values.clone()
    adapter = load_adapter(SPECS["aiter_paged"])(geometry)
    adapter.prepare(batch)
    adapter.attend(query, keys, values, torch.empty_like(query))
    kept = torch.ones(values.shape[:2], dtype=torch.bool)
    for row, length in enumerate(lengths):
        last = batch.page_table[row, (length - 1) // 16]
        kept[last, (length - 1) % 16 + 1 :] = False
    assert torch.equal(values[kept], before[kept])
    assert not values[~kept].any()
