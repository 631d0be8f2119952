"""`rlt-hw bench`: throughput and latency at several batch sizes, medians of repeats."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from rlt_hw.cli import engine_options as options
from rlt_hw.cli.output import console, write_json
from rlt_hw.errors import ConfigError


def bench(  # noqa: PLR0917 - options are named on the command line, never positional
    model: options.Model = "demo:ouro",
    batch: Annotated[str, typer.Option(help="Batch sizes, with commas between.")] = "1,8,64",
    input_len: Annotated[int, typer.Option(help="Prompt tokens of a request.")] = 64,
    output_len: Annotated[int, typer.Option(help="New tokens of a request.")] = 64,
    repeats: Annotated[int, typer.Option(help="Runs of each batch size; the medians are shown.")] = 3,
    loops: options.Loops = None,
    min_loops: options.MinLoops = 1,
    exit_threshold: options.ExitThreshold = None,
    exit_rule: options.ExitRule = None,
    device: options.Device = "auto",
    dtype: options.Dtype = "auto",
    attention: options.Attention = "auto",
    kv_dtype: options.KVDtype = "auto",
    kv_layout: options.KVLayout = "auto",
    page_size: options.PageSize = None,
    graph: options.Graph = "auto",
    load_format: options.LoadFormat = "auto",
    plot: Annotated[Path | None, typer.Option(help="A PNG of throughput over batch size.")] = None,
    as_json: options.AsJson = False,
) -> None:
    """Run closed batches of random prompts to a fixed length and print tokens a second and latencies."""
    from rlt_hw.verify.benchmark import measure

    sizes = _sizes(batch)
    with options.open_engine(
        model,
        loops=loops,
        device=device,
        dtype=dtype,
        attention=attention,
        kv_cache_dtype=kv_dtype,
        kv_layout=kv_layout,
        page_size=page_size,
        graph=graph,
        load_format=load_format,
        max_num_seqs=max(sizes),
        max_batched_tokens=max(2048, *sizes),
        max_model_len=input_len + output_len,
    ) as engine:
        depth = options.Depth(loops, min_loops, exit_threshold, exit_rule)
        params = depth.params(max_tokens=output_len, ignore_eos=True)
        rows = [measure(engine, size, input_len, params, repeats) for size in sizes]
        choices = {name: str(value) for name, value in engine.decision.derived.items()}
        backends = {part.title: part.chosen.name for part in engine.decision.parts if part.chosen}
    report = {
        "model": model,
        "target": str(engine.decision.target),
        "backends": backends,
        "choices": choices,
        "input_len": input_len,
        "output_len": output_len,
        "repeats": repeats,
        "results": [row.to_json() for row in rows],
    }
    if plot is not None:
        from rlt_hw.cli.plotting import figure

        with figure(plot, title=f"{model} on {report['target']}") as axes:
            axes.plot([row.batch for row in rows], [row.tokens_per_second for row in rows], "o-")
            axes.set_xlabel("requests at once")
            axes.set_ylabel("generated tokens a second")
    if as_json:
        write_json(report)
        return
    from rich.table import Table

    table = Table()
    for column in (
        "batch",
        "tokens/s",
        "first token ms",
        "between tokens ms",
        "mean depth",
        "scheduler ms/step",
    ):
        table.add_column(column, justify="right")
    for row in rows:
        table.add_row(
            str(row.batch),
            f"{row.tokens_per_second:,.1f}",
            f"{row.first_token_ms:,.1f}",
            f"{row.between_tokens_ms:,.2f}",
            f"{row.mean_depth:.2f}",
            f"{row.scheduler_ms:.3f}",
        )
    screen = console()
    screen.print(
        f"{model} on {report['target']}: {input_len} tokens in, {output_len} out, medians of {repeats}"
    )
    screen.print(", ".join(f"{kind}: {name}" for kind, name in backends.items()))
    screen.print(table)


def _sizes(text: str) -> Sequence[int]:
    try:
        sizes = [int(word) for word in text.split(",")]
    except ValueError:
        sizes = []
    if not sizes or min(sizes) < 1:
        raise ConfigError("--batch", found=repr(text), allowed="whole numbers of at least 1, such as 1,8,64")
    return sizes
