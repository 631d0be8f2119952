"""The calls that our adapters make of vendors' packages, read from the adapters' source.

Nothing is imported or run. What a name stands for follows from imports, assignments and the functions of
the same file; what type an argument has, from annotations of the file and of the adapters' interface.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import cache
from typing import TypeVar

from rlt_hw.backends.attention import interface as attention
from rlt_hw.backends.operators import interface as operators

VENDORS = ("aiter", "flash_attn", "flash_attn_interface", "flashinfer", "torch_npu")
_Literal = TypeVar("_Literal", ast.Tuple, ast.Dict)
_SAME_MODULE = {"torch.ops.npu": "torch_npu", "torch.ops.atb": "torch_npu", "torch.npu": "torch_npu.npu"}
_KEEPS_TENSOR = {"contiguous", "view", "reshape", "to", "flatten", "transpose", "unsqueeze", "long", "int"}
_MAKES_TENSOR = {
    "zeros",
    "ones",
    "empty",
    "full",
    "zeros_like",
    "empty_like",
    "cumsum",
    "arange",
    "from_numpy",
}


@dataclass(frozen=True)
class Argument:
    """keyword: None where it is passed by position. word: the name of what is passed, "" where it has none.
    type: "Tensor", "int", "float", …; "" where the source does not say."""

    keyword: str | None
    word: str
    type: str
    text: str


@dataclass(frozen=True)
class Call:
    """One place. names: what the function may be called in different versions of the package."""

    file: str
    line: int
    names: tuple[str, ...]
    arguments: tuple[Argument, ...]

    def __str__(self) -> str:
        return f"{self.file}:{self.line} {self.names[0]}"


def calls_in(source: str, file: str = "<source>") -> Iterator[Call]:
    """Every vendor call of a module's source, in order."""
    tree = ast.parse(source)
    module = _Scope(tree.body)
    for owner, function in _functions(tree):
        scope = _Scope(function.body, outer=module, function=function, owner=owner)
        for node in ast.walk(function):
            if isinstance(node, ast.Call):
                names = sorted(name for name in scope.names(node.func) if name.startswith(VENDORS))
                if names:
                    yield Call(file, node.lineno, tuple(names), tuple(scope.arguments(node)))


def _functions(tree: ast.Module) -> Iterator[tuple[ast.ClassDef | None, ast.FunctionDef]]:
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            yield None, node
        if isinstance(node, ast.ClassDef):
            yield from ((node, inner) for inner in node.body if isinstance(inner, ast.FunctionDef))


