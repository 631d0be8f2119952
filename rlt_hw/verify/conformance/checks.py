"""What is looked at in an attention case: each check runs an adapter and gives its largest error."""

from __future__ import annotations

from dataclasses import replace

from rlt_hw.verify.conformance.batches import PagedBatch, attend, paged_batch
from rlt_hw.verify.conformance.error import distance
from rlt_hw.verify.conformance.growing import GrowingRows
from rlt_hw.verify.conformance.subject import Subject

PLANES = 3
STEPS = 5
"""Replays of a captured step, each with one more token a row."""


def numbers(subject: Subject) -> float:
    """Against dense float64."""
    paged = _batch(subject)
    return distance(attend(subject.adapter, paged), paged.expected())


def isolation(subject: Subject) -> float:
    """The first row of each phase reads a cache of NaN; the others must not notice."""
    paged = _batch(subject)
    expected = paged.expected()
    poisoned = [0, next(row for row, (new, _) in enumerate(subject.case.rows) if new > 1)]
    for row in poisoned:
        slots = paged.slots(row).to(subject.device)
        for cache in (paged.keys, paged.values):
            cache.flatten(0, 1)[slots] = float("nan")
    out = attend(subject.adapter, paged).cpu()
    others = [paged.tokens(row) for row in range(len(subject.case.rows)) if row not in poisoned]
    return max(distance(out[tokens], expected[tokens]) for tokens in others)


def invariance(subject: Subject) -> float:
    """Each row alone, to the bit."""
    paged = _batch(subject)
    together = attend(subject.adapter, paged)
    return max(
        distance(attend(subject.adapter, _only(paged, row)), together[paged.tokens(row)])
        for row in range(len(subject.case.rows))
    )


def growth(subject: Subject) -> float:
    """One step, captured once where the graph can, then run again and again while its rows grow."""
    case = subject.case
    rows = GrowingRows(
        [context for _, context in case.rows],
        heads=case.shape.heads,
        kv_heads=case.shape.kv_heads,
        head_dim=case.shape.head_dim,
        page_size=case.page_size,
        dtype=subject.dtype,
        device=subject.device,
    )
    attention, graph = subject.adapter(rows.geometry), subject.graph(subject.device)
    try:
        step = graph.capture(
            lambda: attention.attend_projected(rows.batch, rows.projected, rows.keys, rows.values, rows.out),
            rows.batch.seq_lens.tolist,
        )
        worst = 0.0
        for _ in range(STEPS):
            rows.out.fill_(float("nan"))
            step()
            worst = max(worst, rows.error())
            rows.grow()
        return worst
    finally:
        graph.close()


def _only(paged: PagedBatch, row: int) -> PagedBatch:
    """One row of a batch, over the same cache."""
    tokens, batch = paged.tokens(row), paged.batch
    return replace(
        paged,
        query=paged.query[tokens],
        batch=replace(
            batch,
            query_start=batch.query_start[row : row + 2] - tokens.start,
            seq_lens=batch.seq_lens[row : row + 1],
            page_table=batch.page_table[row : row + 1],
            query_start_host=batch.query_start_host[row : row + 2] - tokens.start,
            seq_lens_host=batch.seq_lens_host[row : row + 1],
            max_query=tokens.stop - tokens.start,
            max_seq=int(batch.seq_lens_host[row]),
        ),
    )


def _batch(subject: Subject) -> PagedBatch:
    case = subject.case
    return paged_batch(
        case.rows,
        heads=case.shape.heads,
        kv_heads=case.shape.kv_heads,
        head_dim=case.shape.head_dim,
        page_size=case.page_size,
        dtype=subject.dtype,
        device=subject.device,
        planes=PLANES,
        batch_invariant=case.batch_invariant,
    )
