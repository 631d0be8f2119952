"""What a redacted text keeps and what it loses."""

import pytest

from rlt_hw.devices.redaction import Redaction, of_this_process

UUID = "0a1b2c3d-1111-2222-3333-444455556666"


@pytest.mark.parametrize(
    ("text", "redacted"),
    [
        ("no /dev/kfd", "no /dev/kfd"),
        (
            "pip install --index-url https://download.pytorch.org/whl/cu130",
            "pip install --index-url https://download.pytorch.org/whl/cu130",
        ),
        ("pip install 'torch>=2.8,<3' beside flashinfer 0.7.4", None),
        ("GPU-side code, and a MIG-slice; found sm90, 12.8.0.1", None),
        ("/data/models/x.bin and ~/y", "<path> and <path>"),
        ("/var/lib:/opt/lib", "<path>:<path>"),
        ("~grace/x", "<path>"),
        ("file:///srv/private/wheel.whl", "<path>"),
        ("https://grace:token@host.example/x", "https://<address>@host.example/x"),
        ("by grace@navy.example", "by <address>"),
        (f"'GPU-{UUID}' names no device", "'GPU-<id>' names no device"),
        (f"MIG-GPU-{UUID}/1/0,GPU-0a1b2c3d", "MIG-GPU-<id>,GPU-<id>"),
        (f"MIG-{UUID} {UUID.upper()}", "MIG-<id> <id>"),
        ("GPU-8f3c1a2b3c4d5e6f", "GPU-<id>"),
        (
            "grace runs on mark1, not on mark10 or grace-hopper",
            "<name> runs on <name>, not on mark10 or grace-hopper",
        ),
    ],
)
def test_redaction(text, redacted):
    assert Redaction(("grace", "mark1")).text(text) == (redacted or text)


def test_whoever_runs_this_process_and_its_host_are_known(monkeypatch):
    monkeypatch.setattr("getpass.getuser", lambda: "grace")
    monkeypatch.setattr("platform.node", lambda: "mark1.navy.example")
    redact = of_this_process()
    assert redact.text("grace on mark1.navy.example, mark1") == "<name> on <name>, <name>"
    assert redact.text("run as root") == "run as root"


def test_a_user_without_a_name_is_no_error(monkeypatch):
    def nobody():
        raise KeyError("getpwuid(): uid not found: 1000")

    monkeypatch.setattr("getpass.getuser", nobody)
    assert of_this_process().text("x") == "x"
