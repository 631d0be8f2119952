import json

import pytest

from rlt_hw.devices.detect import detect
from rlt_hw.devices.environment import SCHEMA_VERSION, Environment
from rlt_hw.errors import ConfigError
from tests.devices.machines import ASCEND, H200


def test_the_schema_version_is_written_and_checked():
    data = Environment().to_json()
    assert data["schema_version"] == SCHEMA_VERSION
    with pytest.raises(ConfigError, match="schema_version 99"):
        Environment.from_json({**data, "schema_version": 99})


@pytest.mark.parametrize(
    "damage",
    [
        {"devices": [{"target": "nvidia:sm90"}]},
        {"packages": {"torch": {"nme": "torch"}}},
        {"findings": [{"code": "NO_SUCH_CODE"}]},
        {"torch": "2.13"},
        {"devices": None},
    ],
)
def test_a_damaged_record_is_one_clear_error(damage):
    with pytest.raises(ConfigError, match="environment record"):
        Environment.from_json({**Environment().to_json(), **damage})


def test_redaction_drops_paths_and_keeps_facts():
    machine = ASCEND.having(
        variables={"CUDA_HOME": "/home/ada/cuda", "ASCEND_RT_VISIBLE_DEVICES": "0,1"},
        without=(next(path for path in ASCEND.files if path.endswith("libhccl.so")),),
    )
    environment = detect(machine)
    text = json.dumps(environment.redacted().to_json())
    assert "ada" not in text
    assert "/usr/local/Ascend" not in text
    assert environment.redacted().variables["ASCEND_RT_VISIBLE_DEVICES"] == "0,1"
    assert environment.redacted().devices == environment.devices
    assert [f.code for f in environment.redacted().findings] == [f.code for f in environment.findings]


def test_serial_numbers_are_never_recorded():
    assert "GPU-" not in json.dumps(detect(H200).to_json())
