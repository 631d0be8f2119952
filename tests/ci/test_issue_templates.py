"""Issue templates ask for the redacted probe, with commands that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rlt_hw.cli import COMMANDS, main

yaml = pytest.importorskip("yaml")

FOLDER = Path(__file__).parent.parent.parent / ".github" / "ISSUE_TEMPLATE"
FORMS = {path.stem: yaml.safe_load(path.read_text(encoding="utf-8")) for path in FOLDER.glob("*.yml")}


def test_no_issue_comes_without_a_form():
    assert FORMS["config"] == {"blank_issues_enabled": False}
    assert len(FORMS) > 1


@pytest.mark.parametrize("name", sorted(set(FORMS) - {"config"}))
def test_a_form_requires_the_redacted_probe(name):
    assert {"name", "description", "body"} <= set(FORMS[name])
    rows = FORMS[name]["body"]
    assert len({row["id"] for row in rows}) == len(rows)
    (probe,) = (row for row in rows if row["attributes"]["label"] == "rlt-hw probe --json --redact")
    assert probe["validations"] == {"required": True}


def test_the_commands_that_forms_name_exist(capsys):
    lines = re.findall(
        r"rlt-hw (\w+)((?: --[\w-]+)*)", "\n".join(path.read_text() for path in FOLDER.iterdir())
    )
    assert {command for command, _ in lines} == {"probe", "doctor", "verify"}
    for command, options in lines:
        assert command in COMMANDS
        assert main([command, "--help"]) == 0
        said = capsys.readouterr().out
        assert all(option in said for option in options.split())
