"""Run probes side by side, each with its own time limit. No probe can fail or delay the others."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping

from rlt_hw.devices.detect.machine import Machine
from rlt_hw.devices.detect.seen import Seen
from rlt_hw.reasons import Code, Rejection

Probe = Callable[[Machine], Seen]


def run_probes(probes: Mapping[str, Probe], machine: Machine, seconds: float) -> dict[str, Seen]:
    """The result of each probe by name, in the order given.

    A probe that is not done after `seconds` becomes PROBE_TIMEOUT; its thread is left behind, because
    a thread that waits for a driver cannot be stopped. A probe that raises becomes DRIVER with the text.
    """
    results: dict[str, Seen] = {}

    def work(name: str, probe: Probe) -> None:
        try:
            results[name] = probe(machine)
        except Exception as error:  # noqa: BLE001 - a probe reads what drivers print; whatever breaks it is a finding
            results[name] = Seen(findings=(_broken(name, error),))

    threads = [
        threading.Thread(target=work, args=item, name=f"probe-{item[0]}", daemon=True)
        for item in probes.items()
    ]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + seconds
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    finished = dict(results)
    return {name: finished.get(name) or Seen(findings=(timed_out(name, seconds),)) for name in probes}


def timed_out(subject: str, seconds: float) -> Rejection:
    return Rejection(
        Code.PROBE_TIMEOUT,
        subject,
        f"no answer within {seconds:g} s",
        "an answer in time; a tool that hangs means a hung driver or device",
        "See what the driver says: `sudo dmesg --level=err,warn | tail -n 40`",
    )


def _broken(name: str, error: Exception) -> Rejection:
    return Rejection(
        Code.DRIVER,
        name,
        f"{type(error).__name__}: {error}",
        "output that this release can read",
        "Report this text together with `rlt-hw probe --json --redact`.",
    )
