"""Checks the documentation: every relative link leads somewhere, every reason code has its page,
and every table that follows from data is current."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from tables import stale

from rlt_hw.reasons import Code

ROOT = Path(__file__).resolve().parent.parent
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)#\s]+)(?:#[^)\s]*)?\)")
FENCE = re.compile(r"```.*?```|`[^`\n]*`", re.DOTALL)


def broken_links(page: Path) -> list[str]:
    """Relative links of a page whose file does not exist."""
    links = LINK.findall(FENCE.sub("", page.read_text(encoding="utf-8")))
    local = [link for link in links if "://" not in link and not link.startswith("mailto:")]
    return [
        f"{page.relative_to(ROOT)}: no file {link}" for link in local if not (page.parent / link).exists()
    ]


def missing_reasons() -> list[str]:
    """Reason codes without a page."""
    pages = ROOT / "docs" / "reasons"
    return [f"docs/reasons/{code}.md is missing" for code in Code if not (pages / f"{code}.md").is_file()]


def main() -> int:
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("rlt_hw/**/*.md")]
    faults = [fault for page in sorted(pages) for fault in broken_links(page)] + missing_reasons() + stale()
    print("\n".join(faults) if faults else f"{len(pages)} pages, all links and reason pages are there")
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main())
