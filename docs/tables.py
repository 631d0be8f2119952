"""Writes the tables that follow from data. `make docs` checks that they are current."""

from __future__ import annotations

import sys
from pathlib import Path

from rlt_hw.models.config import published_names, read_spec
from rlt_hw.models.spec import KVLayout, ModelSpec

MODELS = Path(__file__).resolve().parent / "models" / "README.md"
HEAD = """# Models

Written by `python docs/tables.py` from the published configurations.

| checkpoint | parameters | layers (prelude + core + coda) | loops | heads x size (KV heads) | context | KV bytes a token, bfloat16 | exit rules | KV layouts |
| --- | --- | --- | --- | --- | --- | --- | --- | --- |
"""  # noqa: E501
TAIL = """
One page a family: [Ouro](ouro.md), [Nanbeige4.2](nanbeige.md), [Huginn](huginn.md).
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


def stale() -> list[str]:
    """Tables that differ from the data."""
    current = MODELS.is_file() and MODELS.read_text(encoding="utf-8") == models_table()
    return [] if current else [f"{MODELS.name} of docs/models is not current: run python docs/tables.py"]


def main() -> int:
    MODELS.write_text(models_table(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
