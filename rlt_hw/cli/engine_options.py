"""The options that every command with an engine takes, and how they become one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rlt_hw.runtime.engine import Engine
    from rlt_hw.runtime.sampling_params import SamplingParams

Model = Annotated[str, typer.Option(help="A checkpoint folder or demo:NAME.")]
Device = Annotated[str, typer.Option(help='"auto", "cpu", "cuda:0", "npu:0" or a target.')]
Dtype = Annotated[str, typer.Option(help="auto, float32, bfloat16 or float16.")]
Attention = Annotated[str, typer.Option(help="An attention backend, or auto.")]
Operators = Annotated[str, typer.Option(help="An operators backend, or auto.")]
BatchInvariant = Annotated[
    bool,
    typer.Option("--batch-invariant", help="A request's tokens do not depend on what else runs, to the bit."),
]
KVDtype = Annotated[str, typer.Option("--kv-dtype", "--kv-cache-dtype", help="The cache's dtype.")]
KVLayout = Annotated[str, typer.Option(help="auto, full, last_exited or shared.")]
PageSize = Annotated[int | None, typer.Option(help="Tokens a KV page.")]
Graph = Annotated[str, typer.Option(help="auto, none, piecewise or full.")]
MaxSeqs = Annotated[int, typer.Option("--max-seqs", "--max-num-seqs", help="Requests running at once.")]
MaxLen = Annotated[int | None, typer.Option("--context", "--max-model-len", help="Tokens of a request.")]
LoadFormat = Annotated[str, typer.Option(help='"auto", or "dummy" for random weights.')]
Loops = Annotated[int | None, typer.Option("--loops", "--num-loops", help="Loops, or at most with an exit.")]
MinLoops = Annotated[int, typer.Option(help="Loops before an adaptive exit.")]
ExitThreshold = Annotated[float | None, typer.Option(help="Adaptive exit at this threshold.")]
ExitRule = Annotated[str | None, typer.Option(help="The exit rule, default the model's first.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def open_engine(model: str, *, loops: int | None = None, **options: Any) -> Engine:
    """An engine with a progress bar. None among the options means the engine's default; `loops` makes room
    for requests of so many loops, where the checkpoint itself asks for fewer."""
    from rlt_hw.models.config import read_spec
    from rlt_hw.runtime.engine import Engine

    given = {name: value for name, value in options.items() if value is not None}
    if loops is not None and loops > read_spec(model).loops:
        given["max_loops"] = loops
    return Engine(model, progress=True, **given)


@dataclass(frozen=True)
class Depth:
    """The loop options of a command."""

    num_loops: int | None
    min_loops: int
    exit_threshold: float | None
    exit_rule: str | None

    def params(self, **fields: Any) -> SamplingParams:
        from rlt_hw.runtime.sampling_params import SamplingParams

        return SamplingParams(
            num_loops=self.num_loops,
            min_loops=self.min_loops,
            exit_threshold=self.exit_threshold,
            exit_rule=self.exit_rule,
            **fields,
        )
