"""Every call of every adapter against every published version that the adapter accepts."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rlt_hw import backends
from rlt_hw.backends.catalog import in_tree
from rlt_hw.registry import BackendSpec
from rlt_hw.verify.contracts.calls import Argument, Call, calls_in
from rlt_hw.verify.contracts.published import Published, published
from rlt_hw.verify.contracts.words import UNTYPED, WORDS

ROOT = Path(backends.__file__).parent
_EMPTY = inspect.Parameter.empty
_BY_POSITION = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


@dataclass(frozen=True)
class Checked:
    """One call against one version. faults: what the version would not take; empty where it fits."""

    backend: str
    call: Call
    version: Published
    faults: tuple[str, ...]


def check() -> Iterator[Checked]:
    """All backends with vendor calls."""
    for spec in in_tree():
        for call in calls_of(spec):
            yield from check_call(spec, call)


def calls_of(spec: BackendSpec) -> list[Call]:
    """The calls of a backend's file and of the files beside it that it imports."""
    module = spec.adapter.partition(":")[0].removeprefix("rlt_hw.backends.")
    if module == spec.adapter.partition(":")[0]:
        return []  # a vendor's own class, which is never called
    path = ROOT / f"{module.replace('.', '/')}.py"
    source = path.read_text(encoding="utf-8")
    beside = re.findall(rf"from rlt_hw\.backends\.{path.parent.name}\.(\w+) import", source)
    files = [path, *(path.with_name(f"{name}.py") for name in dict.fromkeys(beside))]
    return [
        call
        for file in files
        for call in calls_in(file.read_text(encoding="utf-8"), file.relative_to(ROOT.parent).as_posix())
    ]


def check_call(spec: BackendSpec, call: Call) -> Iterator[Checked]:
    """Against each published version of the package; a function that no version has is a fault of its own."""
    root = call.names[0].partition(".")[0]
    versions = [row for row in published() if any(name.partition(".")[0] == root for name in row.calls)]
    wanted = {requirement.distribution for requirement in spec.requirements}
    versions = [row for row in versions if row.distribution in wanted] or versions
    for version in versions:
        names = [name for name in call.names if name in version.calls]
        if names:
            found = tuple(faults(call.arguments, version.calls[names[0]]))
        else:
            found = (f"{version} publishes no {' or '.join(call.names)}",)
        yield Checked(spec.name, call, version, found)


def faults(arguments: tuple[Argument, ...], signature: inspect.Signature) -> Iterator[str]:
    """What is wrong with the arguments: their number, their names, their order, their types."""
    positional = [argument for argument in arguments if argument.keyword is None]
    named = {argument.keyword: argument for argument in arguments if argument.keyword is not None}
    try:
        signature.bind(*positional, **named)
    except TypeError as error:
        yield str(error)
        return
    order = [row for row in signature.parameters.values() if row.kind in _BY_POSITION]
    for argument, parameter in zip(positional, order, strict=False):
        yield from _position(argument, parameter)
        yield from _word(argument, parameter)
        yield from _type(argument, parameter)
    for name, argument in named.items():
        if name in signature.parameters:
            yield from _word(argument, signature.parameters[name])
            yield from _type(argument, signature.parameters[name])


def _position(argument: Argument, parameter: inspect.Parameter) -> Iterator[str]:
    literal = argument.type in ("str", "int", "float", "bool", "NoneType") and not argument.word
    if argument.word not in WORDS and not literal:
        yield f"{argument.text!r} goes by position to {parameter.name}: pass it by name, or add its word"


def _word(argument: Argument, parameter: inspect.Parameter) -> Iterator[str]:
    allowed = WORDS.get(argument.word)
    if allowed is not None and parameter.name not in allowed:
        yield f"{argument.text!r} goes to {parameter.name}; allowed: {', '.join(allowed)}"


def _type(argument: Argument, parameter: inspect.Parameter) -> Iterator[str]:
    stated = UNTYPED.get(parameter.name, "") if parameter.annotation is _EMPTY else str(parameter.annotation)
    if not stated or not argument.type:
        return
    accepted = set(re.findall(r"\w+", stated.lower()))
    if parameter.default == "None" or "none" in accepted:
        accepted.add("nonetype")
    if "float" in accepted:
        accepted.add("int")
    known = accepted & {"tensor", "int", "float", "bool", "str", "tuple", "list", "dtype", "object"}
    if known and argument.type.lower() not in accepted:
        yield f"{argument.text!r} is of type {argument.type}; {parameter.name} takes {stated}"
