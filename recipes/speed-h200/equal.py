"""equal.py: whether captured, adaptive and batch-invariant steps give the tokens they must, on this GPU.

Prints a JSON object a line. Requests are greedy; those of published models are random, over dummy weights.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from rlt_hw import Engine, RequestOutput, SamplingParams
from rlt_hw.verify.evaluation import read_problems

PLAIN = {"attention": "torch_sdpa", "operators": "torch_native", "graph": "none"}
TOKENS = 48


def open_engine(model: str, **options: Any) -> Engine:
    load = {} if model.startswith("demo:") else {"load_format": "dummy"}
    return Engine(model, device="cuda", max_num_seqs=64, max_model_len=1024, **load, **options)


def prompts(model: str, vocab_size: int, count: int) -> list[Any]:
    if model.startswith("demo:"):
        return [problem.prompt for problem in read_problems()[:count]]
    rng = np.random.default_rng(0)
    return [rng.integers(0, vocab_size, int(rng.integers(1, 600))).tolist() for _ in range(count)]


def equal(model: str, what: str, first: Sequence[RequestOutput], second: Sequence[RequestOutput]) -> None:
    same = sum(
        (a.token_ids, a.exit_depths) == (b.token_ids, b.exit_depths)
        for a, b in zip(first, second, strict=True)
    )
    depths = [depth for output in first for depth in output.exit_depths]
    mean = round(sum(depths) / len(depths), 3)
    found = {"model": model, "check": what, "requests": len(first), "equal": same, "mean depth": mean}
    print(json.dumps(found), flush=True)


def captured(model: str, count: int, **depth: Any) -> None:
    """float32: the captured step with fused kernels, and plain torch launched by the host."""
    params = SamplingParams(max_tokens=TOKENS, ignore_eos=True, **depth)
    outputs = []
    for options in ({"graph": "full"}, PLAIN):
        with open_engine(model, dtype="float32", **options) as engine:
            outputs.append(engine.generate(prompts(model, engine.vocab_size, count), params))
    equal(model, f"captured as plain torch, float32, {depth or 'full depth'}", *outputs)


def alone_and_together(model: str, **depth: Any) -> None:
    """bfloat16, batch-invariant: 64 requests at once, and some of them alone."""
    params = SamplingParams(max_tokens=TOKENS, ignore_eos=True, **depth)
    with open_engine(model, dtype="bfloat16", batch_invariant=True) as engine:
        asked = prompts(model, engine.vocab_size, 64)
        together = engine.generate(asked, params)
        picked = range(0, 64, 8)
        alone = [engine.generate([asked[i]], params)[0] for i in picked]
    equal(model, f"alone as among 64, {depth or 'full depth'}", alone, [together[i] for i in picked])


if __name__ == "__main__":
    captured("Ouro-1.4B", 8)
    captured("Ouro-1.4B", 8, exit_threshold=0.7)
    captured("Nanbeige4.2-3B", 8)
    captured("Huginn-0125", 4)
    captured("demo:ouro", 32, exit_threshold=0.5)
    alone_and_together("Ouro-1.4B")
    alone_and_together("Ouro-1.4B", exit_threshold=0.7)
    for demo in ("demo:ouro", "demo:nanbeige", "demo:huginn"):
        alone_and_together(demo)
