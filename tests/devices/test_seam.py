"""Nothing outside `devices` and `backends` names a vendor's torch module."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import rlt_hw.devices

ROOT = Path(rlt_hw.devices.__file__).parents[1]
VENDOR = re.compile(
    r"torch\.(cuda|npu|hip|xpu|mps)\b|\btorch_npu\b|\.cuda\(|\.npu\(|\bis_cuda\b|\.version\.hip"
)
# The last one names vendors' functions as data.
ALLOWED = (ROOT / "devices", ROOT / "backends", ROOT / "verify" / "contracts")

SOURCES = [path for path in sorted(ROOT.rglob("*.py")) if not set(ALLOWED) & set(path.parents)]


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_vendor_module_outside_the_seam(path):
    lines = path.read_text(encoding="utf-8").splitlines()
    assert [f"{at}: {line}" for at, line in enumerate(lines, 1) if VENDOR.search(line)] == []


@pytest.mark.parametrize(
    "module",
    ["devices.detect", "devices.facts", "devices.environment", "devices.platform", "devices.choice",
     "devices.platforms.cuda", "devices.platforms.npu", "devices.platforms.cpu",
     "devices.platforms.emulated", "runtime.probing", "runtime.doctor"],
)  # fmt: skip
def test_probing_imports_no_torch(module):
    code = (
        f"import sys, rlt_hw.{module}; sys.exit(bool({{'torch', 'numpy', 'packaging'}} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
