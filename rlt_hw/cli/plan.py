"""`rlt-hw plan`: what would run a model on a target, why, and what would fit. Needs no torch, no weights."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rlt_hw.cli.output import gib, write_json
from rlt_hw.errors import ConfigError

if TYPE_CHECKING:
    from rlt_hw.devices.environment import Environment
    from rlt_hw.runtime.plan_report import PlanReport

UNSUPPORTED = 3
_UNITS = {"": 1, "gb": 10**9, "gib": 1024**3, "mb": 10**6, "mib": 1024**2, "g": 1024**3, "m": 1024**2}


def plan(  # noqa: PLR0917 - options are named on the command line, never positional
    model: Annotated[str, typer.Option(help="A checkpoint folder, demo:NAME or a published name.")] = "",
    target: Annotated[
        str, typer.Option(help='"nvidia:sm90", "sm90" or a product such as "H200"; default: this machine.')
    ] = "auto",
    attention: Annotated[str, typer.Option(help="A backend for both phases.")] = "auto",
    prefill: Annotated[str, typer.Option(help="An attention backend for prefill.")] = "auto",
    decode: Annotated[str, typer.Option(help="An attention backend for decode.")] = "auto",
    operators: Annotated[str, typer.Option(help="An operators backend, or auto.")] = "auto",
    dtype: Annotated[str, typer.Option(help="auto, float32, bfloat16 or float16.")] = "auto",
    kv_dtype: Annotated[
        str, typer.Option("--kv-dtype", "--kv-cache-dtype", help="The cache's dtype.")
    ] = "auto",
    page_size: Annotated[int | None, typer.Option(help="Tokens a KV page.")] = None,
    kv_layout: Annotated[str, typer.Option(help="auto, full, last_exited or shared.")] = "auto",
    graph: Annotated[str, typer.Option(help="auto, none, piecewise or full.")] = "auto",
    batch_invariant: Annotated[
        bool,
        typer.Option("--batch-invariant", help="A request's tokens do not depend on what else runs."),
    ] = False,
    tp: Annotated[int, typer.Option("--tp", "--tensor-parallel", help="Devices that share the model.")] = 1,
    max_seqs: Annotated[int, typer.Option("--max-seqs", "--max-num-seqs", help="Requests at once.")] = 64,
    context: Annotated[int | None, typer.Option(help="Tokens of a request, prompt and new ones.")] = None,
    loops: Annotated[int | None, typer.Option(help="Most loops a request may ask for.")] = None,
    exit_threshold: Annotated[float | None, typer.Option(help="Adaptive exit to plan for.")] = None,
    memory: Annotated[str | None, typer.Option(help="Memory of a device: 24GiB, 80GB.")] = None,
    environment: Annotated[Path | None, typer.Option(help="A recorded machine to judge.")] = None,
    list_targets: Annotated[bool, typer.Option("--list-targets", help="List every known target.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Say what would run a model on a target, which backends were rejected and why, and what would fit.

    Exit codes: 0 it runs, 3 it does not (the table says why), 2 wrong usage, 1 an error inside rlt-hw.
    """
    if list_targets:
        _list_targets(as_json)
        return
    if not model:
        from rlt_hw.models.config import demo_names, published_names

        names = ", ".join((*published_names(), *demo_names()))
        raise ConfigError("--model", found="nothing", allowed=f"a checkpoint folder, or one of {names}")
    from rlt_hw.cli.recorded import read_machine
    from rlt_hw.runtime.planning import assess_plan

    machine = read_machine(environment) if environment else None
    if target == "auto":
        machine, target = _this_machine(machine)
    report = assess_plan(
        model,
        target,
        attention=attention,
        prefill=prefill,
        decode=decode,
        operators=operators,
        dtype=dtype,
        kv_cache_dtype=kv_dtype,
        page_size=page_size,
        kv_layout=kv_layout,
        graph=graph,
        batch_invariant=batch_invariant,
        tensor_parallel=tp,
        max_num_seqs=max_seqs,
        context=context,
        loops=loops,
        exit_threshold=exit_threshold,
        memory_bytes=None if memory is None else parse_bytes(memory),
        environment=machine,
    )
    if as_json:
        write_json(report.to_json())
    else:
        print("\n".join(lines(report)))
    if not report.decision.supported:
        raise typer.Exit(UNSUPPORTED)


def parse_bytes(text: str) -> int:
    """A size such as "24GiB", "80GB" or plain bytes. Raises ConfigError."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", text)
    if not match or match[2].lower() not in _UNITS:
        raise ConfigError("--memory", found=repr(text), allowed="a number with GiB, GB, MiB or MB, or bytes")
    return int(float(match[1]) * _UNITS[match[2].lower()])


def lines(report: PlanReport) -> Iterator[str]:
    """The report as text, a line at a time."""
    model = report.model
    yield (
        f"model: {model.name}, {model.family}, {model.parameters:,} parameters, {model.num_layers} layers, "
        f"{model.loops} loops, {model.num_heads}/{model.num_kv_heads} heads of {model.head_dim}"
    )
    yield report.decision.table()
    if report.memory:
        yield from _memory_lines(report)
    if report.assumed:
        yield f"assumed: {', '.join(report.assumed)}"
    for note in report.notes:
        yield f"note: {note}"


def _memory_lines(report: PlanReport) -> Iterator[str]:
    plan = report.memory
    assert plan is not None
    yield f"memory of each device: {_size(plan.total)} ({report.memory_source})"
    yield (
        f"  weights {_size(plan.weights)} (files {_size(plan.checkpoint)}), working memory about "
        f"{_size(plan.working)}"
    )
    yield f"  KV {plan.kv_per_token:,} bytes a token over {plan.planes} planes"
    yield (
        f"  a request of {plan.context:,} tokens takes {plan.pages_per_request:,} pages of {plan.page_size} "
        f"({plan.blocks_per_request:,} blocks), {_size(plan.pages_per_request * plan.page_bytes)}"
    )
    if plan.pages is not None:
        yield (
            f"  fits: {plan.tokens:,} tokens, {plan.sequences:,} sequences of {plan.context:,} tokens "
            f"({report.max_num_seqs} asked for), in a pool of {_size(plan.kv_pool)}"
        )


def _size(size: int | None) -> str:
    return gib(size) if size is None or size >= 1024**3 else f"{size / 1024**2:.1f} MiB"


def _this_machine(machine: Environment | None) -> tuple[Environment, Any]:
    """The machine and the target of the device that an engine would take."""
    from rlt_hw.devices.choice import choose_device
    from rlt_hw.devices.detect import detect

    machine = machine or detect()
    return machine, choose_device("auto", machine).require().target


def _list_targets(as_json: bool) -> None:
    from rlt_hw.devices.facts import TargetFacts, facts, known_targets

    rows = [known for known in map(facts, known_targets()) if isinstance(known, TargetFacts)]
    if as_json:
        write_json({"targets": [row.to_json() for row in rows]})
        return
    for row in rows:
        print(f"{row.target!s:18} {', '.join(row.products)}")
