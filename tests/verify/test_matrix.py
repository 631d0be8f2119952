"""The support matrix shows what records prove, as far as they prove it, and nothing beyond."""

from __future__ import annotations

import json

import pytest

from rlt_hw.backends.catalog import in_tree
from rlt_hw.cli import main
from rlt_hw.reasons import Code
from rlt_hw.verify.matrix import lines, matrix

SPECS = {spec.name: spec for spec in in_tree()}
PROOF = {
    "models": ["demo:ouro"],
    "families": ["ouro", "huginn"],
    "features": {"decode": [96, 128], "prefill": [128], "graph": [128]},
}
EXECUTED = {
    "level": 4,
    "target": "nvidia:sm90",
    "backends": ["triton_paged"],
    "date": "2026-12-07",
    "commit": "0" * 40,
    "device": {"emulated": False},
    "proven": {"triton_paged": PROOF},
}
COMPILED = {key: EXECUTED[key] for key in ("target", "backends", "commit")} | {
    "level": 2,
    "date": "2026-12-01",
}


@pytest.fixture
def cells(tmp_path):
    def read(*records, backends=("triton_paged",)):
        for number, record in enumerate(records):
            (tmp_path / f"record-{number}.json").write_text(json.dumps(record))
        found = matrix(tmp_path, [SPECS[name] for name in backends])
        return {
            (cell.target, cell.backend, cell.model.partition("-")[0], cell.feature): cell for cell in found
        }

    return read


@pytest.mark.parametrize(
    ("model", "feature", "level"),
    [
        ("Ouro", "prefill", 4),
        ("Ouro", "graph", 4),
        ("Huginn", "decode", 4),
        ("Huginn", "prefill", 2),  # no case at its head size
        ("Nanbeige4.2", "decode", 2),  # no engine of its family
        ("Ouro", "batch_invariant", 0),  # no case, and a compiler shows nothing of it
        ("Huginn", "graph", 0),
    ],
)
def test_a_run_proves_its_features_families_and_head_sizes(cells, model, feature, level):
    cell = cells(EXECUTED, COMPILED)["nvidia:sm90", "triton_paged", model, feature]
    assert cell.level == level and cell.refusal is None
    assert (cell.record is None) == (level == 0)


def test_another_target_is_declared(cells):
    found = cells(EXECUTED)
    assert {cell.level for (target, *_), cell in found.items() if target != "nvidia:sm90"} == {0}


def test_an_emulated_device_is_no_support(cells):
    found = cells({**EXECUTED, "device": {"emulated": True}})
    assert found["nvidia:sm90", "triton_paged", "Ouro", "decode"].level == 3


def test_interpreted_kernels_prove_the_cases_that_passed(cells):
    rows = [
        {"backend": "triton_paged", "case": "decode, page edges", "passed": 8},
        {"backend": "triton_paged", "case": "the same to the bit in any batch", "passed": 2},
        {"backend": "triton_paged", "case": "graph replay after growth", "passed": 0},
    ]
    found = cells({**COMPILED, "level": 3, "rows": rows})
    levels = {name: found["nvidia:sm90", "triton_paged", "Ouro", name].level for name in PROOF["features"]}
    assert levels == {"decode": 3, "prefill": 0, "graph": 0}
    assert found["nvidia:sm90", "triton_paged", "Ouro", "batch_invariant"].level == 3


def test_a_refusal_is_shown_with_its_reason_and_packages_are_none(cells):
    found = cells(backends=("flash_attn_4", "mindie_sd"))
    assert found["nvidia:sm90", "flash_attn_4", "Ouro", "batch_invariant"].refusal.code is Code.COMBINATION
    assert found["nvidia:sm90", "flash_attn_4", "Ouro", "prefill"].refusal is None  # although not installed
    assert all(found[key].refusal for key in found if key[1] == "mindie_sd")


def test_a_recorded_processor_stands_for_the_cpu(cells):
    found = cells({**EXECUTED, "target": "cpu:x86_64"}, backends=("torch_sdpa",))
    assert {target for target, *_ in found if target.startswith("cpu")} == {"cpu:x86_64"}


def test_the_page_names_models_where_they_differ(cells):
    text = "\n".join(lines(cells(EXECUTED, COMPILED).values(), lambda text, place: f"<{text} {place}>"))
    row = next(line for line in text.split("## nvidia:sm90")[1].splitlines() if "triton_paged" in line)
    assert "<executed record-0> 2026-12-07 (Ouro-1.4B)" in row
    assert "<compiled record-1> 2026-12-01 (Nanbeige4.2-3B)" in row


def test_the_command_prints_it(capsys):
    assert main(("probe", "--matrix", "--json")) == 0
    found = json.loads(capsys.readouterr().out)["cells"]
    assert {cell["level_name"] for cell in found} <= {
        "declared",
        "contract",
        "compiled",
        "interpreted",
        "executed",
    }
    assert main(("probe", "--matrix")) == 0
    assert "## nvidia:sm90" in capsys.readouterr().out