class _Scope:
    """What the names of one function stand for; its outer scope is the module."""

    def __init__(
        self,
        body: list[ast.stmt],
        outer: _Scope | None = None,
        function: ast.FunctionDef | None = None,
        owner: ast.ClassDef | None = None,
    ) -> None:
        self._outer, self._function, self._owner = outer, function, owner
        self._imports: dict[str, set[str]] = {}
        self._assigned: dict[str, ast.expr] = {}
        self._defined: dict[str, ast.FunctionDef] = {}
        for statement in body:
            if outer is None and isinstance(statement, ast.FunctionDef):
                self._defined[statement.name] = statement
            if outer is None and isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
                continue
            for node in ast.walk(statement):
                self._read(node)

    def _read(self, node: ast.AST) -> None:
        if isinstance(node, ast.Import):
            for alias in node.names:
                name = alias.asname or alias.name.partition(".")[0]
                self._imports.setdefault(name, set()).add(alias.name if alias.asname else name)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                place = f"{node.module}.{alias.name}"
                self._imports.setdefault(alias.asname or alias.name, set()).add(place)
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                self._assign(target, node.value)
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            self._assign(node.target, node.value)

    def _assign(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, ast.Name):
            self._assigned[target.id] = value
        elif isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
            for left, right in zip(target.elts, value.elts, strict=False):
                self._assign(left, right)

    def names(self, node: ast.expr) -> set[str]:
        """The dotted names that an expression may stand for; a made object by the name of its class."""
        if isinstance(node, ast.Name):
            return self._named(node.id)
        if isinstance(node, ast.Attribute):
            own = self._own(node)
            if own is not None:
                scope, value = own
                return scope.names(value)
            return {_canonical(f"{base}.{node.attr}") for base in self.names(node.value)}
        if isinstance(node, ast.Call):
            return self._returned(node) or {
                name for name in self.names(node.func) if name.rpartition(".")[2][:1].isupper()
            }
        return set()

    def _named(self, name: str) -> set[str]:
        if name in self._imports:
            return {_canonical(place) for place in self._imports[name]}
        if name in self._assigned:
            return set() if self._recursive(name) else self.names(self._assigned[name])
        return self._outer._named(name) if self._outer else set()

    def _recursive(self, name: str) -> bool:
        """Whether a name is assigned from itself: `x = x.view(…)`."""
        return any(isinstance(node, ast.Name) and node.id == name for node in ast.walk(self._assigned[name]))

    def _returned(self, node: ast.Call) -> set[str]:
        """Of a function of the same file that hands out a vendor's function."""
        if not isinstance(node.func, ast.Name):
            return set()
        module = self._outer or self
        function = module._defined.get(node.func.id)
        if function is None:
            return set()
        inner = _Scope(function.body, outer=module, function=function)
        returns = (row.value for row in ast.walk(function) if isinstance(row, ast.Return) and row.value)
        return {name for value in returns for name in inner.names(value)}

    def _own(self, node: ast.Attribute) -> tuple[_Scope, ast.expr] | None:
        """What the methods of the class assign to `self.NAME`."""
        if self._owner is None or not (isinstance(node.value, ast.Name) and node.value.id == "self"):
            return None
        for method in self._owner.body:
            if isinstance(method, ast.FunctionDef):
                for row in ast.walk(method):
                    if isinstance(row, ast.Assign) and any(
                        _is_self(target, node.attr) for target in row.targets
                    ):
                        return _Scope(method.body, self._outer, method, self._owner), row.value
        return None

    def arguments(self, call: ast.Call) -> Iterator[Argument]:
        for node in call.args:
            for value in self._spread(node):
                yield self._argument(None, value)
        for keyword in call.keywords:
            if keyword.arg is not None:
                yield self._argument(keyword.arg, keyword.value)
                continue
            table = self._literal(keyword.value, ast.Dict)
            for key, value in zip(table.keys, table.values, strict=True):
                assert isinstance(key, ast.Constant)
                yield self._argument(str(key.value), value)

    def _spread(self, node: ast.expr) -> list[ast.expr]:
        if not isinstance(node, ast.Starred):
            return [node]
        return self._literal(node.value, ast.Tuple).elts

    def _literal(self, node: ast.expr, kind: type[_Literal]) -> _Literal:
        """The tuple or dictionary that a starred name was assigned. Raises ValueError for anything else."""
        value = self._assigned.get(node.id) if isinstance(node, ast.Name) else node
        if not isinstance(value, kind):
            raise ValueError(f"line {node.lineno}: *{ast.unparse(node)} is no literal of this function")
        return value

    def _argument(self, keyword: str | None, node: ast.expr) -> Argument:
        return Argument(keyword, self.word(node), self.type(node), ast.unparse(node))

    def word(self, node: ast.expr) -> str:
        """The last name of what is passed, through views, slices and copies of it."""
        if isinstance(node, ast.Name):
            return node.id
        if isinstance(node, ast.Attribute):
            return node.attr.lstrip("_")
        if isinstance(node, ast.Subscript):
            return self.word(node.value)
        if isinstance(node, ast.Tuple):
            return ", ".join(self.word(part) for part in node.elts)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr in _KEEPS_TENSOR:
                return self.word(node.func.value)
            if node.func.attr.endswith("_like"):
                return self.word(node.args[0])
        return ""

    def type(self, node: ast.expr) -> str:  # noqa: PLR0911 - one line a form of expression
        if isinstance(node, ast.Constant):
            return type(node.value).__name__
        if isinstance(node, ast.Tuple):
            return "tuple"
        if isinstance(node, (ast.List, ast.ListComp)):
            return "list"
        if isinstance(node, ast.Compare):
            return "bool"
        if isinstance(node, ast.Subscript):
            return "Tensor" if self.type(node.value) == "Tensor" else ""
        if isinstance(node, ast.UnaryOp):
            return self.type(node.operand)
        if isinstance(node, ast.BinOp):
            sides = {self.type(node.left), self.type(node.right)}
            return "Tensor" if "Tensor" in sides else sides.pop() if len(sides) == 1 else ""
        if isinstance(node, ast.Call):
            return self._called_type(node)
        if isinstance(node, ast.Attribute):
            own = self._own(node)
            if own is not None:
                scope, value = own
                return scope.type(value)
            return _fields().get(self.type(node.value), {}).get(node.attr, "")
        return self._name_type(node.id) if isinstance(node, ast.Name) else ""

    def _called_type(self, node: ast.Call) -> str:
        if isinstance(node.func, ast.Name):
            known = {"int", "float", "bool", "list", "tuple", "str"}
            return {"len": "int"}.get(node.func.id, node.func.id if node.func.id in known else "")
        if isinstance(node.func, ast.Attribute):
            if node.func.attr == "tolist":
                return "list"
            if node.func.attr in _MAKES_TENSOR:
                return "Tensor"
            if node.func.attr in _KEEPS_TENSOR:
                return self.type(node.func.value)
        return ""

    def _name_type(self, name: str) -> str:
        if name in self._assigned and not self._recursive(name):
            return self.type(self._assigned[name])
        arguments = self._function.args if self._function else None
        for argument in (*arguments.args, *arguments.kwonlyargs) if arguments else ():
            if argument.arg == name and argument.annotation:
                return ast.unparse(argument.annotation).partition("[")[0].rpartition(".")[2]
        return self._outer._name_type(name) if self._outer else ""


def _is_self(target: ast.expr, attribute: str) -> bool:
    if isinstance(target, ast.Tuple):
        return False
    return (
        isinstance(target, ast.Attribute)
        and target.attr == attribute
        and isinstance(target.value, ast.Name)
        and target.value.id == "self"
    )


def _canonical(name: str) -> str:
    for module, same in _SAME_MODULE.items():
        if name == module or name.startswith(f"{module}."):
            return same + name.removeprefix(module)
    return name


@cache
def _fields() -> dict[str, dict[str, str]]:
    """Class of the adapters' interface -> field -> type."""
    found: dict[str, dict[str, str]] = {}
    for module in (attention, operators):
        for name, kind in vars(module).items():
            if isinstance(kind, type) and hasattr(kind, "__dataclass_fields__"):
                found[name] = {row.name: str(row.type).rpartition(".")[2] for row in fields(kind)}
    return found
