"""Lowers this project's Triton kernels for Ascend as far as public packages go. README.md says how to run it.

`triton-ascend` turns a kernel into linear algebra, `bishengir-compile` that into HIVM with its on-chip memory
planned. The last step, machine code, needs CANN's `hivmc`: here a stand-in keeps the module it is given.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget

HIVMC = """#!/bin/sh
for word in "$@"; do case "$word" in *.mlir) cp "$word" "$LOWERED" ;; esac; done
while [ $# -gt 1 ]; do [ "$1" = -o ] && : > "$2"; shift; done
"""
FLAGS = ("--enable-auto-multi-buffer=true", "--enable-hfusion-compile=true", "--enable-hivm-compile=true",
         "--enable-triton-kernel-compile=true")  # fmt: skip
SECONDS = 300
VECTOR_BUFFER = 192 * 1024
"""Bytes, of which launches choose their tiles as they do by a GPU's shared memory."""


@dataclass(frozen=True)
class Row:
    """One kernel. unit: "aiv" for the vector unit alone, "mix" with the matrix unit. hivm: bytes of the
    module that code generation would get. fault: what kept it from getting there."""

    target: str
    kernel: str
    head_dim: int
    dtype: str
    unit: str
    hivm: int
    fault: str


class Lowering:
    """Takes the place of the backend's last stage."""

    def __init__(self, compiler: Path, target: str, parse: Any) -> None:
        self._compiler, self._target, self._parse = compiler, target, parse
        self.unit, self.hivm = "", 0

    def __call__(self, linalg: str, metadata: dict[str, Any], _options: Any) -> bytes:
        linalg, metadata = self._parse(linalg, metadata)
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            source, lowered, tool = (folder / file for file in ("kernel.mlir", "lowered.mlir", "hivmc"))
            source.write_text(linalg)
            tool.write_text(HIVMC)
            tool.chmod(0o755)
            ran = subprocess.run(
                [str(self._compiler), str(source), f"--target={self._target}", *FLAGS, "-o", f"{name}/out"],
                env={**os.environ, "PATH": f"{name}:{os.environ['PATH']}", "LOWERED": str(lowered)},
                capture_output=True, text=True, timeout=SECONDS, check=False,
            )  # fmt: skip
            if ran.returncode or not lowered.exists():
                raise RuntimeError(ran.stderr.strip() or "no module")
            self.unit, self.hivm = metadata["mix_mode"], lowered.stat().st_size
        return b"none"


def rows(compiler: Path, target: str, head_dim: int, dtype: str) -> Iterator[Row]:
    """Every kernel as the launches of `compile_check` make it."""
    sys.modules["triton.language.extra.cuda"] = _without_pdl()
    from rlt_hw.backends.kernels import compile_check
    from rlt_hw.backends.kernels.tables import Resources
    from rlt_hw.backends.kernels.tuning import Operands

    stages = triton.backends.backends["ascend"].compiler.add_stages.__globals__
    lowering = Lowering(compiler, target, stages["_parse_linalg_metadata"])
    stages["linalg_to_bin_enable_npu_compile_A2_A3"] = lowering

    class Lowered(compile_check.Compiled):
        def __getitem__(self, grid: tuple[int, ...]) -> Any:
            def lower(*arguments: Any, **options: Any) -> None:
                fault, lowering.unit, lowering.hivm = "", "", 0
                try:
                    self._kernel.warmup(*arguments, grid=grid, **options)
                except Exception as error:  # noqa: BLE001 - whatever a pass does not take is the row's fault
                    fault = _first_error(str(error))
                name = self._kernel.__name__
                if fault or lowering.hivm:  # else the same launch came before
                    self.found.append(Row(target, name, head_dim, dtype, lowering.unit, lowering.hivm, fault))

            return lower

    compile_check.Compiled = Lowered
    for module, names in compile_check.KERNELS.items():
        for name in names:
            getattr(module, name).device_caches = getattr(module, name).cache  # the name of later versions
    triton.runtime.driver.set_active(compile_check.OfflineDriver(GPUTarget("npu", target, 0)))
    kind = compile_check.DTYPES[dtype]
    # Tiles of an AMD GPU: NVIDIA's larger ones do not fit.
    operands, resources = Operands(head_dim, kind.itemsize, 64, True), Resources(24, VECTOR_BUFFER, 64)
    for _, row in compile_check._compile(operands, kind, {"PDL": False}, resources):
        yield row


def _first_error(text: str) -> str:
    """The compiler's own words, without places and advice."""
    lines = [line.partition("error: ")[2] for line in text.splitlines() if "error: " in line]
    return (lines or text.splitlines() or ["no text"])[-1].partition(" (possible")[0]


def _without_pdl() -> ModuleType:
    """The module of NVIDIA's early launches, which kernels import and here never call."""
    made = ModuleType("triton.language.extra.cuda")
    made.gdc_wait = made.gdc_launch_dependents = lambda: None  # type: ignore[attr-defined]
    return made


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--compiler", type=Path, required=True, help="bishengir-compile")
    parser.add_argument("--targets", default="Ascend910B3,Ascend910_9392")
    parser.add_argument("--dtypes", default="bfloat16,float16,float32")
    parser.add_argument("--out", type=Path, help="write the rows as JSON")
    parser.add_argument("--commit", default="", help="what the file says was lowered")
    chosen = parser.parse_args()
    os.environ["TRITON_ALWAYS_COMPILE"] = "1"
    found = [
        row
        for target in chosen.targets.split(",")
        for dtype in chosen.dtypes.split(",")
        for head_dim in (64, 96, 128)
        for row in rows(chosen.compiler, target, head_dim, dtype)
    ]
    for row in found:
        place = f"{row.target:14} {row.kernel:22} {row.head_dim:4} {row.dtype:9}"
        print(f"{place} {row.unit:4} {row.hivm:8} {row.fault}")
    if chosen.out:
        lines = ",\n".join(f"  {json.dumps(asdict(row))}" for row in found)
        head = {"commit": chosen.commit, "torch": torch.__version__, "triton-ascend": triton.__version__}
        text = json.dumps(head)[1:-1]
        chosen.out.write_text(f'{{\n {text},\n "rows": [\n{lines}\n ]\n}}\n', encoding="utf-8")
    return 1 if any(row.fault for row in found) else 0


if __name__ == "__main__":
    sys.exit(main())
