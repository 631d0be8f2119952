"""The contract as a case: a declaration that selection can read, a class that takes what it will be given."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from rlt_hw.backends.attention.interface import Attention, DecodeAttention
from rlt_hw.backends.contract import breach
from rlt_hw.backends.operators.interface import Operators
from rlt_hw.registry import IN_TREE, BackendSpec, Kind, Need
from rlt_hw.verify.conformance.subject import PLAIN, Subject
from rlt_hw.verify.contracts.check import calls_of, check_call

HEAD_DIMS = (128, 64, 96)


@dataclass(frozen=True)
class ContractCase:
    """spec: whose it is. In this repository's backends the calls of vendors' packages are looked at too."""

    spec: BackendSpec
    name: str = "contract"
    captured: bool = False

    @property
    def settings(self) -> dict[str, int]:
        return {}

    @property
    def tolerances(self) -> Mapping[str, float]:
        return dict.fromkeys(PLAIN, 0.0)

    def need(self, backend: str, dtype: str) -> Need:
        """One that the backend serves as far as its own limits go."""
        head_dim = next((size for size in HEAD_DIMS if size in self.spec.head_dims), HEAD_DIMS[0])
        need = Need(8, 8, head_dim, dtype=dtype, phases=self.spec.phases)
        if self.spec.kind is Kind.OPERATORS:
            return replace(need, operators=backend)
        return replace(need, attention=backend)

    def check(self, subject: Subject) -> float:
        """0. Raises TypeError with everything that is wrong."""
        faults = [*self._declaration(), *self._methods(subject.adapter), *self._calls()]
        if faults:
            raise TypeError("; ".join(faults))
        return 0.0

    def _declaration(self) -> Iterator[str]:
        broken = breach(self.spec, ())
        if broken:
            yield f"{broken[0]}, not {broken[1]}"

    def _methods(self, adapter: type[Any]) -> Iterator[str]:
        """Each method of the kind takes what it will be given."""
        for name, asked in self._protocol():
            method = getattr(adapter, name, None)
            if not callable(method):
                yield f"no method {name}"
                continue
            given = [row for row in asked.parameters.values() if row.kind is not row.KEYWORD_ONLY]
            named = {row.name: None for row in asked.parameters.values() if row.kind is row.KEYWORD_ONLY}
            try:
                inspect.signature(method).bind(*given, **named)
            except TypeError as error:
                yield f"{name}{asked}: {error}"

    def _protocol(self) -> Iterator[tuple[str, inspect.Signature]]:
        kinds: tuple[Any, ...] = (Operators,) if self.spec.kind is Kind.OPERATORS else (Attention,)
        if self.spec.kind is Kind.ATTENTION and "full" in self.spec.graph_levels:
            kinds += (DecodeAttention,)
        for kind in kinds:
            for name, method in vars(kind).items():
                if inspect.isfunction(method) and not name.startswith("_"):
                    yield name, inspect.signature(method)

    def _calls(self) -> Iterator[str]:
        """Against the signatures that were published."""
        if self.spec.source == IN_TREE:
            for call in calls_of(self.spec):
                for found in check_call(self.spec, call):
                    yield from (f"{found.version}: {call}: {fault}" for fault in found.faults)
