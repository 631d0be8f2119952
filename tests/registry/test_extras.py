"""The extras of the distribution bring what the specs require."""

from pathlib import Path

import pytest
from packaging.requirements import Requirement

from rlt_hw.backends.catalog import load_registry

tomllib = pytest.importorskip("tomllib", reason="Python 3.11 reads TOML by itself")

PROJECT = Path(__file__).parent.parent.parent / "pyproject.toml"
EXTRAS = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]["optional-dependencies"]


def test_the_nvidia_extra_excludes_the_versions_that_a_spec_excludes():
    named = {row.name: str(row.specifier) for row in map(Requirement, EXTRAS["nvidia"])}
    needed = {
        row.distribution: row.specifier for spec in load_registry(()).specs for row in spec.requirements
    }
    assert {"triton", "flashinfer-python"} <= set(named) & set(needed)
    assert {name: needed[name] for name in set(named) & set(needed)}.items() <= named.items()
