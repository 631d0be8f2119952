"""A verify run, what it proves, and its record."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from rlt_hw.backends.attention.torch_reference import SPEC
from rlt_hw.backends.catalog import load_registry
from rlt_hw.backends.evidence import levels
from rlt_hw.cli import main
from rlt_hw.registry import Registry
from rlt_hw.runtime.kv_manager import KVManager
from rlt_hw.verify.conformance import machine_here
from rlt_hw.verify.engine_check import Bench, judge
from rlt_hw.verify.engine_checks import CHECKS
from rlt_hw.verify.proof import proofs
from rlt_hw.verify.provenance import Provenance
from rlt_hw.verify.record import name_of, record_of, write
from rlt_hw.verify.report import report
from rlt_hw.verify.suite import verify

ORIGIN = Provenance("0" * 40, "a test")
MODEL = "demo:nanbeige"


@pytest.fixture(scope="module")
def run():
    machine = machine_here("cpu", load_registry(points=()))
    return verify(machine, "torch_reference", [MODEL], ("float32",))


def test_everything_passes_but_graphs(run):
    assert run.good
    outcomes = {row.check: row.outcome for row in run.engine}
    assert outcomes.pop("graphs give what eager gives") == "refused"
    assert set(outcomes.values()) == {"passed"}


def test_what_it_proves(run):
    found = proofs(run.conformance, run.engine)
    assert set(found) == {"torch_reference", "paged", "eager", "local"}
    assert found["torch_reference"].families == ("nanbeige",)
    assert found["torch_reference"].features["decode"] == (64, 96, 128)
    assert "graph" not in found["torch_reference"].features


def test_what_failed_is_not_proven(run):
    case = replace(run.conformance[0], outcome="failed")
    assert "torch_reference" not in proofs((case, *run.conformance), run.engine)
    check = replace(run.engine[0], outcome="failed", parts=())
    assert "torch_reference" not in proofs(run.conformance, (check, *run.engine))
    assert not replace(run, engine=(check,)).good


def test_a_record_is_read_as_evidence(run, tmp_path):
    path = write(record_of(run, ORIGIN), tmp_path, name_of(run))
    found = json.loads(path.read_text())
    assert (found["level"], found["emulated"], found["commit"]) == (4, None, "0" * 40)
    assert levels(tmp_path)["torch_reference", str(run.machine.target)] == 4
    text = path.with_suffix(".md").read_text()
    assert "| torch_reference | decode, page edges |" in text and ORIGIN.commit in text


def test_an_emulated_device_says_so_and_is_no_level_4(run, tmp_path):
    machine = replace(run.machine, found=replace(run.machine.found, emulated=True))
    found = record_of(replace(run, machine=machine), ORIGIN)
    assert found["level"] == 3 and "emulated" in found["emulated"]
    assert "no run of the device itself" in "\n".join(report(found))
    write({**found, "level": 4}, tmp_path, "forged")
    assert set(levels(tmp_path).values()) == {3}


def test_interpreted_kernels_are_no_level_4(run):
    environment = replace(run.machine.environment, variables={"TRITON_INTERPRET": "1"})
    found = record_of(replace(run, machine=replace(run.machine, environment=environment)), ORIGIN)
    assert found["level"] == 3 and "interpreter" in found["emulated"]


@pytest.fixture
def engines_with(monkeypatch):
    """Makes engines choose among a changed reference and everything else."""

    def change(adapter):
        spec = replace(SPEC, name="mutant", adapter=adapter)
        registry = load_registry(points=())
        monkeypatch.setattr(
            "rlt_hw.runtime.assembly.load_registry", lambda: Registry((*registry.specs, spec))
        )
        return Bench(MODEL, "cpu", {"attention": "mutant"})

    return change


def outcome(bench, check):
    return judge(check, CHECKS[check], bench).outcome


def test_attention_that_depends_on_the_batch_is_found(engines_with):
    bench = engines_with("tests.verify.attention_mutants:DependsOnTheBatchMuch")
    assert outcome(bench, "together as alone") == outcome(bench, "alone beside noise") == "failed"


def test_attention_without_a_causal_mask_costs_accuracy(engines_with):
    bench = engines_with("tests.verify.attention_mutants:MissesTheNewest")
    assert outcome(bench, "accuracy of a trained model") == "failed"


def test_a_lost_page_is_found(monkeypatch):
    monkeypatch.setattr(KVManager, "check", lambda self: None)
    monkeypatch.setattr(KVManager, "release", forgetful(KVManager.release))
    found = judge("leaks", CHECKS["nothing is left behind"], Bench(MODEL, "cpu", {}))
    assert found.outcome == "failed" and found.numbers["pages lost"] > 0


def forgetful(release):
    def release_but_one(self, slot):
        release(self, slot)
        self.free_pages -= 1

    return release_but_one


def test_an_engine_that_raises_is_a_failure(engines_with):
    bench = engines_with("tests.verify.attention_mutants:Raises")
    assert outcome(bench, "accuracy of a trained model") == "failed"


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("--backend", "torch_sdp"), 2, "torch_sdpa"),
        (("--dtypes", "float8"), 2, "bfloat16"),
        (("--record", "records", "--commit", "main"), 2, "--commit"),
    ],
)
def test_wrong_usage(words, code, said, capsys):
    assert main(("verify", "--device", "cpu", *words)) == code
    assert said in capsys.readouterr().err


def test_a_backend_that_cannot_run_here_is_refused(capsys):
    words = ("--backend", "triton_paged", "--model", MODEL, "--dtypes", "float32", "--json")
    assert main(("verify", "--device", "cpu", *words)) == 3
    found = json.loads(capsys.readouterr().out)
    assert found["backends"] == []
    assert {code for row in found["conformance"] for code in row["refused"]} == {"ARCH"}
