"""The kit finds what is wrong with a backend, and refuses what a selection would refuse."""

from __future__ import annotations

import importlib
import json
import sys
from dataclasses import replace
from importlib.metadata import EntryPoint
from types import ModuleType

import pytest
import torch

from rlt_hw.backends.attention.torch_reference import SPEC, TorchReference
from rlt_hw.backends.catalog import GROUP, in_tree, load_registry
from rlt_hw.backends.graphs.eager import Eager
from rlt_hw.errors import ConfigError
from rlt_hw.reasons import Code
from rlt_hw.registry import Sizes
from rlt_hw.verify.conformance import KINDS, machine_here, run
from rlt_hw.verify.conformance.attention import Plan, attention_cases
from rlt_hw.verify.conformance.contract import ContractCase
from rlt_hw.verify.conformance.operators import operator_cases
from rlt_hw.verify.conformance.subject import Subject
from tests.verify import attention_mutants, operator_mutants

PLUGIN = replace(SPEC, name="plugin", adapter="rlt_hw.backends.attention.torch_reference:TorchReference")
STEPS = [case for case in attention_cases(Plan(16, 64)) if case.step == "eager"]


@pytest.fixture
def results_of(monkeypatch):
    """Runs the kit in float32 on a spec that came through an entry point."""

    def run_on(spec):
        module = ModuleType("kit_plugin")
        module.SPEC = spec
        monkeypatch.setitem(sys.modules, "kit_plugin", module)
        registry = load_registry(points=(EntryPoint("kit", "kit_plugin", GROUP),))
        return run("plugin", machine_here("cpu", registry), ("float32",), long=64)

    return run_on


def outcomes(results):
    return {row.outcome for row in results}


def test_a_backend_from_outside_passes(results_of):
    results = results_of(PLUGIN)
    assert outcomes(results) == {"passed", "refused"}
    assert {row.rejection.code for row in results if row.rejection} == {Code.GRAPH}
    json.dumps([row.to_json() for row in results])


def test_operators_pass():
    results = run("torch_native", "cpu", ("float32", "bfloat16"))
    assert {row.kind for row in results} == {"operators"} and outcomes(results) == {"passed"}


@pytest.mark.parametrize("mutant", attention_mutants.MUTANTS)
def test_wrong_attention_fails(results_of, mutant):
    results = results_of(replace(PLUGIN, adapter=f"{mutant.__module__}:{mutant.__name__}"))
    assert "failed" in outcomes(results)


@pytest.mark.parametrize("mutant", operator_mutants.MUTANTS)
def test_wrong_operators_fail(mutant):
    def failed(case):
        subject = Subject(mutant, Eager, case, torch.float32, torch.device("cpu"))
        return case.check(subject) > case.tolerances["float32"]

    assert any(failed(case) for case in operator_cases() if case.rows == 64)


@pytest.mark.parametrize(
    ("change", "code", "setting", "refused"),
    [
        ({"head_dims": Sizes(values=(64, 128))}, Code.HEAD_DIM, "head_dim", {96}),
        ({"page_sizes": Sizes(multiple=16)}, Code.PAGE_SIZE, "page_size", {1}),
        ({"gqa_ratios": Sizes(values=(1,))}, Code.GQA_RATIO, "kv_heads", {1, 2, 8}),
    ],
)
def test_what_selection_would_refuse_is_refused(results_of, change, code, setting, refused):
    results = results_of(replace(PLUGIN, **change))
    assert "failed" not in outcomes(results)
    assert {
        row.settings[setting] for row in results if row.rejection and row.rejection.code is code
    } == refused
    assert all(row.settings.get(setting) not in refused for row in results if row.outcome == "passed")


def test_a_backend_of_one_phase_is_asked_for_that_phase(results_of):
    results = results_of(replace(PLUGIN, phases=("decode",)))
    refused = {row.case for row in results if row.rejection and row.rejection.code is Code.PHASE}
    assert "prefill, page edges" in refused and "decode, page edges" not in refused


def test_a_backend_that_does_not_import_is_refused_with_its_error(results_of):
    results = results_of(replace(PLUGIN, adapter="no_such_package.attention:Fast"))
    assert {(row.outcome, row.rejection.code) for row in results if row.rejection.code is not Code.GRAPH} == {
        ("refused", Code.PKG_BROKEN)
    }


