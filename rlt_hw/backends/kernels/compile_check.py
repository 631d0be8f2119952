"""Compiles the attention kernels for targets that are not here and reads what the compiler says.

    python -m rlt_hw.backends.kernels.compile_check [--out FILE] [--records FOLDER]

For each target, kernel, head size and dtype: shared memory, registers, spills and the matrix
instruction that was emitted. A row's `faults` are what would keep it from running, or make it slow.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget

from rlt_hw.backends.attention.interface import AttentionGeometry
from rlt_hw.backends.kernels import launch
from rlt_hw.backends.kernels.tuning import tiles_for
from rlt_hw.devices.facts import TargetFacts, facts
from rlt_hw.devices.target import Target

TARGETS = (
    "nvidia:sm80", "nvidia:sm86", "nvidia:sm89", "nvidia:sm90", "nvidia:sm100", "nvidia:sm120",
    "amd:gfx90a", "amd:gfx942", "amd:gfx950", "amd:gfx1100", "amd:gfx1201",
)  # fmt: skip
MATRIX = {"nvidia": r"wgmma\S*|mma\.sync\S*|tcgen05\.mma\S*", "amd": r"v_mfma\w*|v_wmma\w*"}
DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32}


@dataclass(frozen=True)
class Row:
    """One compiled kernel. shared: bytes a block, at most `shared_limit`. spills: registers spilled to memory
    (AMD) or bytes of stack frame (NVIDIA). matrix: the first matrix instruction, "" where there is none."""

    target: str
    kernel: str
    head_dim: int
    dtype: str
    shared: int
    shared_limit: int
    registers: int
    spills: int
    matrix: str
    faults: tuple[str, ...]


class OfflineDriver:
    """What Triton's JIT asks of a driver, answered for a target without a device."""

    def __init__(self, target: GPUTarget) -> None:
        self._target = target

    def get_current_target(self) -> GPUTarget:
        return self._target

    def get_active_torch_device(self) -> torch.device:
        return torch.device("cpu")

    def get_current_device(self) -> int:
        return 0

    def set_current_device(self, device: int) -> None:
        """There is only the one."""

    def get_current_stream(self, device: int | None = None) -> int:
        return 0


class Compiled:
    """Stands in for a kernel in `launch`: compiles with the arguments of the launch, and does not launch."""

    def __init__(self, kernel: Any) -> None:
        self._kernel = kernel
        self.found: list[Any] = []

    def __getitem__(self, grid: tuple[int, ...]) -> Any:
        def compile_only(*arguments: Any, **options: Any) -> None:
            self.found.append(self._kernel.warmup(*arguments, grid=grid, **options))

        return compile_only


def check(target: Target, head_dim: int, dtype: str) -> Iterator[Row]:
    """Compile every kernel as `TritonPaged` would launch it on the target."""
    known = facts(target)
    assert isinstance(known, TargetFacts)
    hip = target.vendor == "amd"
    arch: int | str = target.arch if hip else int(target.arch.removeprefix("sm"))
    gpu = GPUTarget("hip" if hip else "cuda", arch, known.wave_size or 32)
    triton.runtime.driver.set_active(OfflineDriver(gpu))
    for name, compiled in _compile(head_dim, DTYPES[dtype], known.wave_size or 32, hip):
        yield _row(target, name, head_dim, dtype, compiled, known.shared_memory or 0)


