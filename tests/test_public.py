"""The public surface: few names, loaded lazily, and imports that stay light."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import rlt_hw

ROOT = Path(rlt_hw.__file__).parent
HEAVY = {"torch", "numpy", "pydantic", "rich", "jinja2", "tokenizers", "safetensors"}
LIGHT = ["rlt_hw", "rlt_hw.errors", "rlt_hw.reasons", "rlt_hw.models.spec", "rlt_hw.models.config"]
LIGHT += ["rlt_hw.models.families", "rlt_hw.models.shards", "rlt_hw.runtime.loop_limits"]
PLANNED_LIGHT = ["rlt_hw.registry", "rlt_hw.cli", "rlt_hw.runtime.planning", "rlt_hw.runtime.memory"]


def modules(*folders):
    """Module names of the packages' files, without kernels and their launchers."""
    paths = [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]
    names = [".".join(path.relative_to(ROOT.parent).with_suffix("").parts) for path in paths]
    return [name.removesuffix(".__init__") for name in names if ".kernels" not in name]


def exists(module):
    path = ROOT.parent.joinpath(*module.split("."))
    return path.with_suffix(".py").is_file() or (path / "__init__.py").is_file()


def test_the_surface_is_small_and_sorted():
    assert len(rlt_hw.__all__) <= 25
    assert rlt_hw.__all__ == sorted(rlt_hw.__all__)
    assert dir(rlt_hw) == rlt_hw.__all__


@pytest.mark.parametrize("name", rlt_hw.__all__)
def test_every_public_name_loads(name):
    assert getattr(rlt_hw, name) is not None


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'Motor'"):
        _ = rlt_hw.Motor


def test_light_modules_import_nothing_heavy():
    """One process imports them all and blames the first module that pulls something in."""
    names = LIGHT + [name for name in PLANNED_LIGHT if exists(name)] + modules("devices", "registry")
    code = f"""
import importlib, sys
for name in {names!r}:
    importlib.import_module(name)
    found = {HEAVY!r} & set(sys.modules)
    assert not found, f"{{name}} imports {{sorted(found)}}"
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr.splitlines()[-1]


def test_the_package_is_typed():
    assert (ROOT / "py.typed").is_file()
