"""The real machine: commands that hang, fail or are missing; probes that break."""

import sys
import time

import pytest

from rlt_hw.devices.detect import LocalMachine, detect
from rlt_hw.devices.detect.imports import check_imports
from rlt_hw.devices.detect.packages import installed
from rlt_hw.devices.detect.seen import Seen
from rlt_hw.devices.detect.timebox import run_probes
from rlt_hw.devices.environment import Environment, Package
from rlt_hw.reasons import Code
from tests.devices.machines import RecordedMachine


@pytest.mark.parametrize(
    ("command", "status"),
    [
        ((sys.executable, "-c", "print(1)"), "ok"),
        ((sys.executable, "-c", "raise SystemExit(3)"), "failed"),
        (("no-such-tool-here",), "missing"),
    ],
)
def test_how_a_command_ended(command, status):
    assert LocalMachine().run(*command, timeout=20).status == status


def test_a_hanging_command_and_its_children_are_given_up():
    begin = time.monotonic()
    ran = LocalMachine().run("sh", "-c", "sleep 60 & sleep 60", timeout=0.3)
    assert ran.status == "timeout"
    assert time.monotonic() - begin < 5


def test_a_hanging_and_a_broken_probe_harm_no_other():
    def hang(machine):
        time.sleep(3)
        return Seen()

    def broken(machine):
        raise KeyError("surprise")

    def fine(machine):
        return Seen(drivers={"x": "1"})

    begin = time.monotonic()
    seen = run_probes({"hang": hang, "broken": broken, "fine": fine}, RecordedMachine(), seconds=0.3)
    assert time.monotonic() - begin < 2
    assert seen["hang"].findings[0].code is Code.PROBE_TIMEOUT
    assert "KeyError" in seen["broken"].findings[0].found
    assert seen["fine"].drivers == {"x": "1"}


def test_this_machine_is_read_without_torch_and_quickly():
    loaded = "torch" in sys.modules
    begin = time.monotonic()
    environment = detect()
    assert time.monotonic() - begin < 5
    assert environment.devices[-1].target.vendor == "cpu"
    assert loaded or "torch" not in sys.modules


def test_names_and_versions_agree_with_the_metadata():
    from importlib.metadata import version

    found = installed(LocalMachine())
    for name in ("pytest", "hypothesis", "typer"):
        assert found[name].version == version(name)


def test_the_deep_check_records_what_an_import_says(tmp_path):
    for module, body in (("flashinfer", "import ctypes; ctypes.CDLL('libgone.so.1')"), ("triton", "")):
        (tmp_path / module).mkdir()
        (tmp_path / module / "__init__.py").write_text(body)

    class Here(LocalMachine):
        def run(self, *command, timeout):
            code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); {command[-1]}"
            return super().run(*command[:-1], code, timeout=timeout)

    packages = {name: Package(name, "1") for name in ("flashinfer-python", "triton")}
    environment = check_imports(Here(), Environment(packages=packages))
    assert "libgone.so.1" in environment.packages["flashinfer-python"].error
    assert environment.packages["triton"].error is None
    assert [finding.code for finding in environment.findings] == [Code.PKG_BROKEN]
