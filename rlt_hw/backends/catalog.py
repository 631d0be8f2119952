"""Every backend there is: the files of this package, and entry points of other packages.

A plugin is an entry point of the group `rlt_hw.backends` that names a `BackendSpec`, or a module that
has one as `SPEC`. Importing it may fail in any way; that becomes a row, and harms nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

from rlt_hw.backends.contract import breach
from rlt_hw.backends.evidence import RECORDS, levels
from rlt_hw.reasons import Code, Rejection
from rlt_hw.registry import BackendSpec, BrokenPlugin, Registry

GROUP = "rlt_hw.backends"
FOLDERS = ("attention", "kv", "operators", "graphs", "communication")


def load_registry(points: Iterable[EntryPoint] | None = None, records: Path = RECORDS) -> Registry:
    """The registry of this installation. `points` replaces the installed entry points."""
    specs = {spec.name: spec for spec in in_tree()}
    broken: list[BrokenPlugin] = []
    for point in entry_points(group=GROUP) if points is None else points:
        plugin = _read(point, taken=specs)
        if isinstance(plugin, BackendSpec):
            specs[plugin.name] = plugin
        else:
            broken.append(plugin)
    return Registry(tuple(specs.values()), tuple(broken), levels(records))


def in_tree() -> Iterator[BackendSpec]:
    """The spec of every backend file, by folder and name. Such a file imports no torch."""
    for folder in FOLDERS:
        for path in sorted((Path(__file__).parent / folder).glob("*.py")):
            if path.stem != "__init__":
                spec = getattr(import_module(f"rlt_hw.backends.{folder}.{path.stem}"), "SPEC", None)
                if spec is not None:
                    yield spec


def _read(point: EntryPoint, taken: Iterable[str]) -> BackendSpec | BrokenPlugin:
    source = f"{point.dist.name} {point.dist.version}" if point.dist else point.value
    try:
        loaded = point.load()
        spec: Any = getattr(loaded, "SPEC", loaded)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 - a plugin may raise anything, SystemExit included
        return _broken(point, source, f"{type(error).__name__} on import: {error}", "a module that imports")
    broken = breach(spec, taken)
    return _broken(point, source, *broken) if broken else replace(spec, source=source)


def _broken(point: EntryPoint, source: str, found: str, allowed: str) -> BrokenPlugin:
    package = point.dist.name if point.dist else point.value
    remedy = f"`pip install --upgrade {package}`, or `pip uninstall {package}`"
    return BrokenPlugin(
        point.name, source, Rejection(Code.PLUGIN, f"{point.name} ({source})", found, allowed, remedy)
    )
