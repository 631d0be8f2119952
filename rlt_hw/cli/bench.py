"""`rlt-hw bench`: throughput, latency and steady decode beside the device's limits, medians of repeats."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rlt_hw.cli import engine_options as options
from rlt_hw.cli.output import console, write_json
from rlt_hw.errors import ConfigError

if TYPE_CHECKING:
    from rlt_hw.runtime.engine import Engine
    from rlt_hw.verify.ceilings import Ceilings
    from rlt_hw.verify.workload import Result, Workload

DEPTH = {"loops": int, "min_loops": int, "exit_threshold": float, "exit_rule": str}
"""Options of requests that may be compared, on one engine."""
NUMBERS = {"page_size": int, **{name: kind for name, kind in DEPTH.items() if kind is not str}}
COMPARED = (
    "attention, operators, dtype, kv_cache_dtype, kv_layout, page_size, graph, batch_invariant, refill, "
    + ", ".join(DEPTH)
)


def bench(  # noqa: PLR0917 - options are named on the command line, never positional
    model: options.Model = "demo:ouro",
    batch: Annotated[str, typer.Option(help="Batch sizes, with commas between.")] = "1,8,64",
    input_len: Annotated[int, typer.Option(min=1, help="Prompt tokens of a request.")] = 64,
    output_len: Annotated[int, typer.Option(min=1, help="New tokens of a request.")] = 64,
    decode_steps: Annotated[
        int, typer.Option(min=0, help="Steps of steady decode to time; 0 leaves it out.")
    ] = 32,
    repeats: Annotated[int, typer.Option(min=1, help="Runs of each; the medians are shown.")] = 3,
    loops: options.Loops = None,
    min_loops: options.MinLoops = 1,
    exit_threshold: options.ExitThreshold = None,
    exit_rule: options.ExitRule = None,
    device: options.Device = "auto",
    dtype: options.Dtype = "auto",
    attention: options.Attention = "auto",
    operators: options.Operators = "auto",
    kv_dtype: options.KVDtype = "auto",
    kv_layout: options.KVLayout = "auto",
    page_size: options.PageSize = None,
    graph: options.Graph = "auto",
    batch_invariant: options.BatchInvariant = False,
    max_batched_tokens: Annotated[int, typer.Option(min=1, help="Tokens of a prefill step.")] = 2048,
    load_format: options.LoadFormat = "auto",
    compare: Annotated[
        tuple[str, str] | None,
        typer.Option(
            metavar="A B",
            help=f'Two settings in turn, each "option=value,…" of {COMPARED}; "" for none.',
        ),
    ] = None,
    plot: Annotated[Path | None, typer.Option(help="A PNG of throughput over batch size.")] = None,
    as_json: options.AsJson = False,
) -> None:
    """Run closed batches of random prompts, then steps of steady decode, and print how fast they are.

    Shares are of the least time in which the weights and the KV that the tokens need can be read (decode) and
    of the rate of one large matrix product (prefill), both measured on this device in the same run.
    """
    import torch

    from rlt_hw.verify.ceilings import measure_ceilings
    from rlt_hw.verify.workload import Workload, run

    sizes = _sizes(batch)
    work = Workload(sizes, input_len, output_len, max(max_batched_tokens, *sizes), decode_steps, repeats)
    shared = {
        "device": device,
        "dtype": dtype,
        "attention": attention,
        "operators": operators,
        "kv_cache_dtype": kv_dtype,
        "kv_layout": kv_layout,
        "page_size": page_size,
        "graph": graph,
        "batch_invariant": batch_invariant,
        "load_format": load_format,
        "max_num_seqs": work.max_num_seqs,
        "max_batched_tokens": work.chunk,
        "max_model_len": work.max_model_len,
    }
    asked = {text or "as asked": _overrides(text) for text in compare} if compare else {"": {}}
    if compare and len(asked) < 2:
        raise ConfigError("--compare", found=f"{compare[0]!r} twice", allowed="two different settings")
    depth = options.Depth(loops, min_loops, exit_threshold, exit_rule)
    depths = [replace(depth, **_part(changed, depth=True)) for changed in asked.values()]
    with ExitStack() as stack:
        opened: dict[str, Engine] = {}
        engines = []
        for changed in asked.values():
            chosen = {**shared, **_part(changed, depth=False)}
            if repr(chosen) not in opened:
                most = max((each.num_loops or 0 for each in depths), default=0) or None
                opened[repr(chosen)] = stack.enter_context(options.open_engine(model, loops=most, **chosen))
            engines.append(opened[repr(chosen)])
        first = engines[0]
        ceilings = measure_ceilings(
            first.platform, first.torch_device, getattr(torch, str(first.decision.dtype.value))
        )
        params = [each.params(max_tokens=output_len, ignore_eos=True) for each in depths]
        found = run(list(zip(engines, params, strict=True)), work, ceilings, say=_say)
        report = _report(
            model, work, ceilings, dict(zip(asked, zip(engines, found, strict=True), strict=True))
        )
    results = dict(zip(asked, found, strict=True))
    if plot is not None:
        _plot(plot, f"{model} on {report['target']}", results)
    if as_json:
        write_json(report)
    else:
        _print(report, results)


def _say(text: str) -> None:
    print(f"… {text}", file=sys.stderr)


def _sizes(text: str) -> tuple[int, ...]:
    try:
        sizes = tuple(int(word) for word in text.split(","))
    except ValueError:
        sizes = ()
    if not sizes or min(sizes) < 1:
        raise ConfigError("--batch", found=repr(text), allowed="whole numbers of at least 1, such as 1,8,64")
    return sizes


def _overrides(text: str) -> dict[str, Any]:
    """ "graph=none,page_size=32" as keyword options of an engine and of `Depth`."""
    found: dict[str, Any] = {}
    for word in filter(None, text.split(",")):
        name, _, value = word.partition("=")
        if name not in COMPARED.split(", ") or not value:
            raise ConfigError("--compare", found=repr(word), allowed=f"option=value of {COMPARED}")
        if name in {"batch_invariant", "refill"}:
            if value not in {"true", "false"}:
                raise ConfigError("--compare", found=repr(word), allowed=f"{name}=true or {name}=false")
            found[name] = value == "true"
        elif name in NUMBERS:
            try:
                found[name] = NUMBERS[name](value)
            except ValueError:
                raise ConfigError("--compare", found=repr(word), allowed=f"{name}=N, a number") from None
        else:
            found[name] = value
    return found


def _part(changed: Mapping[str, Any], *, depth: bool) -> dict[str, Any]:
    """What changes for requests, or for the engine."""
    names = {"loops": "num_loops"}
    return {names.get(key, key): value for key, value in changed.items() if (key in DEPTH) == depth}


def _report(
    model: str, work: Workload, ceilings: Ceilings, ran: Mapping[str, tuple[Engine, Result]]
) -> dict[str, Any]:
    engine, _ = next(iter(ran.values()))
    head = {
        "model": model,
        "target": str(engine.decision.target),
        "input_len": work.input_len,
        "output_len": work.output_len,
        "repeats": work.repeats,
        "ceilings": {
            "read_bandwidth": ceilings.read_bandwidth,
            "matrix_rate": ceilings.matrix_rate,
            "dtype": ceilings.dtype,
        },
    }
    engines = [_engine_json(name, *row) for name, row in ran.items()]
    return {**head, **engines[0]} if len(engines) == 1 else {**head, "compared": engines}


def _engine_json(name: str, engine: Engine, result: Result) -> dict[str, Any]:
    from rlt_hw.verify.benchmark import to_json

    decision = engine.decision
    return {
        "name": name,
        "backends": {part.title: part.chosen.name for part in decision.parts if part.chosen},
        "choices": {key: str(value) for key, value in decision.derived.items()},
        "results": [row.to_json() for row in result.rows],
        "prefill": to_json(result.prefill),
    }


def _print(report: Mapping[str, Any], results: Mapping[str, Result]) -> None:
    screen, ceilings = console(), report["ceilings"]
    screen.print(
        f"{report['model']} on {report['target']}: {report['input_len']} tokens in, "
        f"{report['output_len']} out, medians of {report['repeats']}"
    )
    for engine in report.get("compared", [report]):
        chosen = ", ".join(f"{kind}: {name}" for kind, name in engine["backends"].items())
        screen.print(f"{engine['name']}: {chosen}" if engine["name"] else chosen, markup=False)
    screen.print(
        f"limits measured here: {ceilings['read_bandwidth'] / 1e9:,.0f} GB/s read, "
        f"{ceilings['matrix_rate'] / 1e12:,.1f} TFLOP/s in {ceilings['dtype']}"
    )
    several = len(results) > 1
    _table(screen, "closed batches", CLOSED, _closed_cells(results), several)
    _table(screen, "steady decode", DECODE, _decode_cells(results), several)
    _table(screen, "prefill", PREFILL, _prefill_cells(results), several)
    if several:
        for line in _ratios(*results.values()):
            screen.print(line)


CLOSED = ("batch", "tokens/s", "first token ms", "between tokens ms", "mean depth", "scheduler ms/step")
DECODE = ("batch", "context", "ms/step", "tokens/s", "mean depth", "of read limit", "busy", "kernels/step")
PREFILL = ("chunk tokens/s", "TFLOP/s", "of matrix limit")


def _table(
    screen: Any, title: str, columns: Sequence[str], cells: Iterator[Sequence[str]], several: bool
) -> None:
    from rich.table import Table

    table = Table(title=title, title_justify="left")
    if several:
        table.add_column("engine")
    for column in columns:
        table.add_column(column, justify="right")
    for row in cells:
        table.add_row(*(row if several else row[1:]))
    if table.row_count:
        screen.print(table)


def _closed_cells(results: Mapping[str, Result]) -> Iterator[Sequence[str]]:
    for name, result in results.items():
        for row in result.rows:
            closed = row.closed
            yield (
                name,
                str(row.batch),
                f"{closed.tokens_per_second:,.1f}",
                f"{closed.first_token_ms:,.1f}",
                f"{closed.between_tokens_ms:,.2f}",
                f"{closed.mean_depth:.2f}",
                f"{closed.scheduler_ms:.3f}",
            )


def _decode_cells(results: Mapping[str, Result]) -> Iterator[Sequence[str]]:
    for name, result in results.items():
        for row in result.rows:
            if decode := row.decode:
                yield (
                    name,
                    str(row.batch),
                    f"{decode.context:,.0f}",
                    f"{decode.step_ms:,.3f}",
                    f"{decode.tokens_per_second:,.1f}",
                    f"{decode.mean_depth:.2f}",
                    f"{decode.read_share:.1%}",
                    "-" if decode.busy_share is None else f"{decode.busy_share:.1%}",
                    "-" if decode.kernels_per_step is None else f"{decode.kernels_per_step:,.0f}",
                )


def _prefill_cells(results: Mapping[str, Result]) -> Iterator[Sequence[str]]:
    for name, result in results.items():
        prefill = result.prefill
        yield (
            name,
            f"{prefill.tokens_per_second:,.0f}",
            f"{prefill.operations_per_second / 1e12:,.2f}",
            f"{prefill.matrix_share:.1%}",
        )


def _ratios(first: Result, second: Result) -> Iterator[str]:
    """Rates of the second setting over the first's."""
    for old, new in zip(first.rows, second.rows, strict=True):
        ratio = new.closed.tokens_per_second / old.closed.tokens_per_second
        text = f"batch {old.batch}: second / first {ratio:.3f} closed"
        if old.decode and new.decode:
            text += f", {new.decode.tokens_per_second / old.decode.tokens_per_second:.3f} steady decode"
            saved = old.decode.mean_depth / new.decode.mean_depth
            if saved != 1:
                text += f", where {saved:.3f} times fewer loops were run"
        yield text
    yield f"prefill: second / first {second.prefill.tokens_per_second / first.prefill.tokens_per_second:.3f}"


def _plot(path: Path, title: str, results: Mapping[str, Result]) -> None:
    from rlt_hw.cli.plotting import figure

    with figure(path, title=title) as axes:
        for name, result in results.items():
            batches = [row.batch for row in result.rows]
            label = f"{name}, closed" if name else "closed batches"
            axes.plot(batches, [row.closed.tokens_per_second for row in result.rows], "o-", label=label)
            steady = [(row.batch, row.decode.tokens_per_second) for row in result.rows if row.decode]
            if steady:
                label = f"{name}, decode" if name else "steady decode"
                axes.plot(*zip(*steady, strict=True), "s--", label=label)
        axes.set_xlabel("requests at once")
        axes.set_ylabel("generated tokens a second")
        axes.legend()
