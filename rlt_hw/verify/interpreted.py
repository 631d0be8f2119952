"""Numbers of the Triton kernels in Triton's interpreter, with the tiles of targets that are not here.

    python -m rlt_hw.verify.interpreted [--records FOLDER] [--commit SHA]

The conformance cases, but for long contexts and what has many rows or heads, each set of tiles in a process
of its own. A record is evidence of level 3 for the targets that get these tiles. Graphs and bfloat16 are not
in it: the interpreter has no graphs, and its arithmetic on bfloat16 is wrong.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import Any, ClassVar

import triton

from rlt_hw.backends.attention import triton_paged
from rlt_hw.backends.attention.interface import AttentionGeometry
from rlt_hw.backends.catalog import in_tree
from rlt_hw.backends.kernels.launch import Attending
from rlt_hw.backends.kernels.tables import Resources
from rlt_hw.backends.kernels.tuning import Operands
from rlt_hw.backends.operators import triton_fused
from rlt_hw.backends.operators.interface import OperatorOptions
from rlt_hw.devices.facts import TargetFacts, facts, known_targets
from rlt_hw.registry import Registry
from rlt_hw.verify.conformance import machine_here, results
from rlt_hw.verify.conformance.subject import Case
from rlt_hw.verify.provenance import provenance
from rlt_hw.verify.record import by_case, dump

DTYPES = {"triton_paged": ("float32", "float16"), "triton_fused": ("float32",)}
SLOW = ("decode, many rows", "decode, long context", "prefill, long context")
MOST_HEADS = 16
MOST_ROWS = 20
INVARIANT_ROWS = 3
"""What the interpreter runs in minutes: of attention, and of operators."""


@dataclass(frozen=True)
class Tiles:
    """What the choice of tiles follows from. shared_memory: the least that a target of the set has, bytes."""

    name: str
    hip: bool
    warp_size: int
    shared_memory: int
    max_rows: int
    processors: int = 8

    def __str__(self) -> str:
        return (
            f"{self.name}: {self.warp_size} threads in step, {self.shared_memory} bytes of shared memory, "
            f"{self.max_rows} rows"
        )


def tiles_of(known: TargetFacts) -> str:
    """The name of the set of tiles that a target gets."""
    if known.target.vendor == "amd":
        return f"amd-wave{known.wave_size}"
    return known.target.vendor


TILES = {
    tiles.name: tiles
    for tiles in (
        Tiles("nvidia", False, 32, 99 * 1024, 64),
        Tiles("amd-wave64", True, 64, 64 * 1024, 64),
        Tiles("amd-wave32", True, 32, 64 * 1024, 64),
    )
}


class Attention(triton_paged.TritonPaged):
    """With the tiles of `tiles`, which the process sets."""

    tiles: ClassVar[Tiles]

    def __init__(self, geometry: AttentionGeometry) -> None:
        operands = Operands(geometry.head_dim, geometry.dtype.itemsize, self.tiles.warp_size, self.tiles.hip)
        self._kernels = Attending(geometry, operands)


class Operators(triton_fused.TritonOperators):
    """With the tiles of `Attention.tiles`."""

    def __init__(self, options: OperatorOptions) -> None:
        super().__init__(options)
        tiles = Attention.tiles
        self._products._resources = Resources(tiles.processors, tiles.shared_memory, tiles.max_rows)


def rows(tiles: Tiles) -> list[dict[str, Any]]:
    """By backend, case and dtype what came of it. The process must have TRITON_INTERPRET=1 from its start."""
    Attention.tiles = tiles
    adapters = {"triton_paged": Attention, "triton_fused": Operators}
    specs = (
        replace(spec, targets=("cpu",), toolkits=(), adapter=f"{__name__}:{adapters[spec.name].__name__}")
        if spec.name in adapters
        else spec
        for spec in in_tree()
    )
    machine = machine_here("cpu", Registry(tuple(specs)))
    found = (
        row
        for name, dtypes in DTYPES.items()
        for dtype in dtypes
        for row in results(name, machine, dtype, among=_short)
    )
    return list(by_case(found))


def _short(case: Case) -> bool:
    settings = case.settings
    if "rows" not in settings or "heads" in settings:
        return case.name not in SLOW and settings.get("heads", 0) <= MOST_HEADS
    invariant = not any(case.tolerances.values())
    return settings["rows"] == INVARIANT_ROWS if invariant else settings["rows"] <= MOST_ROWS


def records(found: Mapping[str, Sequence[Mapping[str, Any]]], commit: str, source: str) -> Iterator[Any]:
    """A record for each known target that a backend serves, from the rows of its tiles."""
    served = {spec.name: spec for spec in in_tree() if spec.name in DTYPES}
    for target in known_targets():
        known = facts(target)
        names = [name for name, spec in served.items() if spec.serves(target)]
        if not names or not isinstance(known, TargetFacts) or tiles_of(known) not in found:
            continue
        mine = found[tiles_of(known)]
        yield {
            "level": 3,
            "target": str(target),
            "backends": [name for name in names if _right(name, mine)],
            "emulated": "Triton's interpreter stands for its compiler",
            "date": date.today().isoformat(),
            "commit": commit,
            "commit_source": source,
            "triton": triton.__version__,
            "tiles": str(TILES[tiles_of(known)]),
            "rows": mine,
        }


def _right(backend: str, rows: Sequence[Mapping[str, Any]]) -> bool:
    mine = [row for row in rows if row["backend"] == backend]
    return any(row["passed"] for row in mine) and not any(row["failed"] for row in mine)


def interpret(name: str) -> list[dict[str, Any]]:
    """`rows` in a process of its own. Raises CalledProcessError."""
    command = [sys.executable, "-m", "rlt_hw.verify.interpreted", "--tiles", name]
    done = subprocess.run(
        command, env={**os.environ, "TRITON_INTERPRET": "1"}, stdout=subprocess.PIPE, check=True
    )
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--records", type=Path, help="write an evidence record for each target")
    parser.add_argument("--commit", help="the commit that runs, where no git tree says it")
    parser.add_argument("--tiles", choices=TILES, help="print the rows of one set as JSON, from this process")
    chosen = parser.parse_args()
    if chosen.tiles:
        json.dump(rows(TILES[chosen.tiles]), sys.stdout)
        return 0
    origin = provenance(chosen.commit, apart_from=chosen.records) if chosen.records else None
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        found = dict(zip(TILES, pool.map(interpret, TILES), strict=True))
    for name, mine in found.items():
        for row in mine:
            what = f"{name:10} {row['backend']:12} {row['case']:36} {row['dtype']:8}"
            print(f"{what} {row['passed']:2} passed, error {row['max_error']}, {'; '.join(row['failed'])}")
    if origin:
        for record in records(found, origin.commit, origin.source):
            path = chosen.records / f"interpreted-{record['target'].replace(':', '-')}.json"
            path.write_text(dump(record), encoding="utf-8")
    return 1 if any(row["failed"] for mine in found.values() for row in mine) else 0


if __name__ == "__main__":
    sys.exit(main())
