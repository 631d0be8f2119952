"""Reports of recorded machines: rungs, choices, and what the doctor makes of them."""

import json
from dataclasses import replace

import pytest

from rlt_hw.backends.catalog import load_registry
from rlt_hw.devices.detect import detect
from rlt_hw.devices.environment import Environment
from rlt_hw.reasons import Code, Rejection
from rlt_hw.registry import BrokenPlugin, Registry
from rlt_hw.runtime.doctor import doctor
from rlt_hw.runtime.probing import RUNGS, probe
from tests.devices.machines import ASCEND, CPU_ONLY, H200, LAPTOP, MI300X, RTX5090, package
from tests.devices.test_findings import CASES

REGISTRY = Registry(load_registry(points=()).specs)  # without the records


def report_of(machine, registry=REGISTRY):
    return probe(environment=detect(machine), registry=registry)


def row_of(report, name, at=0):
    return next(row for row in report.outlooks[at].backends if row.name == name)


@pytest.mark.parametrize(
    ("machine", "name", "rung", "reason"),
    [
        (CPU_ONLY, "torch_sdpa", "compatible", None),
        (CPU_ONLY, "paged", "compatible", None),
        (CPU_ONLY, "flashinfer", "registered", Code.ARCH),
        (CPU_ONLY, "nccl", "importable", Code.ARCH),
        (H200, "flashinfer", "registered", Code.PKG_MISSING),
        (H200.having(files=package("flashinfer_python-0.7.4")), "flashinfer", "compatible", None),
        (H200.having(files=package("flashinfer_python-0.5.0")), "flashinfer", "registered", Code.PKG_VERSION),
        (LAPTOP, "torch_sdpa", "registered", Code.PKG_MISSING),
    ],
)
def test_the_rung_and_the_first_reason(machine, name, rung, reason):
    row = row_of(report_of(machine), name)
    assert row.rung == rung
    assert (row.reasons[0].code if row.reasons else None) is reason


def test_a_record_of_a_run_is_the_last_rung():
    registry = Registry(REGISTRY.specs, (), {("torch_sdpa", "cpu:x86_64"): 4})
    assert row_of(report_of(CPU_ONLY, registry), "torch_sdpa").rung == RUNGS[-1] == "verified"


def test_an_attention_backend_is_one_row_for_both_phases():
    names = [row.name for row in report_of(CPU_ONLY).outlooks[0].backends]
    assert len(names) == len(set(names))
    assert row_of(report_of(CPU_ONLY), "torch_sdpa").chosen_for == ("prefill", "decode")


def test_what_auto_chooses_is_what_the_registry_decides():
    report = report_of(CPU_ONLY)
    for part in report.outlook.decision.parts:
        assert row_of(report, part.chosen.name).chosen_for


def test_a_machine_of_eight_has_one_outlook_a_target():
    assert [str(outlook.target) for outlook in report_of(MI300X).outlooks] == ["amd:gfx942", "cpu:x86_64"]


def test_a_broken_plugin_is_one_row_and_one_finding():
    why = Rejection(
        Code.PLUGIN, "bad (bad-plugin 1.0)", "OSError on import", "a module", "`pip uninstall bad`"
    )
    report = report_of(CPU_ONLY, Registry(REGISTRY.specs, (BrokenPlugin("bad", "bad-plugin 1.0", why),)))
    rows = [row for row in report.outlooks[0].backends if row.kind == "plugin"]
    assert [(row.name, row.source, row.rung) for row in rows] == [("bad", "bad-plugin 1.0", "registered")]
    assert report.findings == (why,)
    assert report.outlook.decision.supported
    assert doctor(report)[0].fix == "pip uninstall bad"


@pytest.mark.parametrize("machine", [H200, MI300X, ASCEND, RTX5090, LAPTOP, CPU_ONLY])
def test_a_report_is_json_and_its_record_gives_it_again(machine):
    report = report_of(machine)
    data = json.loads(json.dumps(report.to_json()))
    assert probe(environment=Environment.from_json(data["environment"]), registry=REGISTRY) == report
    assert data["model"] == "Ouro-1.4B"
    assert {row["rung"] for target in data["targets"] for row in target["backends"]} <= set(RUNGS)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_the_doctor_has_a_fix_for_every_pitfall(case):
    machine, code, said = case
    findings = [row for row in doctor(report_of(machine)) if row.problem]
    (finding,) = [row for row in findings if row.code is code and said in row.text]
    assert finding.fix
    assert "`" not in finding.fix
    assert "\n" not in finding.text + finding.fix


def test_the_doctor_names_a_better_backend_and_its_package_once():
    machine = report_of(H200).environment
    packages = {name: package for name, package in machine.packages.items() if name != "triton"}
    report = probe(environment=replace(machine, packages=packages), registry=REGISTRY)
    advice = [row for row in doctor(report) if not row.problem]
    assert any("triton" in row.fix for row in advice)
    assert len({row.fix for row in advice}) == len(advice)


def test_a_machine_in_order_needs_nothing():
    assert doctor(report_of(CPU_ONLY)) == ()
