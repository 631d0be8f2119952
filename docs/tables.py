"""Writes the tables that follow from data. `make docs` checks that they are current."""

from __future__ import annotations

import sys
from pathlib import Path

from rlt_hw.backends.evidence import RECORDS
from rlt_hw.models.config import published_names, read_spec
from rlt_hw.models.spec import KVLayout, ModelSpec
from rlt_hw.reasons import Code
from rlt_hw.registry import LEVELS
from rlt_hw.verify.matrix import lines, matrix, read_records

DOCS = Path(__file__).resolve().parent
MODELS = DOCS / "models" / "README.md"
SUPPORT = DOCS / "support.md"
HEAD = """# Models

Written by `python docs/tables.py` from the published configurations.

| checkpoint | parameters | layers (prelude + core + coda) | loops | heads x size (KV heads) | context | KV bytes a token, bfloat16 | exit rules | KV layouts |
| --- | --- | --- | --- | --- | --- | --- | --- | --- |
"""  # noqa: E501
TAIL = """
One page a family: [Ouro](ouro.md), [Nanbeige4.2](nanbeige.md), [Huginn](huginn.md).
"""


SUPPORT_HEAD = """# Support

Written by `python docs/tables.py` from the backends' specs and the [records](../rlt_hw/verify/records).
`rlt-hw probe --matrix` prints the same, with `--json` a row for each model, target, backend and feature.

**Only "executed" is support**: `rlt-hw verify` ran on the device itself. Any other word is the highest
level that a record reaches: {levels}. A cell links the newest record of its level and gives its date. It
names models where they differ, and says `no` where selection refuses the feature for the target and the
model, with the reason. Refusals that an installation cures are not shown. Without a record: declared.

A model stands for its family: what ran is the family's demo checkpoint, and cases at the model's head size.
`runs`: in an engine. `graph`: a decode step, captured and replayed. `batch_invariant`: equal to the bit in
any batch.
"""


def models_table() -> str:
    return HEAD + "".join(_row(read_spec(name)) for name in published_names()) + TAIL


def _row(spec: ModelSpec) -> str:
    layout = KVLayout.parse(spec.kv_layouts[0])
    cells = (
        spec.name,
        f"{spec.parameters:,}",
        f"{spec.prelude_layers} + {spec.recurrent_layers} + {spec.coda_layers}",
        spec.loops,
        f"{spec.num_heads} x {spec.head_dim} ({spec.num_kv_heads})",
        f"{spec.max_context:,}",
        f"{spec.kv_bytes_per_token(layout, 2):,}",
        ", ".join(spec.exit_rules) or "none",
        ", ".join(spec.kv_layouts),
    )
    return "| " + " | ".join(map(str, cells)) + " |\n"


def support_page() -> str:
    head = SUPPORT_HEAD.format(levels=", ".join(f"{level} {name}" for level, name in enumerate(LEVELS)))
    records = ["", "## Records", "", "| record | level | target | date | commit |", f"|{' --- |' * 5}"]
    for record in read_records():
        found = record.data
        level = f"{record.level} {LEVELS[record.level]}"
        cells = (_link(record.name, record.name), level, found["target"], found["date"], found["commit"][:7])
        records.append(f"| {' | '.join(cells)} |")
    return head + "\n".join((*lines(matrix(), _link), *records)) + "\n"


def _link(text: str, place: str) -> str:
    """To a reason's page or a record, its report where it has one."""
    if place in set(Code):
        return f"[{text}](reasons/{place}.md)"
    ending = "md" if (RECORDS / f"{place}.md").is_file() else "json"
    return f"[{text}](../rlt_hw/verify/records/{place}.{ending})"


PAGES = {MODELS: models_table, SUPPORT: support_page}


def stale() -> list[str]:
    """Pages that differ from the data."""
    return [
        f"{page.relative_to(DOCS)} of docs is not current: run python docs/tables.py"
        for page, text in PAGES.items()
        if not page.is_file() or page.read_text(encoding="utf-8") != text()
    ]


def main() -> int:
    for page, text in PAGES.items():
        page.write_text(text(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
