"""The selection table of Ascend's chips: families, dtypes, page sizes, packages, and backends by name.

python -m tests.registry.ascend          print it
python -m tests.registry.ascend --write  write ascend.txt, to be read before it is committed
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import product
from pathlib import Path

from rlt_hw.backends.catalog import load_registry
from rlt_hw.devices.target import Target
from rlt_hw.registry import Need, assess_jointly
from tests.registry.machines import machine, need
from tests.registry.selection import outcome

TABLE = Path(__file__).with_name("ascend.txt")
TARGETS = ("910b", "910_93", "310p", "950")
DTYPES = ("bfloat16", "float16", "float32")
PAGES = (None, 1, 16, 64, 128, 256, 1024)
PACKAGES = ("-torch-npu", "!torch-npu", "torch-npu==2.9.0", "-torch")
NAMED = ("mindie_sd", "npu_atb", "npu_fia", "npu_fia_decode", "npu_fia_prefill")
FAMILIES = {"ouro": (16, 16, 128), "nanbeige": (48, 8, 128), "huginn": (55, 55, 96)}
HEADER = (
    f"{'target':7} {'family':9} {'packages':17} {'asked':32} prefill / decode, page, communication, graph"
)


def rows() -> Iterator[str]:
    registry = load_registry(points=())
    for arch, family, packages, fields in cases():
        target = Target.parse(f"ascend:{arch}")
        decision = assess_jointly(target, need_of(family, **fields), machine(target, packages), registry)
        asked = " ".join(f"{key}={value}" for key, value in fields.items() if value is not None)
        yield f"{arch:7} {family:9} {packages:17} {asked:32} {outcome(decision, left_out='ARCH')}".rstrip()


def cases() -> Iterator[tuple[str, str, str, dict[str, object]]]:
    for arch, family in product(TARGETS, FAMILIES):
        for dtype, page in product(DTYPES, PAGES):
            yield arch, family, "all", {"dtype": dtype, "page_size": page}
        for packages in PACKAGES:
            yield arch, family, packages, {}
        for name in NAMED:
            yield arch, family, "all", {"attention": name}
        yield arch, family, "all", {"decode": "npu_atb"}
        yield arch, family, "all", {"graph": "full"}
        yield arch, family, "all", {"tensor_parallel": 11 if family == "huginn" else 2}


def need_of(family: str, **fields: object) -> Need:
    heads, kv_heads, head_dim = FAMILIES[family]
    return need(num_heads=heads, num_kv_heads=kv_heads, head_dim=head_dim, **fields)


if __name__ == "__main__":
    text = "\n".join((HEADER, *rows())) + "\n"
    if "--write" in sys.argv:
        TABLE.write_text(text, encoding="utf-8")
    else:
        print(text, end="")
