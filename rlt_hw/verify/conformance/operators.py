"""The operator cases: each operation of a set against the torch set in float32 on the CPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import torch

from rlt_hw.backends.operators.interface import Add, OperatorOptions, Projected, Rotary, Stream
from rlt_hw.backends.operators.rows import DecodeRows, LoopPlanes
from rlt_hw.backends.operators.torch_native import TorchOperators
from rlt_hw.registry import Need
from rlt_hw.verify.conformance.error import distance
from rlt_hw.verify.conformance.subject import ROTATED, Subject

ROWS = (1, 3, 20, 64, 200)
"""One row, a few, more than a tile has, a usual batch, and what only a prompt has."""
WIDTHS = ((2048, 768), (1320, 1056), (96, 40))
"""(in, out): Ouro's stream, one that no power of two divides, and less than a tile."""
HEADS = ((16, 16, 128), (48, 8, 128), (55, 55, 96), (4, 2, 64))
EPS = 1e-5

Errors = Callable[[Subject], Iterator[float]]


@dataclass(frozen=True)
class OperatorCase:
    """errors: runs a set on the case, operation by operation. rows: tokens at once."""

    name: str
    errors: Errors
    rows: int
    batch_invariant: bool = False
    captured: bool = False

    @property
    def settings(self) -> dict[str, int]:
        return {"rows": self.rows}

    @property
    def tolerances(self) -> Mapping[str, float]:
        return dict.fromkeys(ROTATED, 0.0) if self.batch_invariant else ROTATED

    def need(self, backend: str, dtype: str) -> Need:
        return Need(1, 1, 128, dtype=dtype, operators=backend, batch_invariant=self.batch_invariant)

    def check(self, subject: Subject) -> float:
        return max(self.errors(subject))


def operator_cases() -> Iterator[OperatorCase]:
    for rows in ROWS:
        yield OperatorCase("settled streams", _settled, rows)
        yield OperatorCase("projections", _projections, rows)
        yield OperatorCase("products", _products, rows)
        yield OperatorCase("rotations", _rotations, rows)
        yield OperatorCase("rows between loops", _bookkeeping, rows)
        yield OperatorCase("the largest logit", _best, rows)
        yield OperatorCase("the same to the bit in any batch", _invariance, rows, batch_invariant=True)


