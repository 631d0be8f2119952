"""`rlt-hw eval`: the quality gate on word problems, at one setting or over depths and thresholds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rlt_hw.cli import engine_options as options
from rlt_hw.cli.output import console, write_json
from rlt_hw.verify.evaluation import DEFAULT_PROBLEMS, MAX_TOKENS, Score, evaluate, read_problems

if TYPE_CHECKING:
    from rlt_hw.runtime.engine import Engine

SWEEP_THRESHOLDS = (0.3, 0.5, 0.7, 0.9)


def eval(  # noqa: A001, PLR0917 - the command's name; options are named, never positional
    model: options.Model = "demo:ouro",
    problems: Annotated[Path, typer.Option(help="Problems as JSONL.")] = DEFAULT_PROBLEMS,
    loops: options.Loops = None,
    min_loops: options.MinLoops = 1,
    exit_threshold: options.ExitThreshold = None,
    exit_rule: options.ExitRule = None,
    sweep: Annotated[bool, typer.Option("--sweep", help="Every depth and several thresholds.")] = False,
    plot: Annotated[Path, typer.Option(help="With --sweep: the PNG to write.")] = Path("sweep.png"),
    device: options.Device = "auto",
    dtype: options.Dtype = "auto",
    attention: options.Attention = "auto",
    operators: options.Operators = "auto",
    kv_dtype: options.KVDtype = "auto",
    kv_layout: options.KVLayout = "auto",
    page_size: options.PageSize = None,
    graph: options.Graph = "auto",
    batch_invariant: options.BatchInvariant = False,
    max_seqs: options.MaxSeqs = 64,
    as_json: options.AsJson = False,
) -> None:
    """Answer word problems and print the accuracy by variant, and how deep the tokens went.

    The mean depth is over the generated tokens after the first, which the prompt gives at full depth.
    """
    tasks = read_problems(problems)
    with options.open_engine(
        model,
        loops=loops,
        device=device,
        dtype=dtype,
        attention=attention,
        operators=operators,
        kv_cache_dtype=kv_dtype,
        kv_layout=kv_layout,
        page_size=page_size,
        graph=graph,
        batch_invariant=batch_invariant,
        max_num_seqs=max_seqs,
    ) as engine:
        if sweep:
            settings = _settings(engine, exit_rule)
        else:
            settings = {"": options.Depth(loops, min_loops, exit_threshold, exit_rule)}
        found = {
            name: evaluate(engine, tasks, depth.params(max_tokens=MAX_TOKENS))
            for name, depth in settings.items()
        }
        choices = {name: str(value) for name, value in engine.decision.derived.items()}
    if sweep:
        _plot(found, model, plot)
    if as_json:
        write_json({"model": model, "choices": choices, "results": _rows(found)})
        return
    _print(model, choices, found)
    if sweep:
        print(f"plot: {plot}")


def _settings(engine: Engine, exit_rule: str | None) -> dict[str, options.Depth]:
    """Every fixed depth; then every exit rule at its published threshold, or where there are none several
    thresholds of one rule."""
    settings = {f"loops {n}": options.Depth(n, 1, None, None) for n in range(1, engine.max_loops + 1)}
    if engine.exit_defaults:
        rules = (exit_rule,) if exit_rule else tuple(engine.exit_defaults)
        return settings | {f"rule {rule}": options.Depth(None, 1, None, rule) for rule in rules}
    for rule in (exit_rule,) if exit_rule else engine.exit_rules[:1]:
        settings |= {f"threshold {q}": options.Depth(None, 1, q, rule) for q in SWEEP_THRESHOLDS}
    return settings


def _rows(found: dict[str, list[Score]]) -> list[dict[str, Any]]:
    return [{"setting": name, **score.to_json()} for name, scores in found.items() for score in scores]


def _print(model: str, choices: dict[str, str], found: dict[str, list[Score]]) -> None:
    from rich.table import Table

    table = Table()
    for column in ("setting", "variant"):
        table.add_column(column)
    for column in ("right", "accuracy", "mean depth"):
        table.add_column(column, justify="right")
    for name, scores in found.items():
        for score in scores:
            depth = "-" if score.mean_depth is None else f"{score.mean_depth:.2f}"
            table.add_row(
                name, score.variant, f"{score.right}/{score.problems}", f"{score.accuracy:.3f}", depth
            )
    screen = console()
    screen.print(f"{model}: dtype {choices['dtype']}; KV layout {choices['kv_layout']}")
    screen.print(table)


def _plot(found: dict[str, list[Score]], model: str, path: Path) -> None:
    """Accuracy over mean depth, a line a variant; fixed depths and thresholds apart."""
    from rlt_hw.cli.plotting import figure

    with figure(path, title=f"{model}: accuracy by depth") as axes:
        kinds = dict.fromkeys(name.split()[0] for name in found)
        for kind, style in zip(kinds, ("o-", "s--"), strict=False):
            for variant in dict.fromkeys(score.variant for scores in found.values() for score in scores):
                axes.plot(*_points(found, kind, variant), style, label=f"{variant}, {kind}")
        axes.set_xlabel("mean loops of a generated token")
        axes.set_ylabel("accuracy")
        axes.legend()


def _points(
    found: dict[str, list[Score]], kind: str, variant: str
) -> tuple[Sequence[float], Sequence[float]]:
    scores = [
        score
        for name, row in found.items()
        if name.startswith(kind)
        for score in row
        if score.variant == variant
    ]
    return [score.mean_depth or 0.0 for score in scores], [score.accuracy for score in scores]
