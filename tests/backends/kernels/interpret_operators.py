"""Runs the Triton operators and the fused decode on the CPU in Triton's interpreter, in a process of its own.

    TRITON_INTERPRET=1 python -m tests.backends.kernels.interpret_operators NAME

Prints the largest error against plain torch, float32, with everything unwritten poisoned.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product

import torch

from rlt_hw.backends.attention.interface import AttentionGeometry, DecodeBatch
from rlt_hw.backends.attention.torch_reference import TorchReference
from rlt_hw.backends.attention.triton_paged import TritonPaged
from rlt_hw.backends.kernels import launch_products
from rlt_hw.backends.kernels.tables import Tile
from rlt_hw.backends.operators.interface import Add, OperatorOptions, Projected, Rotary, Stream
from rlt_hw.backends.operators.torch_native import TorchOperators
from rlt_hw.backends.operators.triton_fused import TritonOperators
from rlt_hw.verify.conformance.operators import operator_cases
from rlt_hw.verify.conformance.subject import Subject

CPU = torch.device("cpu")
EPS = 1e-5


def draw(*shape: int) -> torch.Tensor:
    return torch.randn(*shape)


def far(found: torch.Tensor, expected: torch.Tensor) -> float:
    assert found.shape == expected.shape
    assert torch.isfinite(found).all(), "an element was not written"
    return float((found.double() - expected.double()).abs().max() / expected.abs().max().clamp(min=1e-3))


def operators(**options: object) -> tuple[TorchOperators, TritonOperators]:
    chosen = OperatorOptions(CPU, torch.float32, **options)
    return TorchOperators(chosen), TritonOperators(chosen)


def streams(rows: int, k: int) -> Iterator[Stream]:
    for add in Add:
        branch = None if add is Add.ALONE else draw(rows, k)
        norm = draw(k) if add in (Add.INSIDE, Add.AROUND) else None
        yield Stream(draw(rows, k), branch, norm, add)


def projections() -> Iterator[float]:
    """One row and several; widths that are no power of two; plain and gated."""
    torch_set, triton_set = operators()
    for rows, (k, n) in product((1, 3, 20), ((64, 48), (96, 40))):
        norm, weight = draw(k), draw(2 * n, k)
        for stream in streams(rows, k):
            for name in ("project", "project_gated"):
                expected = getattr(torch_set, name)(stream, norm, weight, EPS)
                found = getattr(triton_set, name)(stream, norm, weight, EPS)
                yield far(found[1], expected[1])
                yield far(found[0].hidden, expected[0].hidden)
            yield far(triton_set.settle(stream, EPS, norm), torch_set.settle(stream, EPS, norm))
            yield far(triton_set.settle(stream, EPS), torch_set.settle(stream, EPS))


def products() -> Iterator[float]:
    """Reductions in chunks and in shares, batches above and below a tile, the batch-invariant shape."""
    torch_set, triton_set = operators()
    _, invariant = operators(batch_invariant=True)
    for rows, (k, n) in product((1, 2, 17, 40), ((130, 72), (257, 64))):
        x, weight, norm = draw(rows, k), draw(n, k), draw(n)
        for tile in (Tile(32, 64), Tile(64, 32, 2), Tile(16, 32, 4, early=0), Tile(16, 32, 1, early=3)):
            launch_products.tile_for = lambda *_, tile=tile, **__: tile
            expected = torch_set.product(x, weight)
            stream = Stream(draw(rows, n))
            found = stream.plus(triton_set.branch(x, weight), norm, Add.INSIDE)
            yield far(
                triton_set.settle(found, EPS), torch_set.settle(stream.plus(expected, norm, Add.INSIDE), EPS)
            )
            if tile.shares == 1:
                yield far(triton_set.product(x, weight), expected)
                gate, up = expected.chunk(2, -1)
                found = triton_set._products.product(x, weight, gated=True)
                yield far(found, torch.nn.functional.silu(gate) * up)
        yield far(invariant.product(x, weight), torch_set.product(x, weight))
        alone = torch.cat([invariant.product(x[i : i + 1], weight) for i in range(rows)])
        assert torch.equal(alone, invariant.product(x, weight)), "a row depends on the rows beside it"
    gate_up = draw(3, 2 * 70)
    gate, up = gate_up.chunk(2, -1)
    yield far(launch_products.silu_product(gate_up), torch.nn.functional.silu(gate) * up)


def rotary(heads: int, kv_heads: int, dim: int, *, interleaved: bool, extra: str) -> Rotary:
    weights = {
        "": {},
        "bias": {"query_bias": draw(heads, dim), "key_bias": draw(kv_heads, dim)},
        "norm": {"query_norm": draw(dim), "key_norm": draw(dim)},
    }[extra]
    return Rotary(heads, kv_heads, dim, interleaved, EPS, **weights)


def projected(tokens: int, rotation: Rotary, shares: int = 1) -> Projected:
    width = (rotation.heads + 2 * rotation.kv_heads) * rotation.head_dim
    half = rotation.head_dim // 2
    qkv = draw(tokens, width) if shares == 1 else draw(shares, tokens, width)
    return Projected(qkv, rotation, draw(tokens, half), draw(tokens, half))


SHAPES = [(4, 2, 64, False, ""), (6, 1, 96, True, "bias"), (2, 2, 128, False, "norm"), (3, 3, 96, False, "")]


def rotations() -> Iterator[float]:
    for (heads, kv_heads, dim, interleaved, extra), shares in product(SHAPES, (1, 3)):
        given = projected(5, rotary(heads, kv_heads, dim, interleaved=interleaved, extra=extra), shares)
        slots = torch.tensor([3, 17, 0, 40, 8])
        caches = [torch.full((2, 6, 8, kv_heads, dim), 7.0) for _ in range(2)]
        for cache, chosen in zip(caches, operators(), strict=True):
            query = chosen.rotate(given if cache is caches[1] else _added(given), cache[0], cache[1], slots)
            if cache is caches[0]:
                expected = query
        yield far(query, expected)
        yield far(caches[1], caches[0])


def decodes() -> Iterator[float]:
    """Rows on planes of their own, an empty row, page edges; the cache afterwards must be equal too."""
    lengths = [1, 2, 16, 17, 0, 33, 150]
    for (heads, kv_heads, dim, interleaved, extra), page in product(SHAPES, (1, 16)):
        rotation = rotary(heads, kv_heads, dim, interleaved=interleaved, extra=extra)
        pages = -(-max(lengths) // page) * len(lengths)
        table = torch.randperm(pages).view(len(lengths), -1).to(torch.int32)
        planes = torch.tensor([0, 2, 1, 0, 1, 2, 1], dtype=torch.int32)
        batch = DecodeBatch(table, planes, pages, torch.tensor(lengths, dtype=torch.int32))
        geometry = AttentionGeometry(
            heads,
            kv_heads,
            dim,
            page,
            dim**-0.5,
            torch.float32,
            CPU,
            len(lengths),
            len(lengths),
            table.shape[1],
        )
        caches = _caches(batch, page, kv_heads, dim, 3)
        given = projected(len(lengths), rotation, shares=2 if page == 1 else 1)
        outs = []
        for adapter, (keys, values) in zip((TorchReference, TritonPaged), caches, strict=True):
            outs.append(torch.full((len(lengths), heads, dim), float("nan")))
            it = given if adapter is TritonPaged else _added(given)
            adapter(geometry).attend_projected(batch, it, keys, values, outs[-1])
        yield far(outs[1], outs[0])
        for expected, found in zip(*caches, strict=True):
            yield far(found.nan_to_num(5.0), expected.nan_to_num(5.0))


def _added(given: Projected) -> Projected:
    return given if given.shares == 1 else replace(given, qkv=given.qkv.sum(0))


def _caches(
    batch: DecodeBatch, page: int, kv_heads: int, dim: int, planes: int
) -> tuple[tuple[torch.Tensor, torch.Tensor], tuple[torch.Tensor, torch.Tensor]]:
    """Two copies of (keys, values): NaN but for the tokens before each row's new one."""
    shape = (planes * batch.plane_pages, page, kv_heads, dim)
    keys, values = torch.full(shape, float("nan")), torch.full(shape, float("nan"))
    for row, length in enumerate(batch.seq_lens.tolist()):
        positions = torch.arange(max(length - 1, 0))
        at = batch.page_table[row].long()[positions // page] + int(batch.planes[row]) * batch.plane_pages
        for cache in (keys, values):
            cache[at, positions % page] = draw(len(positions), kv_heads, dim)
    return (keys, values), (keys.clone(), values.clone())


def rows() -> Iterator[float]:
    """What the conformance kit asks of rows between loops, and of logits that nobody wants."""
    for case in operator_cases():
        if case.rows in {3, 200} and case.name in {"rows between loops", "the largest logit"}:
            yield case.check(Subject(TritonOperators, None, case, torch.float32, CPU))
    torch_set, triton_set = operators()
    for count in (1, 3):
        x, weight = draw(count, 64), draw(40, 64)
        for wanted in (torch.ones(count, dtype=torch.int64), torch.arange(count) % 2):
            expected = torch_set.logits(x, weight)[wanted > 0]
            yield far(triton_set.logits(x, weight, wanted)[wanted > 0], expected) if len(expected) else 0.0


CASES: dict[str, Callable[[], Iterator[float]]] = {
    "projections": projections,
    "products": products,
    "rotations": rotations,
    "decodes": decodes,
    "rows": rows,
}


def main() -> None:
    torch.manual_seed(0)
    print(max(CASES[sys.argv[1]]()))


if __name__ == "__main__":
    main()
