"""A record names the commit that ran, or there is none."""

from __future__ import annotations

import subprocess

import pytest

from rlt_hw.errors import ConfigError
from rlt_hw.verify.provenance import GIVEN, IN_TREE, provenance


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package in a clean git tree of one commit."""
    for name in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"):
        monkeypatch.delenv(name, raising=False)
    folder = tmp_path / "tree" / "package"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("")
    git(folder.parent, "init", "--quiet")
    git(folder, "add", ".")
    git(folder, "-c", "user.name=a", "-c", "user.email=a@b.c", "commit", "--quiet", "-m", "one")
    return folder


def git(folder, *words):
    done = subprocess.run(["git", "-C", str(folder), *words], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_a_clean_tree_names_its_commit(package):
    head = git(package, "rev-parse", "HEAD")
    for given in (None, head, head[:10]):
        found = provenance(given, package=package)
        assert (found.commit, found.source) == (head, IN_TREE)


@pytest.mark.parametrize("file", ["__init__.py", "new.py", "../beside.txt"])
def test_a_tree_with_changes_is_refused(package, file):
    (package / file).write_text("x = 1\n")
    with pytest.raises(ConfigError, match="1 changed or new files"):
        provenance(None, package=package)


def test_records_may_lie_in_the_tree(package):
    records = package / "records"
    records.mkdir()
    (records / "one.json").write_text("{}")
    assert provenance(None, apart_from=records, package=package).source == IN_TREE
    (package / "__init__.py").write_text("x = 1\n")
    with pytest.raises(ConfigError, match="__init__.py"):
        provenance(None, apart_from=records, package=package)


def test_another_commit_than_the_trees_is_refused(package):
    with pytest.raises(ConfigError, match="the commit of the tree"):
        provenance("0123456789", package=package)


def test_an_installed_copy_is_not_part_of_the_tree_around_it(package):
    installed = package / "site"
    installed.mkdir()
    (installed / "__init__.py").write_text("")
    with pytest.raises(ConfigError, match="no git tree"):
        provenance(None, package=installed)
    found = provenance("0123456789", package=installed)
    assert (found.commit, found.source) == ("0123456789", GIVEN)


@pytest.mark.parametrize("given", [None, "", "main", "12345"])
def test_without_a_tree_a_commit_must_be_given(tmp_path, given):
    with pytest.raises(ConfigError, match="--commit"):
        provenance(given, package=tmp_path)
