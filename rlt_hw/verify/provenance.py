"""Which commit was run. A record names one, or there is no record."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

import rlt_hw
from rlt_hw.errors import ConfigError

PACKAGE = Path(rlt_hw.__file__).parent
IN_TREE = "the git tree that ran, clean"
GIVEN = "given by whoever ran it: no git tree was there to ask"


@dataclass(frozen=True)
class Provenance:
    """commit: 40 hex digits, or what was given. source: how it is known."""

    commit: str
    source: str


def provenance(given: str | None, *, apart_from: Path | None = None, package: Path = PACKAGE) -> Provenance:
    """The commit of the package's git tree, or `given` where the package lies in none, as after an install.

    apart_from: a folder whose changes do not count, because records go there. Raises ConfigError for a tree
    with changes, for a commit that is not the tree's, and where none can be known.
    """
    head = _git(package, "rev-parse", "HEAD") if _tracked(package) else None
    if head is None:
        if not given or not re.fullmatch(r"[0-9a-f]{7,40}", given):
            raise ConfigError(
                "--commit",
                found=repr(given) if given else "nothing, and the package lies in no git tree",
                allowed="the commit that was installed, 7 to 40 hex digits",
                remedy="Pass --commit, or run without --record.",
            )
        return Provenance(given, GIVEN)
    if given and not head.startswith(given):
        raise ConfigError("--commit", found=given, allowed=f"the commit of the tree that runs, {head}")
    changes = _changes(package, apart_from)
    if changes:
        raise ConfigError(
            "git tree",
            found=f"{len(changes)} changed or new files, {changes[0]} the first",
            allowed="a clean tree, so that the record names what ran",
            remedy="Commit first, or run without --record.",
        )
    return Provenance(head, IN_TREE)


def _tracked(package: Path) -> bool:
    """Whether the package's own files are in a tree: an installed copy may lie inside somebody else's."""
    return bool(_git(package, "ls-files", "--", "__init__.py"))


def _changes(package: Path, apart_from: Path | None) -> list[str]:
    root = Path(_git(package, "rev-parse", "--show-toplevel") or package)
    lines = (_git(root, "status", "--porcelain", "--untracked-files=all") or "").splitlines()
    paths = [line.strip().partition(" ")[2].strip() for line in lines]
    if apart_from is None:
        return paths
    return [path for path in paths if not (root / path).resolve().is_relative_to(apart_from.resolve())]


def _git(folder: Path, *words: str) -> str | None:
    """What git prints; None where it fails or is not installed."""
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *words], capture_output=True, text=True, timeout=30, check=False
        )
    except OSError:
        return None
    return done.stdout.rstrip() if done.returncode == 0 else None
