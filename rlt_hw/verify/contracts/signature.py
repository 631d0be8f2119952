"""Signatures as text: "(q: Tensor, *, causal: bool = False)", from Python source and from torch schemas."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator

_KINDS = inspect.Parameter
_DOCUMENTED = re.compile(
    r"^\s*(?P<name>\w+)(?: \[optional\])?:\s*(?P<what>int\b|float\b|bool\b|\()", re.MULTILINE
)


def parse(text: str) -> inspect.Signature:
    """The signature that a text writes down. Defaults and annotations stay text."""
    return inspect.Signature(list(_parameters(_definition(f"def f{text}: ...").args)))


def of_function(function: ast.FunctionDef, *, method: bool = False) -> str:
    """A Python function's signature; types without an annotation come from its documentation and defaults."""
    documented = _documented_types(function)
    parameters = []
    for parameter in _parameters(function.args):
        kind = parameter.annotation
        if kind is _KINDS.empty:
            kind = _literal_type(parameter.default) or documented.get(parameter.name, _KINDS.empty)
        parameters.append(parameter.replace(annotation=kind))
    return _text(parameters[method:])


def of_schema(schema: str) -> tuple[str, str]:
    """(name, signature) of a torch schema such as "npu_swiglu(Tensor self, int dim=-1) -> Tensor"."""
    import torch

    parsed = torch._C.parse_schema(schema)
    parameters = [
        _KINDS(
            argument.name,
            _KINDS.KEYWORD_ONLY if argument.kwarg_only else _KINDS.POSITIONAL_OR_KEYWORD,
            default=repr(argument.default_value) if argument.has_default_value() else _KINDS.empty,
            annotation=_schema_type(str(argument.type)),
        )
        for argument in parsed.arguments
    ]
    return schema.partition("(")[0].strip(), _text(parameters)


def _text(parameters: list[inspect.Parameter]) -> str:
    parts: list[str] = []
    named = False
    for parameter in parameters:
        if parameter.kind is _KINDS.KEYWORD_ONLY and not named:
            parts.append("*")
        named = named or parameter.kind in (_KINDS.KEYWORD_ONLY, _KINDS.VAR_POSITIONAL)
        stars = "*" * ((parameter.kind is _KINDS.VAR_POSITIONAL) + 2 * (parameter.kind is _KINDS.VAR_KEYWORD))
        kind = "" if parameter.annotation is _KINDS.empty else f": {parameter.annotation}"
        default = "" if parameter.default is _KINDS.empty else f" = {parameter.default}"
        parts.append(f"{stars}{parameter.name}{kind}{default}")
    return f"({', '.join(parts)})"


def _definition(source: str) -> ast.FunctionDef:
    (function,) = ast.parse(source).body
    assert isinstance(function, ast.FunctionDef)
    return function


def _parameters(arguments: ast.arguments) -> Iterator[inspect.Parameter]:
    positional = [*arguments.posonlyargs, *arguments.args]
    without = len(positional) - len(arguments.defaults)
    for at, argument in enumerate(positional):
        default = arguments.defaults[at - without] if at >= without else None
        yield _parameter(argument, _KINDS.POSITIONAL_OR_KEYWORD, default)
    if arguments.vararg:
        yield _parameter(arguments.vararg, _KINDS.VAR_POSITIONAL, None)
    for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        yield _parameter(argument, _KINDS.KEYWORD_ONLY, default)
    if arguments.kwarg:
        yield _parameter(arguments.kwarg, _KINDS.VAR_KEYWORD, None)


def _parameter(argument: ast.arg, kind: object, default: ast.expr | None) -> inspect.Parameter:
    return _KINDS(
        argument.arg,
        kind,  # type: ignore[arg-type]
        default=_KINDS.empty if default is None else ast.unparse(default),
        annotation=_KINDS.empty if argument.annotation is None else _annotation(argument.annotation),
    )


def _annotation(node: ast.expr) -> str:
    """Without the module of a name, and "X | None" for Optional[X]."""
    text = re.sub(r"\b\w+\.(?=[A-Za-z])", "", ast.unparse(node))
    optional = re.fullmatch(r"Optional\[(.*)\]", text)
    return f"{optional[1]} | None" if optional else text


def _literal_type(default: object) -> str | None:
    """The type of a default: "bool" of "False"; None where it says nothing."""
    if not isinstance(default, str) or default == "None":
        return None
    try:
        return type(ast.literal_eval(default)).__name__
    except ValueError:
        return None


def _documented_types(function: ast.FunctionDef) -> dict[str, str]:
    """Parameter -> type, where a line of the documentation begins with its type or its shape."""
    texts = (
        node.value.value
        for node in function.body
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    )
    found = _DOCUMENTED.finditer("\n".join(text for text in texts if isinstance(text, str)))
    return {row["name"]: "Tensor" if row["what"] == "(" else row["what"] for row in found}


def _schema_type(text: str) -> str:
    """In Python's words: "list[int] | None" of "Optional[List[SymInt]]"."""
    optional = re.fullmatch(r"Optional\[(.*)\]", text)
    name = (optional[1] if optional else text).replace("List[", "list[")
    return re.sub(r"\bSymInt\b", "int", name) + (" | None" if optional else "")
