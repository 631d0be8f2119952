"""`rlt-hw generate`: text from a prompt, a chat message or a file of prompts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rlt_hw.cli import engine_options as options
from rlt_hw.cli.output import console, write_json
from rlt_hw.errors import ConfigError, RltHwError

if TYPE_CHECKING:
    from rlt_hw.runtime.engine import Engine
    from rlt_hw.runtime.outputs import RequestOutput
    from rlt_hw.runtime.sampling_params import SamplingParams


def generate(  # noqa: PLR0917 - options are named on the command line, never positional
    model: options.Model = "demo:ouro",
    prompt: Annotated[str | None, typer.Option(help="Text to continue.")] = None,
    chat: Annotated[str | None, typer.Option(help="A user's message, through the chat template.")] = None,
    system: Annotated[str | None, typer.Option(help="With --chat: the system message.")] = None,
    thinking: Annotated[
        bool | None, typer.Option("--thinking/--no-thinking", help="With --chat: enable_thinking.")
    ] = None,
    file: Annotated[
        Path | None, typer.Option(help='JSONL: {"prompt": ..., and sampling parameters} a line.')
    ] = None,
    max_tokens: Annotated[int, typer.Option(help="New tokens at most.")] = 256,
    temperature: Annotated[float, typer.Option(help="0 is greedy.")] = 0.0,
    top_k: Annotated[int, typer.Option(help="0 is off.")] = 0,
    top_p: Annotated[float, typer.Option(help="1 is off.")] = 1.0,
    seed: Annotated[int | None, typer.Option(help="For the sampler and random start states.")] = None,
    stop: Annotated[list[str] | None, typer.Option(help="A string that ends the text.")] = None,
    loops: options.Loops = None,
    min_loops: options.MinLoops = 1,
    exit_threshold: options.ExitThreshold = None,
    exit_rule: options.ExitRule = None,
    show_depth: Annotated[bool, typer.Option("--show-depth", help="Show each token's depth.")] = False,
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
    context: options.MaxLen = None,
    load_format: options.LoadFormat = "auto",
    as_json: options.AsJson = False,
) -> None:
    """Generate text. One of --prompt, --chat and --file says what from.

    With --file every line is a request of its own, and the answers are JSON lines in the same order.
    """
    if sum(source is not None for source in (prompt, chat, file)) != 1:
        raise ConfigError("prompt", found="none or several", allowed="one of --prompt, --chat and --file")
    depth = options.Depth(loops, min_loops, exit_threshold, exit_rule)
    params = depth.params(
        max_tokens=max_tokens,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        seed=seed,
        stop=tuple(stop or ()),
    )
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
        max_model_len=context,
        load_format=load_format,
    ) as engine:
        if file is not None:
            for line in _answers(engine, file, params):
                print(json.dumps(line, ensure_ascii=False))
            return
        ids = engine.tokenizer.encode(prompt) if prompt is not None else _chat(engine, chat, system, thinking)
        if as_json:
            write_json({"model": model, **engine.generate([ids], params)[0].to_json()})
        elif show_depth:
            _show_depth(engine, engine.generate([ids], params)[0])
        else:
            _stream(engine, ids, params)


def _chat(engine: Engine, message: str | None, system: str | None, thinking: bool | None) -> list[int]:
    messages = [{"role": "system", "content": system}] if system is not None else []
    messages.append({"role": "user", "content": message or ""})
    variables: dict[str, Any] = {} if thinking is None else {"enable_thinking": thinking}
    return engine.tokenizer.encode_chat(messages, **variables)


def _stream(engine: Engine, ids: list[int], params: SamplingParams) -> None:
    """Print the text as it grows."""
    shown = 0
    for output in engine.stream([ids], params):
        text = output.text or ""
        print(text[shown:], end="", flush=True)
        shown = len(text)
        _raise_for(output)
    print()


def _raise_for(output: RequestOutput) -> None:
    if output.finish_reason == "error":
        raise RltHwError(f"request {output.request_id}", found=output.error or "", allowed="a run to its end")


def _answers(engine: Engine, file: Path, params: SamplingParams) -> Iterator[dict[str, Any]]:
    """An answer for every line; a line that cannot run answers with its error."""
    names = [_submit(engine, file, number, line, params) for number, line in enumerate(_lines(file), 1)]
    while engine.has_work():
        engine.step()
    for name in names:
        if isinstance(name, dict):
            yield name
        else:
            yield engine.output(name).to_json()
            engine.release(name)


def _submit(
    engine: Engine, file: Path, number: int, line: str, params: SamplingParams
) -> str | dict[str, Any]:
    """The id of a line's request, or the answer that says why it cannot run."""
    try:
        prompt, own = _request(file, number, line, params)
        return engine.add_request(prompt, own)
    except RltHwError as error:
        return {"line": number, "error": error.to_json()}


def _lines(file: Path) -> list[str]:
    try:
        return [line for line in file.read_text(encoding="utf-8").splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"file {file}", found=str(error), allowed="a readable JSONL file") from error


def _request(
    file: Path, number: int, line: str, params: SamplingParams
) -> tuple[str | list[int], SamplingParams]:
    """A line's prompt and parameters, which stand over those of the command."""
    from dataclasses import asdict

    from rlt_hw.runtime.sampling_params import SamplingParams

    try:
        data = json.loads(line)
    except ValueError as error:
        raise ConfigError(f"{file}, line {number}", found=str(error), allowed="a JSON object") from error
    if not isinstance(data, dict) or not isinstance(data.get("prompt"), (str, list)):
        raise ConfigError(
            f"{file}, line {number}",
            found=line[:60],
            allowed='a JSON object with "prompt", a text or token ids',
        )
    return data.pop("prompt"), SamplingParams.from_dict({**asdict(params), **data})


def _show_depth(engine: Engine, output: RequestOutput) -> None:
    """The text with each token coloured, or where there is no colour numbered, by its depth."""
    from rich.text import Text

    _raise_for(output)
    screen = console()
    pieces = _pieces(engine, output)
    text = Text()
    for piece, depth in pieces:
        text.append(piece, style=_colour(depth, engine.max_loops))
        if screen.color_system is None and piece:
            text.append(str(depth).translate(SUBSCRIPT))
    screen.print(text)
    counts = {depth: output.exit_depths.count(depth) for depth in sorted(set(output.exit_depths))}
    legend = Text("loops a token ran: ")
    for depth, count in counts.items():
        legend.append(f"{depth}", style=_colour(depth, engine.max_loops))
        legend.append(f" x {count}  ")
    legend.append(f"mean {output.mean_exit_depth:.2f} of {engine.max_loops}")
    screen.print(legend)


SUBSCRIPT = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")
COLOURS = ("cyan", "green", "yellow", "magenta", "red")


def _colour(depth: int, most: int) -> str:
    return COLOURS[min((depth - 1) * len(COLOURS) // max(most, 1), len(COLOURS) - 1)]


def _pieces(engine: Engine, output: RequestOutput) -> list[tuple[str, int]]:
    """The text that each token brought, and the token's depth."""
    detokenizer = engine.tokenizer.detokenizer()
    pieces = [detokenizer.add(token) for token in output.token_ids]
    pieces[-1] += detokenizer.finish()
    return list(zip(pieces, output.exit_depths, strict=True))
