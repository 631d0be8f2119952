"""Compiles the kernels for targets that are not here and reads what the compiler says.

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
from dataclasses import asdict, dataclass, fields, replace
from datetime import date
from pathlib import Path
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget

from rlt_hw.backends.attention.interface import AttentionGeometry, DecodeBatch
from rlt_hw.backends.kernels import launch, launch_products, launch_rows
from rlt_hw.backends.kernels.launch_products import Products
from rlt_hw.backends.kernels.tables import Resources
from rlt_hw.backends.kernels.tuning import Operands
from rlt_hw.backends.operators.interface import Add, OperatorOptions, Projected, Rotary, Stream
from rlt_hw.backends.operators.rows import DecodeRows, LoopPlanes
from rlt_hw.devices.facts import TargetFacts, facts
from rlt_hw.devices.target import Target

TARGETS = (
    "nvidia:sm80", "nvidia:sm86", "nvidia:sm89", "nvidia:sm90", "nvidia:sm100", "nvidia:sm120",
    "amd:gfx90a", "amd:gfx942", "amd:gfx950", "amd:gfx1100", "amd:gfx1201",
)  # fmt: skip
MATRIX = {"nvidia": r"wgmma\S*|mma\.sync\S*|tcgen05\.mma\S*", "amd": r"v_mfma\w*|v_wmma\w*"}
KERNELS: dict[Any, tuple[str, ...]] = {
    launch: ("decode_kernel", "prefill_kernel", "rotate_write_kernel"),
    launch_products: (
        "settle_kernel", "project_kernel", "gemv_kernel", "product_kernel", "silu_product_kernel",
    ),
    launch_rows: (
        "board_kernel", "leave_kernel", "best_kernel", "best_of_chunks_kernel", "fill_kernel",
        "advance_kernel", "uniform_kernel",
    ),
}  # fmt: skip
PRODUCTS = ("decode_kernel", "prefill_kernel", "product_kernel")
"""Kernels that must use the matrix unit."""
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
    """Compile every kernel as `TritonPaged` and `TritonOperators` would launch it on the target."""
    known = facts(target)
    assert isinstance(known, TargetFacts)
    hip = target.vendor == "amd"
    arch: int | str = target.arch if hip else int(target.arch.removeprefix("sm"))
    gpu = GPUTarget("hip" if hip else "cuda", arch, known.wave_size or 32)
    triton.runtime.driver.set_active(OfflineDriver(gpu))
    pdl = {"PDL": True, "launch_pdl": True} if not hip and int(arch) >= 90 else {"PDL": False}
    operands = Operands(head_dim, DTYPES[dtype].itemsize, known.wave_size or 32, hip)
    wide = not hip and int(arch) >= 90
    resources = Resources(132, known.shared_memory or 1 << 30, 128 if wide else 64)
    for name, compiled in _compile(operands, DTYPES[dtype], pdl, resources):
        yield _row(target, name, head_dim, dtype, compiled, known.shared_memory or 0)


def _compile(
    operands: Operands, dtype: torch.dtype, pdl: dict[str, Any], resources: Resources
) -> Iterator[tuple[str, Any]]:
    """Every launch, with the kernels replaced by stand-ins and the device's answers by the target's."""
    places = [(module, name) for module, names in KERNELS.items() for name in names]
    originals = [getattr(module, name) for module, name in places]
    stand_ins = [Compiled(kernel) for kernel in originals]
    answers = [(module, "launch_options") for module in (launch, launch_products)] + [(launch, "loads_early")]
    before = [getattr(module, name) for module, name in answers]
    for (module, name), kernel, stand_in in zip(places, originals, stand_ins, strict=True):
        kernel.device_caches.clear()
        setattr(module, name, stand_in)
    for module, name in answers:
        setattr(module, name, _early(pdl) if name == "loads_early" else _options(pdl))
    try:
        _attend(operands, dtype)
        _multiply(dtype, resources)
    finally:
        for (module, name), original in zip((*places, *answers), (*originals, *before), strict=True):
            setattr(module, name, original)
    for (_, name), stand_in in zip(places, stand_ins, strict=True):
        for variant, compiled in enumerate(stand_in.found):
            yield f"{name} {variant}" if len(stand_in.found) > 1 else name, compiled


def _options(pdl: dict[str, Any]) -> Any:
    return lambda _device, wanted=True: pdl if wanted else {"PDL": False}


def _early(pdl: dict[str, Any]) -> Any:
    return lambda _device: pdl["PDL"]


def _attend(operands: Operands, dtype: torch.dtype) -> None:
    """Decode from a cache and fused with rotation, for few rows and for many; prefill; rotation alone."""
    dim, rows, cpu = operands.head_dim, 512, torch.device("cpu")
    geometry = AttentionGeometry(
        num_heads=4, num_kv_heads=2, head_dim=dim, page_size=16, scale=dim**-0.5, dtype=dtype, device=cpu,
        max_rows=rows, max_tokens=rows, max_pages_per_row=4,
    )  # fmt: skip
    kernels = launch.Attending(geometry, operands)
    query = torch.empty(rows, 4, dim, dtype=dtype)
    cache = torch.empty(8, 16, 2, dim, dtype=dtype)
    table, lens = torch.zeros(rows, 4, dtype=torch.int32), torch.ones(rows, dtype=torch.int32)
    kernels.decode(query[:4], cache, cache, table[:4], lens[:4], query[:4])
    angles = torch.empty(rows, dim // 2, dtype=dtype)
    for count in (1, rows):
        qkv = torch.empty(count, 8 * dim, dtype=dtype)
        projected = Projected(qkv, Rotary(4, 2, dim, False, 1e-6), angles[:count], angles[:count])
        batch = DecodeBatch(table[:count], lens[:count], 8, lens[:count])
        kernels.decode_projected(batch, projected, cache, cache, query[:count])
    kernels.prefill(query, cache, cache, torch.arange(5, dtype=torch.int32), table[:4], lens[:4], 1, query)
    launch.rotate_write(projected, cache, cache, torch.zeros(rows, dtype=torch.int64))
    _go_on(cache)


def _go_on(cache: torch.Tensor) -> None:
    """What happens to rows between loops."""
    number = torch.zeros(4, dtype=torch.int64)
    columns = {field.name: number for field in fields(DecodeRows)}
    rows = replace(DecodeRows(**columns), page_table=torch.zeros(4, 4, dtype=torch.int32))
    planes = LoopPlanes.build((0, 1), 4, 16, number.device)
    launch_rows.board(rows, planes)
    launch_rows.leave(rows, number > 0)
    launch_rows.uniform(replace(rows, temperature=torch.zeros(4)))
    token, bad = launch_rows.best(torch.empty(4, 49152))
    launch_rows.fill(cache[None], cache[None], rows, planes, number, number)
    launch_rows.advance(rows, token, bad, number, number)


def _multiply(dtype: torch.dtype, resources: Resources) -> None:
    """Products of 1, 32 and 128 rows with Ouro-1.4B's widths, the batch-invariant one, norms, activation."""
    k, wide = 2048, torch.empty(1, dtype=dtype).expand(11264, 2048)
    options = OperatorOptions(torch.device("cpu"), dtype)
    for products in (Products(options), Products(replace(options, batch_invariant=True))):
        products._resources = resources
        for rows in (1, 32, 128):
            x = torch.empty(rows, k, dtype=dtype)
            stream = Stream(x, x, wide[0], Add.INSIDE)
            if products.settles_in_product(x):
                products.project(stream, wide[0], wide[:6144], 1e-6, gated=False)
                products.project(stream, wide[0], wide, 1e-6, gated=True)
            products.settle(stream, wide[0], 1e-6, keep=True)
            for gated, shared in ((False, True), (True, False)):
                if products._tile(rows, k, dtype.itemsize, gated=gated, shared=shared) is not None:
                    products.product(x, wide[: 2 * k if gated else k], gated=gated, shared=shared)
    launch_products.silu_product(torch.empty(4, 2 * k, dtype=dtype))


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
    if not found and name.partition(" ")[0] in PRODUCTS and dtype != "float32":
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
            "backends": ["triton_paged", "triton_fused"],
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
            f"{row.target:12} {row.kernel:22} {row.head_dim:4} {row.dtype:9} shared {row.shared:7} registers "
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
