"""Options and rules for the whole suite."""

from __future__ import annotations

import os

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
    """Serves `@pytest.mark.device("nvidia:sm90")`."""
    marker = request.node.get_closest_marker("device")
    if marker is None:
        return
    (target,) = marker.args
    present = request.getfixturevalue("present_targets")
    if target in present:
        return
    text = f"needs {target}; here: {', '.join(sorted(present)) or 'nothing'}"
    if target in request.config.getoption("--require-device"):
        pytest.fail(text, pytrace=False)
    pytest.skip(text)


def pytest_sessionfinish(session, exitstatus):
    """A required device that no test asked for and that is not here is a failure too."""
    required = set(session.config.getoption("--require-device"))
    if required and not hasattr(session.config, "workerinput"):
        from rlt_hw.devices.detect import detect

        missing = required - {str(device.target) for device in detect().devices}
        if missing:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
            print(f"\nrequired and not here: {', '.join(sorted(missing))}")
