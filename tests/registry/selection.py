"""The selection table: what is chosen, and every reason against the others, over simulated machines.

python -m tests.registry.selection          print it
python -m tests.registry.selection --write  write selection.txt, to be read before it is committed
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from rlt_hw.backends.catalog import load_registry
from rlt_hw.devices.target import Target
from rlt_hw.registry import Decision, JointDecision, assess_jointly, first_rejection
from tests.registry.machines import CHANGES, MACHINES, machine, need

TABLE = Path(__file__).with_name("selection.txt")
DTYPES = ("bfloat16", "float16", "float32")
HEAD_DIMS = (64, 80, 96, 128, 256, 264)
PAGES = (1, 16, 64, 128, 256)
NAMED = (
    "aiter_flash", "aiter_paged", "aiter_unified", "flash_attn", "flash_attn_4", "flashinfer",
    "flashinfer_xqa", "torch_sdpa", "triton_paged",
)  # fmt: skip
HEADER = (
    f"{'machine':12} {'packages':19} {'asked':41} {'prefill / decode':30} {'page':4} {'others':10} rejected"
)


def rows() -> Iterator[str]:
    """One line a case: what is installed and asked, then the outcome."""
    registry = load_registry(points=())
    for name, change, fields in cases():
        target = Target.parse(name)
        decision = assess_jointly(target, need(**fields), machine(target, change), registry)
        asked = " ".join(f"{key}={value}" for key, value in fields.items())
        yield f"{name:12} {change:19} {asked:41} {outcome(decision)}".rstrip()


def cases() -> Iterator[tuple[str, str, dict[str, object]]]:
    """(machine, packages, fields of the need)."""
    for name in MACHINES:
        for dtype in DTYPES:
            for head_dim in HEAD_DIMS:
                yield name, "all", {"dtype": dtype, "head_dim": head_dim}
        for page in PAGES:
            yield name, "all", {"dtype": "bfloat16", "page_size": page}
        yield name, "all", {"head_dim": 96, "page_size": 256}
        for change in CHANGES[name.partition(":")[0]]:
            yield name, change, {}
            yield name, change, {"head_dim": 96}
        for backend in NAMED:
            yield name, "all", {"attention": backend}
        yield name, "all", {"prefill": "flash_attn", "decode": "flashinfer_xqa"}
        yield name, "all", {"tensor_parallel": 2}
        yield name, "all", {"graph": "full"}
        yield name, "all", {"kv_dtype": "float8_e4m3fn"}


def outcome(decision: JointDecision, left_out: str = "") -> str:
    """What was chosen with page, communication and graph level, or "refused CODE"; then all the reasons but
    the one that is left out."""
    if decision.obstacles:
        return f"refused {' '.join(row.code.value for row in decision.obstacles)}"
    rejected = " ".join(
        f"{codes}:{','.join(names)}" for codes, names in _rejected(decision).items() if codes != left_out
    )
    if not decision.supported:
        return f"refused {first_rejection(decision).code.value:38} {rejected}"
    chosen = f"{decision.prefill.chosen.name} / {decision.decode.chosen.name}"
    others = f"{decision.communication.chosen.name} {decision.graph_level.value}"
    return f"{chosen:30} {decision.page_size.value!s:4} {others:10} {rejected}"


def _rejected(decision: JointDecision) -> dict[str, list[str]]:
    """Codes -> names. Attention's, "(p)" and "(d)" where prefill and decode differ; another kind's where it
    has nothing to offer; pairs in conflict."""
    found: dict[str, list[str]] = {}
    prefill, decode = (_codes(part) for part in (decision.prefill, decision.decode))
    for name in sorted({*prefill, *decode}):
        if prefill.get(name) == decode.get(name):
            found.setdefault(prefill[name], []).append(name)
            continue
        for mark, codes in (("(p)", prefill.get(name)), ("(d)", decode.get(name))):
            if codes:
                found.setdefault(codes, []).append(name + mark)
    for part in (decision.kv, decision.graph, decision.communication):
        if not part.usable():
            for name, codes in _codes(part).items():
                found.setdefault(codes, []).append(name)
    for row in decision.conflicts:
        found.setdefault(row.code.value, []).append(row.subject.replace(" with ", "+"))
    return dict(sorted(found.items()))


def _codes(part: Decision) -> dict[str, str]:
    """name -> "HEAD_DIM+DTYPE" of each rejected candidate."""
    rejected = (row for row in part.candidates if row.rejections)
    return {row.name: "+".join(reason.code.value for reason in row.rejections) for row in rejected}


if __name__ == "__main__":
    text = "\n".join((HEADER, *rows())) + "\n"
    if "--write" in sys.argv:
        TABLE.write_text(text, encoding="utf-8")
    else:
        print(text, end="")
