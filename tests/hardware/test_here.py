"""The conformance kit and the checks of engines on this machine's own accelerator, with their record."""

from __future__ import annotations

import pytest


@pytest.mark.slow
@pytest.mark.device
def test_every_backend_that_serves_this_device(request):
    from rlt_hw.verify.conformance import machine_here
    from rlt_hw.verify.provenance import provenance
    from rlt_hw.verify.record import name_of, record_of, write
    from rlt_hw.verify.suite import ALL, verify

    folder, required = (request.config.getoption(name) for name in ("--evidence", "--require-device"))
    origin = provenance(None, apart_from=folder) if folder else None
    machine = machine_here()
    assert not required or str(machine.target) in required
    run = verify(machine, ALL)
    if folder:
        write(record_of(run, origin), folder, name_of(run))
    failed = [str(row) for row in (*run.conformance, *run.engine) if row.outcome == "failed"]
    assert not failed, "\n".join(failed)
    assert run.good
