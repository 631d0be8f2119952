"""Prints every checked call; `--records DIR` writes the evidence of level 1."""

from __future__ import annotations

import argparse
import json
import sys
from datetime import date
from pathlib import Path

from rlt_hw.backends.catalog import in_tree
from rlt_hw.verify.contracts.check import Checked, check


def write_records(rows: list[Checked], folder: Path, commit: str) -> None:
    """One record for each target that a backend whose calls all fit declares."""
    faulty = {row.backend for row in rows if row.faults}
    versions: dict[str, list[str]] = {}
    for row in rows:
        known = versions.setdefault(row.backend, [])
        if str(row.version) not in known:
            known.append(str(row.version))
    specs = [spec for spec in in_tree() if spec.name in versions and spec.name not in faulty]
    for target in sorted({target for spec in specs for target in spec.targets}):
        names = [spec.name for spec in specs if target in spec.targets]
        record = {
            "level": 1,
            "target": target,
            "backends": names,
            "date": date.today().isoformat(),
            "commit": commit,
            "rows": [{"backend": name, "published": versions[name]} for name in names],
        }
        path = folder / f"contract-{target.replace(':', '-')}.json"
        path.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m rlt_hw.verify.contracts", description=__doc__)
    parser.add_argument("--records", type=Path, help="write an evidence record for each target")
    parser.add_argument("--commit", default="", help="what the records say was checked")
    chosen = parser.parse_args()
    rows = list(check())
    for row in rows:
        print(f"{row.backend:16} {row.version!s:34} {row.call}  {'; '.join(row.faults) or 'fits'}")
    if chosen.records:
        write_records(rows, chosen.records, chosen.commit)
    return 1 if any(row.faults for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
