"""From a decision to classes that run. What does not import is rejected, and selection runs again.

Only at start: afterwards nothing falls back.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from rlt_hw.devices.environment import Environment
from rlt_hw.devices.target import Target
from rlt_hw.errors import RltHwError
from rlt_hw.reasons import Code, Rejection
from rlt_hw.registry import IN_TREE, BackendSpec, JointDecision, Need, Registry, resolve

BROKEN_BINARY = (ImportError, OSError, RuntimeError)
"""What vendors' packages raise when a library is missing or was built for something else."""


@dataclass(frozen=True)
class Adapters:
    """The adapter classes of a joint decision."""

    prefill: type[Any]
    decode: type[Any]
    kv: type[Any]
    operators: type[Any]
    graph: type[Any]
    communication: type[Any]


def load_adapters(
    target: Target, need: Need, environment: Environment, registry: Registry
) -> tuple[JointDecision, Adapters]:
    """Resolve, import, and where something does not import resolve again without it.

    Raises UnsupportedError where nothing is left or the user named what does not import.
    """
    while True:
        decision = resolve(target, need, environment, registry)
        classes: list[type[Any]] = []
        broken: dict[str, Rejection] = {}
        for part in decision.parts:
            assert part.chosen is not None
            adapter = load_adapter(part.chosen)
            if isinstance(adapter, Rejection):
                broken[part.chosen.name] = adapter
            else:
                classes.append(adapter)
        if not broken:
            return decision, Adapters(*classes)
        registry = _without(registry, broken)


def load_adapter(spec: BackendSpec) -> type[Any] | Rejection:
    """Import a backend's packages and its adapter class, and ask the class, where it has a `refusal`, whether
    the installed package is one that it can call.

    A fault of a package is a PKG_BROKEN rejection, any fault of a plugin a PLUGIN rejection;
    every other exception is a fault of this project and surfaces.
    """
    module, _, name = spec.adapter.partition(":")
    try:
        for requirement in spec.requirements:
            importlib.import_module(requirement.module)
        adapter: type[Any] = getattr(importlib.import_module(module), name)
        refused: Rejection | None = adapter.refusal() if hasattr(adapter, "refusal") else None
    except BROKEN_BINARY as error:
        return _rejection(Code.PKG_BROKEN, spec, error)
    except RltHwError:
        raise
    except Exception as error:
        if spec.source == IN_TREE:
            raise
        return _rejection(Code.PLUGIN, spec, error)
    return refused or adapter


def _rejection(code: Code, spec: BackendSpec, error: Exception) -> Rejection:
    packages = ", ".join(str(requirement) for requirement in spec.requirements) or spec.source
    return Rejection(
        code,
        spec.name,
        f"{type(error).__name__}: {error}",
        f"{packages}, importable",
        f"Reinstall {packages} for this torch and driver, or choose another backend.",
    )


def _without(registry: Registry, broken: Mapping[str, Rejection]) -> Registry:
    """The registry with these backends rejected whatever is asked."""

    def mark(spec: BackendSpec) -> BackendSpec:
        if spec.name not in broken:
            return spec
        return replace(spec, predicate=lambda *_: broken[spec.name])

    return replace(registry, specs=tuple(mark(spec) for spec in registry.specs))
