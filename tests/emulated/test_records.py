"""What runs on an emulated device never counts as executed."""

from __future__ import annotations

import json

import pytest

from rlt_hw.backends.evidence import levels
from rlt_hw.devices.detect import detect
from rlt_hw.devices.variables import EMULATED
from tests.devices.machines import ASCEND, CPU_ONLY


def test_a_variable_marks_the_device_that_it_names():
    marked = detect(CPU_ONLY.having(variables={EMULATED: "zephyr"}))
    assert [str(row.target) for row in marked.devices if row.emulated] == ["emulated:zephyr"]
    assert marked.findings == ()
    ascend = detect(ASCEND.having(variables={EMULATED: "npu"}))
    assert all(row.emulated == (row.target.vendor == "ascend") for row in ascend.devices)
    assert not any(row.emulated for row in detect(ASCEND).devices)


@pytest.mark.parametrize(
    ("target", "device", "level"),
    [
        ("ascend:910b", {"emulated": True}, 3),
        ("emulated:zephyr", None, 3),
        ("ascend:910b", {"emulated": False}, 4),
    ],
)
def test_a_record_of_an_emulated_device_is_read_as_level_3_whatever_it_says(tmp_path, target, device, level):
    record = {"level": 4, "target": target, "backends": ["npu_fia"], "device": device}
    (tmp_path / "record.json").write_text(json.dumps(record))
    assert levels(tmp_path) == {("npu_fia", target): level}