def _compile(head_dim: int, dtype: torch.dtype, warp_size: int, hip: bool) -> Iterator[tuple[str, Any]]:
    geometry = AttentionGeometry(
        num_heads=4, num_kv_heads=2, head_dim=head_dim, page_size=16, scale=head_dim**-0.5, dtype=dtype,
        device=torch.device("cpu"), max_rows=4, max_tokens=8, max_pages_per_row=4,
    )  # fmt: skip
    tiles = tiles_for(head_dim=head_dim, itemsize=dtype.itemsize, warp_size=warp_size, hip=hip)
    query = torch.empty(4, 4, head_dim, dtype=dtype)
    cache = torch.empty(8, 16, 2, head_dim, dtype=dtype)
    table, lens = torch.zeros(4, 4, dtype=torch.int32), torch.ones(4, dtype=torch.int32)
    starts = torch.arange(5, dtype=torch.int32)
    names = ("decode_kernel", "combine_kernel", "prefill_kernel")
    originals = {name: getattr(launch, name) for name in names}
    stand_ins = {name: Compiled(kernel) for name, kernel in originals.items()}
    for name, kernel in originals.items():
        kernel.device_caches.clear()
        setattr(launch, name, stand_ins[name])
    try:
        workspace = launch.Workspace.allocate(geometry, tiles)
        launch.decode(geometry, tiles, workspace, query, cache, cache, table, lens, query)
        launch.prefill(geometry, tiles, query, cache, cache, starts, table, lens, 1, query)
    finally:
        for name, kernel in originals.items():
            setattr(launch, name, kernel)
    for name, stand_in in stand_ins.items():
        yield name, stand_in.found[0]


def _row(target: Target, name: str, head_dim: int, dtype: str, compiled: Any, limit: int) -> Row:
    amd = target.vendor == "amd"
    text = compiled.asm["amdgcn" if amd else "ptx"]
    registers, spills = _amd_registers(text) if amd else _nvidia_registers(compiled.asm["cubin"])
    found = re.search(MATRIX[target.vendor], text)
    shared = compiled.metadata.shared
    faults = []
    if shared > limit:
        faults.append(f"{shared} bytes of shared memory")
    if spills:
        faults.append(f"{spills} spilled")
    if not found and name != "combine_kernel" and dtype != "float32":
        faults.append("no matrix instruction")
    return Row(
        str(target), name, head_dim, dtype, shared, limit, registers, spills,
        found.group(0) if found else "", tuple(faults),
    )  # fmt: skip


def _amd_registers(text: str) -> tuple[int, int]:
    def number(field: str) -> int:
        found = re.search(rf"\.{field}:\s*(\d+)", text)
        return int(found.group(1)) if found else 0

    return number("vgpr_count"), number("vgpr_spill_count")


def _nvidia_registers(cubin: bytes) -> tuple[int, int]:
    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        command = [str(tool), "-res-usage", file.name]
        usage = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    registers, stack = re.search(r"REG:(\d+)", usage), re.search(r"STACK:(\d+)", usage)
    return int(registers.group(1)) if registers else 0, int(stack.group(1)) if stack else 0


def write_records(rows: list[Row], folder: Path, commit: str) -> None:
    """One evidence record of level 2 for each target, with every row."""
    for target in dict.fromkeys(row.target for row in rows):
        record = {
            "level": 2,
            "target": target,
            "backends": ["triton_paged"],
            "date": date.today().isoformat(),
            "commit": commit,
            "triton": triton.__version__,
            "rows": [asdict(row) for row in rows if row.target == target],
        }
        path = folder / f"compiled-{target.replace(':', '-')}.json"
        path.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, help="write the rows as JSON")
    parser.add_argument("--targets", default=",".join(TARGETS))
    parser.add_argument("--dtypes", default="bfloat16,float32")
    parser.add_argument("--records", type=Path, help="write an evidence record for each target")
    parser.add_argument("--commit", default="", help="what the records say was compiled")
    chosen = parser.parse_args()
    rows = [
        row
        for target in chosen.targets.split(",")
        for head_dim in (64, 96, 128)
        for dtype in chosen.dtypes.split(",")
        for row in check(Target.parse(target), head_dim, dtype)
    ]
    for row in rows:
        print(
            f"{row.target:12} {row.kernel:15} {row.head_dim:4} {row.dtype:9} shared {row.shared:7} registers "
            f"{row.registers:4} {row.matrix:45.45} {'; '.join(row.faults)}"
        )
    if chosen.out:
        report = {"triton": triton.__version__, "rows": [asdict(row) for row in rows]}
        chosen.out.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    if chosen.records:
        write_records(rows, chosen.records, chosen.commit)
    return 1 if any(row.faults for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
