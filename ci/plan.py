"""Expands `targets.json` into the lanes of `.github/workflows/hardware.yml`, and says what became of each.

    python3 ci/plan.py matrix            a line FAMILY=JSON for each family: the lanes that can run
    python3 ci/plan.py summary FOLDER    a table of every lane; FOLDER has the artifacts of those that ran

HARDWARE_TARGETS names the targets that have a runner, FORK is "true" for a pull request from a fork, which
never gets a self-hosted one. Needs nothing but Python.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

TARGETS = Path(__file__).with_name("targets.json")
SELF_HOSTED = "self-hosted"
OUTCOME = "outcome"
"""The file in a lane's artifact that has the state of its job."""

Lane = dict[str, Any]


def lanes() -> list[Lane]:
    """Every lane with what its family says of all of them. "lane" is its name, unique and fit for a file."""
    families = json.loads(TARGETS.read_text(encoding="utf-8"))["families"]
    found = []
    for family, shared in families.items():
        common = {key: value for key, value in shared.items() if key != "lanes"}
        for row in shared["lanes"]:
            name = row["target"].replace(":", "-")
            found.append({"lane": name, "family": family, **common, **row})
    return found


def not_run(lane: Lane, runners: frozenset[str], *, fork: bool) -> str | None:
    """Why a lane cannot run; None if it can. runners: targets that have a self-hosted runner."""
    if SELF_HOSTED not in lane["runner"]:
        return None
    if fork:
        return "pull requests from forks get no self-hosted runner"
    return None if lane["target"] in runners else f"no runner with the labels {', '.join(lane['runner'])}"


def matrices(runners: frozenset[str], *, fork: bool) -> dict[str, list[Lane]]:
    """family -> its lanes that can run."""
    found: dict[str, list[Lane]] = {lane["family"]: [] for lane in lanes()}
    for lane in lanes():
        if not_run(lane, runners, fork=fork) is None:
            found[lane["family"]].append(lane)
    return found


def summary(outcomes: Mapping[str, str], runners: frozenset[str], *, fork: bool) -> str:
    """Markdown. outcomes: lane -> state of its job. A lane that should have run and left none has failed."""
    rows = ["| lane | target | state |", "| --- | --- | --- |"]
    for lane in lanes():
        reason = not_run(lane, runners, fork=fork)
        state = f"**not run**: {reason}" if reason else outcomes.get(lane["lane"], "**failure**: no outcome")
        rows.append(f"| {lane['lane']} | `{lane['target']}` | {state} |")
    return "\n".join(rows)


def runners_named(text: str) -> frozenset[str]:
    """Targets of a list such as "nvidia:sm90, amd:gfx942". Raises SystemExit for one without a lane."""
    named = frozenset(text.replace(",", " ").split())
    known = {lane["target"] for lane in lanes() if SELF_HOSTED in lane["runner"]}
    if not named <= known:
        unknown, allowed = ", ".join(sorted(named - known)), ", ".join(sorted(known))
        raise SystemExit(f"HARDWARE_TARGETS: found {unknown}; allowed {allowed}")
    return named


def outcomes_in(folder: Path) -> dict[str, str]:
    """lane -> state, from FOLDER/LANE/outcome."""
    return {
        path.parent.name: path.read_text(encoding="utf-8").strip() for path in folder.glob(f"*/{OUTCOME}")
    }


def main(words: list[str]) -> None:
    runners = runners_named(os.environ.get("HARDWARE_TARGETS", ""))
    fork = os.environ.get("FORK") == "true"
    match words:
        case ["matrix"]:
            for family, rows in matrices(runners, fork=fork).items():
                print(f"{family}={json.dumps(rows)}")
        case ["summary", folder]:
            print(summary(outcomes_in(Path(folder)), runners, fork=fork))
        case _:
            raise SystemExit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
