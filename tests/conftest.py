"""Options and rules for the whole suite."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings

# Machines that are shared pause at any time; CI repeats the same examples, so that red is never luck.
settings.register_profile("rlt-hw", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("rlt-hw")


def pytest_addoption(parser):
    parser.addoption(
        "--require-device",
        action="append",
        default=[],
        metavar="TARGET",
        help="targets such as nvidia:sm90 that must be here: their tests fail instead of being skipped",
    )
    parser.addoption(
        "--evidence", type=Path, metavar="FOLDER", help="where tests of a device leave their record"
    )


def pytest_configure(config):
    if os.environ.get("PYTEST_XDIST_WORKER"):
        import torch

        torch.set_num_threads(1)


@pytest.fixture(scope="session")
def present_targets():
    from rlt_hw.devices.detect import detect

    return {str(device.target) for device in detect().devices}


@pytest.fixture(autouse=True)
def _device(request):
    """Serves `@pytest.mark.device("nvidia:sm90")`, and `@pytest.mark.device` for any accelerator."""
    marker = request.node.get_closest_marker("device")
    if marker is None:
        return
    present = request.getfixturevalue("present_targets")
    wanted = set(marker.args) or {target for target in present if not target.startswith("cpu")}
    if not wanted & present:
        what = " or ".join(sorted(marker.args)) or "an accelerator"
        pytest.skip(f"needs {what}; here: {', '.join(sorted(present)) or 'nothing'}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """A test of a required device that was skipped, for whatever reason, has failed."""
    report = yield
    marker, required = item.get_closest_marker("device"), set(item.config.getoption("--require-device"))
    skipped = report.skipped and not hasattr(report, "wasxfail")
    if marker and skipped and required & (set(marker.args) or required):
        report.outcome = "failed"
        report.longrepr = f"skipped under --require-device: {call.excinfo.value}"
    return report


def pytest_sessionfinish(session, exitstatus):
    """A required device that no test asked for and that is not here is a failure too."""
    required = set(session.config.getoption("--require-device"))
    if required and not hasattr(session.config, "workerinput"):
        from rlt_hw.devices.detect import detect

        missing = required - {str(device.target) for device in detect().devices}
        if missing:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
            print(f"\nrequired and not here: {', '.join(sorted(missing))}")