def test_an_unknown_name_is_refused():
    with pytest.raises(ConfigError, match="torch_sdpa"):
        run("torch_sdp", "cpu")


@pytest.mark.parametrize("case", STEPS, ids=lambda case: str(case.shape.head_dim))
def test_a_step_that_grows(case):
    """What captures refuse here runs eagerly, and a step that forgets something fails."""

    class WritesNothing(TorchReference):
        def attend_projected(self, batch, projected, keys, values, out):
            super().attend_projected(batch, projected, keys.clone(), values.clone(), out)

    class ForgetsEmptyRows(TorchReference):
        def attend_projected(self, batch, projected, keys, values, out):
            found = torch.empty_like(out)
            super().attend_projected(batch, projected, keys, values, found)
            used = batch.seq_lens > 0
            out[used] = found[used]

    class OnePlane(TorchReference):
        def attend_projected(self, batch, projected, keys, values, out):
            first = replace(batch, planes=torch.zeros_like(batch.planes))
            super().attend_projected(first, projected, keys, values, out)

    def error(adapter):
        return case.check(Subject(adapter, Eager, case, torch.float32, torch.device("cpu")))

    assert error(TorchReference) == 0
    for wrong in (WritesNothing, ForgetsEmptyRows, OnePlane):
        assert not error(wrong) < 1


@pytest.mark.parametrize("step", ["assess", "load_adapter"])
def test_a_backend_that_cannot_even_be_chosen_or_loaded_fails_case_by_case(monkeypatch, step):
    def fails(*_):
        raise AttributeError("no such kernel")

    monkeypatch.setattr(f"rlt_hw.verify.conformance.kit.{step}", fails)
    results = run("torch_sdpa", "cpu", ("float32",), long=64)
    ran = [row for row in results if row.outcome != "refused"]
    assert outcomes(ran) == {"failed"} and {row.error for row in ran} == {"AttributeError: no such kernel"}


def contract_of(adapter, **change):
    spec = replace(PLUGIN, source="a plugin", **change)
    subject = Subject(adapter, Eager, ContractCase(spec), torch.float32, torch.device("cpu"))
    return ContractCase(spec).check(subject)


def test_the_contract_is_a_declaration_and_methods():
    class TakesLess(TorchReference):
        def attend(self, query, keys, values): ...

    class NoDecode:
        prepare, attend = TorchReference.prepare, TorchReference.attend

    assert contract_of(TorchReference, graph_levels=("none", "full")) == contract_of(NoDecode) == 0
    for adapter, change, said in (
        (TakesLess, {}, "attend"),
        (NoDecode, {"graph_levels": ("none", "full")}, "no method attend_projected"),
        (TorchReference, {"head_dims": 96}, "Sizes"),
    ):
        with pytest.raises(TypeError, match=said):
            contract_of(adapter, **change)


@pytest.mark.parametrize(
    "spec", [spec for spec in in_tree() if spec.kind in KINDS], ids=lambda spec: spec.name
)
def test_our_own_backends_keep_the_contract(spec):
    if spec.adapter.startswith("rlt_hw."):
        module, _, name = spec.adapter.partition(":")
        adapter = getattr(importlib.import_module(module), name)
        assert ContractCase(spec).check(Subject(adapter, None, None, torch.float32, torch.device("cpu"))) == 0


EDGES = ("decode, page edges", "prefill, page edges")
REQUIRED = (*EDGES, "decode and prefill at mixed depths", "an empty batch", "graph replay after growth")


def test_every_head_size_alone_and_grouped_at_page_edges():
    cases = list(attention_cases(Plan(16)))
    for name in EDGES:
        shapes = {
            (case.shape.head_dim, case.shape.heads > case.shape.kv_heads)
            for case in cases
            if case.name == name
        }
        assert shapes == {(size, grouped) for size in (64, 96, 128) for grouped in (False, True)}
        edges = {context % 16 for case in cases if case.name == name for _, context in case.rows}
        assert {0, 1, 15} <= edges if name.startswith("decode") else {1, 15} <= edges
    assert set(REQUIRED) <= {case.name for case in cases}
    assert {case.page_size for case in cases} == {1, 16, 64}
