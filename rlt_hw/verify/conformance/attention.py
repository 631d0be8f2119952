"""The attention cases: shapes, rows and what is looked at. A backend does not have to serve them all."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from rlt_hw.registry import AUTO, PHASES, Need
from rlt_hw.verify.conformance import checks
from rlt_hw.verify.conformance.batches import MIXED
from rlt_hw.verify.conformance.subject import PLAIN, ROTATED, Subject

DECODE, PREFILL = ("decode",), ("prefill",)
PAGES = (1, 16, 64)
LONG = 8192


@dataclass(frozen=True)
class Shape:
    """Query heads, KV heads, head size. A shape of each published family is among `SHAPES`."""

    heads: int
    kv_heads: int
    head_dim: int


SHAPES = (
    Shape(4, 4, 64),
    Shape(8, 2, 64),
    Shape(55, 55, 96),
    Shape(6, 1, 96),
    Shape(16, 16, 128),
    Shape(48, 8, 128),
)
GROUPED, ODD = Shape(8, 2, 128), Shape(4, 4, 96)
"""For what is about rows and pages: one shape that every kernel likes, and Huginn's head size."""


@dataclass(frozen=True)
class AttentionCase:
    """rows: (new tokens, context with them), single-token rows first.

    check: runs an adapter on the case and gives the largest error. step: a decode step, eager or captured by
    the target's graph backend, where the rows' lengths are what they have at first.
    """

    name: str
    shape: Shape
    page_size: int
    rows: tuple[tuple[int, int], ...]
    check: Callable[[Subject], float] = checks.numbers
    phases: tuple[str, ...] = PHASES
    step: Literal["eager", "captured"] | None = None
    batch_invariant: bool = False

    @property
    def captured(self) -> bool:
        return self.step == "captured"

    @property
    def tolerances(self) -> Mapping[str, float]:
        return dict.fromkeys(PLAIN, 0.0) if self.batch_invariant else ROTATED if self.step else PLAIN

    @property
    def settings(self) -> dict[str, int]:
        return {
            "heads": self.shape.heads,
            "kv_heads": self.shape.kv_heads,
            "head_dim": self.shape.head_dim,
            "page_size": self.page_size,
            "rows": len(self.rows),
            "context": max((context for _, context in self.rows), default=0),
        }

    def need(self, backend: str, dtype: str) -> Need:
        return Need(
            num_heads=self.shape.heads,
            num_kv_heads=self.shape.kv_heads,
            head_dim=self.shape.head_dim,
            dtype=dtype,
            page_size=self.page_size,
            graph="full" if self.step else AUTO,
            batch_invariant=self.batch_invariant,
            attention=backend,
            phases=self.phases,
        )


@dataclass(frozen=True)
class Plan:
    """What the cases depend on: the page size a backend prefers and the longest context."""

    page: int
    long: int = LONG
    pages: tuple[int, ...] = PAGES


def attention_cases(plan: Plan) -> Iterator[AttentionCase]:
    yield from _shapes(plan.page)
    for page in plan.pages:
        if page != plan.page:
            yield AttentionCase("decode, page edges", GROUPED, page, _singles(page), phases=DECODE)
            yield AttentionCase("prefill, page edges", GROUPED, page, _chunks(page), phases=PREFILL)
    for shape in (GROUPED, ODD):
        yield from _rows(shape, plan)
        yield from _steps(shape, plan.page)


def _shapes(page: int) -> Iterator[AttentionCase]:
    """Every shape, on the edges of pages."""
    for shape in SHAPES:
        yield AttentionCase("decode, page edges", shape, page, _singles(page), phases=DECODE)
        yield AttentionCase("prefill, page edges", shape, page, _chunks(page), phases=PREFILL)


def _rows(shape: Shape, plan: Plan) -> Iterator[AttentionCase]:
    """What batches consist of."""
    page, long = plan.page, plan.long
    yield AttentionCase("decode and prefill at mixed depths", shape, page, MIXED)
    yield AttentionCase("an empty batch", shape, page, ())
    many = tuple((1, 1 + 37 * row % 300) for row in range(64))
    yield AttentionCase("decode, many rows", shape, page, many, phases=DECODE)
    contexts = ((1, long), (1, long - 1), (1, 7))
    yield AttentionCase("decode, long context", shape, page, contexts, phases=DECODE)
    yield AttentionCase("prefill, long context", shape, page, ((long // 16, long),), phases=PREFILL)
    yield AttentionCase("rows leave each other alone", shape, page, MIXED, check=checks.isolation)
    yield AttentionCase(
        "the same to the bit in any batch", shape, page, MIXED, check=checks.invariance, batch_invariant=True
    )


def _steps(shape: Shape, page: int) -> Iterator[AttentionCase]:
    """The decode step that graphs hold: an empty row, page edges, rows that grow."""
    rows = tuple((1, context) for context in (1, page, page + 1, 0, 3 * page + 5, 150))
    step = AttentionCase("", shape, page, rows, check=checks.growth, phases=DECODE)
    yield replace(step, name="decode step with rotation and write", step="eager")
    yield replace(step, name="graph replay after growth", step="captured")


def _singles(page: int) -> tuple[tuple[int, int], ...]:
    return tuple(
        (1, context) for context in sorted({1, max(page - 1, 1), page, page + 1, 2 * page, 2 * page + 1})
    )


def _chunks(page: int) -> tuple[tuple[int, int], ...]:
    """Whole prompts around a page, later chunks, and a chunk longer than a tile."""
    whole = [(length, length) for length in sorted({2, max(page - 1, 2), page + 1, 2 * page + 1})]
    return (*whole, (2, page + 2), (page + 3, 2 * page + 4), (200, 211))