class Both:
    """A backend's set and the torch set, and random tensors for each: (float32 on the CPU, as the backend
    takes it), with the same values."""

    def __init__(self, subject: Subject) -> None:
        case, cpu = subject.case, torch.device("cpu")
        self.rows = case.rows
        self._subject = subject
        self._generator = torch.Generator().manual_seed(case.rows)
        options = OperatorOptions(
            subject.device, subject.dtype, max_rows=64, batch_invariant=case.batch_invariant
        )
        self.found = subject.adapter(options)
        self.expected = TorchOperators(replace(options, device=cpu, dtype=torch.float32))

    def draw(self, *shape: int, scale: float = 1.0) -> tuple[torch.Tensor, torch.Tensor]:
        return self.both(scale * torch.randn(shape, generator=self._generator))

    def both(self, values: torch.Tensor, *, exact: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
        """exact: in float32 for the backend too."""
        dtype = torch.float32 if exact else self._subject.dtype
        given = values.to(self._subject.device, dtype, copy=True)
        return given.to("cpu", torch.float32, copy=True), given

    def pair(self, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """As they are."""
        return values.clone(), values.to(self._subject.device, copy=True)

    def whole(self, low: int, high: int) -> tuple[torch.Tensor, torch.Tensor]:
        """int64 [rows], below `high`."""
        return self.pair(torch.randint(low, high, (self.rows,), generator=self._generator))

    def flags(self, share: float) -> tuple[torch.Tensor, torch.Tensor]:
        """bool [rows]."""
        return self.pair(torch.rand(self.rows, generator=self._generator) < share)

    def weight(self, out: int, width: int) -> tuple[torch.Tensor, torch.Tensor]:
        return self.draw(out, width, scale=width**-0.5)

    def streams(self, width: int) -> Iterator[tuple[Stream, Stream]]:
        """One of every way in which a branch joins."""
        for add in Add:
            hidden, branch, norm = self.draw(self.rows, width), self.draw(self.rows, width), self.draw(width)
            normed = add in (Add.INSIDE, Add.AROUND)
            pair = [
                Stream(hidden[i], None if add is Add.ALONE else branch[i], norm[i] if normed else None, add)
                for i in range(2)
            ]
            yield pair[0], pair[1]

    def call(self, name: str, *pairs: Any) -> tuple[Any, Any]:
        """(found, expected) of one operation; what is no pair goes to both."""
        given = [[pair[i] if isinstance(pair, tuple) else pair for pair in pairs] for i in range(2)]
        return getattr(self.found, name)(*given[1]), getattr(self.expected, name)(*given[0])


def _settled(subject: Subject) -> Iterator[float]:
    both = Both(subject)
    for width, _ in WIDTHS:
        norm = both.draw(width)
        for stream in both.streams(width):
            yield distance(*both.call("settle", stream, EPS))
            yield distance(*both.call("settle", stream, EPS, norm))


def _projections(subject: Subject) -> Iterator[float]:
    both = Both(subject)
    for width, out in WIDTHS:
        norm, weight = both.draw(width), both.weight(2 * out, width)
        for stream in both.streams(width):
            for name in ("project", "project_gated"):
                found, expected = both.call(name, stream, norm, weight, EPS)
                yield distance(found[0].hidden, expected[0].hidden)
                yield distance(found[1], expected[1])


def _products(subject: Subject) -> Iterator[float]:
    both = Both(subject)
    for width, out in WIDTHS:
        x, weight = both.draw(both.rows, width), both.weight(out, width)
        yield distance(*both.call("product", x, weight))
        yield distance(*both.call("logits", x, weight))
        wanted = both.whole(0, 2)
        used = wanted[0] > 0
        found, expected = both.call("logits", x, weight, wanted)
        yield distance(found.cpu()[used], expected[used])
        hidden, norm = both.draw(both.rows, out), both.draw(out)
        found, expected = both.call("branch", x, weight)
        streams = [
            Stream(hidden[i]).plus(branch, norm[i], Add.INSIDE) for i, branch in enumerate((expected, found))
        ]
        yield distance(*both.call("settle", (streams[0], streams[1]), EPS))


def _rotations(subject: Subject) -> Iterator[float]:
    """Queries, and what the cache holds afterwards: new tokens in their slots, and nothing else touched."""
    both, page = Both(subject), 16
    for heads, kv_heads, dim in HEADS:
        pages = -(-2 * both.rows // page)
        slots = torch.randperm(pages * page, generator=torch.Generator().manual_seed(1))[: both.rows]
        caches = [both.draw(pages, page, kv_heads, dim) for _ in range(2)]
        projected = _projected(both, heads, kv_heads, dim)
        given = (slots, slots.to(subject.device))
        yield distance(*both.call("rotate", projected, *caches, given))
        yield from (distance(found, expected) for expected, found in caches)


def _projected(both: Both, heads: int, kv_heads: int, dim: int) -> tuple[Projected, Projected]:
    """Where every head has its own keys, pairs rotated in float32 and biases; else halves and norms."""
    qkv = both.draw(both.rows, (heads + 2 * kv_heads) * dim)
    angle = torch.arange(both.rows)[:, None] * 10_000.0 ** (-torch.arange(dim // 2) / (dim // 2))
    pairs = heads == kv_heads
    cos, sin = (both.both(table, exact=pairs) for table in (angle.cos(), angle.sin()))
    if pairs:
        weights = {"query_bias": both.draw(heads, dim), "key_bias": both.draw(kv_heads, dim)}
    else:
        weights = {"query_norm": both.draw(dim), "key_norm": both.draw(dim)}
    pair = [
        Projected(
            qkv[i],
            Rotary(heads, kv_heads, dim, pairs, EPS, **{name: pair[i] for name, pair in weights.items()}),
            cos[i],
            sin[i],
        )
        for i in range(2)
    ]  # fmt: skip
    return pair[0], pair[1]


def _bookkeeping(subject: Subject) -> Iterator[float]:
    """Rows at loops, limits and positions of their own, some ended: whole numbers, which must be equal."""
    both, layers, page, count = Both(subject), 2, 8, 4
    for of_loop in ((0, 1, 2, 3), (0, 0, 0, 0), (0, 1, 1, 0), (0, 1, 2, 1)):
        rows = _rows(both, loops=count)
        pair = tuple(
            LoopPlanes.build(of_loop, 2 * both.rows, page, device)
            for device in (torch.device("cpu"), subject.device)
        )
        yield from map(distance, *both.call("board", rows, pair))
        yield distance(*both.call("uniform", rows))
        given = both.flags(0.8)
        for by_rule in ((None, None), given):
            (exited, ran), expected = both.call("leave", rows, by_rule)
            yield from map(distance, (exited, ran), expected)
        caches = [both.draw(layers, pair[0].count * 2 * both.rows, page, 3, 32) for _ in range(2)]
        left = ((expected[0], exited), (expected[1], ran))
        both.call("fill", *caches, rows, pair, *left)
        yield from (distance(found, right) for right, found in caches)
        token = both.whole(0, 999)
        both.call("advance", rows, token, both.flags(0.2), *left)
        for name in ("token", "position", "loop", "active", "result"):
            yield distance(getattr(rows[1], name), getattr(rows[0], name))


def _rows(both: Both, loops: int) -> tuple[DecodeRows, DecodeRows]:
    """Rows whose pages are their own."""
    count = both.rows
    whole = {field.name: both.whole(0, 2) for field in fields(DecodeRows)}
    tables = torch.randperm(2 * count, generator=torch.Generator().manual_seed(2)).view(count, 2)
    whole |= {name: both.pair(torch.ones(count)) for name in ("threshold", "temperature", "top_p")}
    whole["position"] = both.whole(0, 15)
    whole["seed"] = both.whole(-(2**63), 2**63 - 1)
    whole |= {
        "loop": both.whole(0, loops),
        "limit": both.whole(1, loops + 1),
        "min_loops": both.whole(1, loops + 1),
        "depth": both.whole(1, loops + 1),
        "gate_from": both.whole(0, 8),
        "last": both.pair(whole["position"][0] + both.whole(0, 3)[0]),
        "page_table": both.pair(tables.to(torch.int32)),
        "result": both.pair(torch.full((4, count), -1)),
    }
    first, second = ({name: pair[i] for name, pair in whole.items()} for i in range(2))
    return DecodeRows(**first), DecodeRows(**second)


def _best(subject: Subject) -> Iterator[float]:
    """Equals, infinities and NaN among the logits of several vocabularies."""
    both = Both(subject)
    for vocab in (40, 4096, 50_001):
        logits = both.draw(both.rows, vocab)[0]
        logits[:, vocab // 2] = logits[:, vocab - 1] = 9.0
        for row, value in enumerate((float("inf"), float("nan"), float("-inf"))):
            if row + 1 < both.rows:
                logits[row + 1, :: 1 if row == 2 else 7] = value
        found, expected = both.call("best", both.pair(logits))
        yield distance(found[1], expected[1])
        usable = ~expected[1]
        yield distance(found[0].cpu()[usable], expected[0][usable])


def _invariance(subject: Subject) -> Iterator[float]:
    """Each token alone gives what it gives among the others."""
    both = Both(subject)
    for width, out in WIDTHS:
        x, weight, norm = both.draw(both.rows, width)[1], both.weight(2 * out, width)[1], both.draw(width)[1]
        for name in ("product", "project", "project_gated"):
            together = _product(both.found, name, x, weight, norm)
            for row in sorted({0, both.rows // 2, both.rows - 1}):
                alone = _product(both.found, name, x[row : row + 1], weight, norm)
                yield distance(alone, together[row : row + 1])


def _product(
    operators: Any, name: str, x: torch.Tensor, weight: torch.Tensor, norm: torch.Tensor
) -> torch.Tensor:
    if name == "product":
        return operators.product(x, weight)
    return getattr(operators, name)(Stream(x), norm, weight, EPS)[1]
