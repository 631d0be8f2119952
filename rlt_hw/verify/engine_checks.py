"""What an engine must keep on any device, looked at on one model with the backends that were named.

Where the backends promise the same result in every batch, requests must be equal to the bit; where they do
not, rounding may turn a token here and there.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rlt_hw.errors import UnsupportedError
from rlt_hw.reasons import Code
from rlt_hw.runtime.engine import Engine
from rlt_hw.runtime.outputs import RequestOutput
from rlt_hw.runtime.sampling_params import SamplingParams
from rlt_hw.verify.engine_check import CONTEXT, Bench, Finding
from rlt_hw.verify.evaluation import MAX_TOKENS, PUBLISHED, evaluate, read_problems
from rlt_hw.verify.speed import speed

REQUESTS = 12
TOKENS = 40
ENOUGH = 0.9
"""Share of requests that must be equal where rounding may differ."""
ROOM = {"float32": 0.011, "bfloat16": 0.021, "float16": 0.021}
"""By how much an accuracy may miss the published one: one problem of 100, or two."""
THRESHOLD = 0.5
"""For exit rules without a published one."""
INVARIANT, EXACT, AS_IT_IS = {"batch_invariant": True}, {"dtype": "float32"}, dict[str, Any]()

Request = tuple[str | list[int], SamplingParams]


def accuracy(bench: Bench) -> Finding:
    """The quality gate at the checkpoint's own depth, against what it was published with."""
    expected = PUBLISHED.get(bench.model)
    if expected is None:
        raise UnsupportedError(
            "accuracy",
            found=f"{bench.model}, for which none is published",
            allowed=", ".join(PUBLISHED),
            code=Code.MODEL_FEATURE,
        )
    with bench.engine(max_num_seqs=100) as engine:
        scores = evaluate(engine, read_problems(), SamplingParams(max_tokens=MAX_TOKENS))
        room = ROOM[str(engine.decision.dtype.value)]
    right = all(abs(score.accuracy - expected[score.variant]) <= room for score in scores)
    return Finding(right, engine.decision, {score.variant: score.accuracy for score in scores})


def batching(bench: Bench) -> Finding:
    """Requests that leave at depths of their own give together what each gives alone."""
    return _beside(bench, noise=False)


def isolation(bench: Bench) -> Finding:
    """Requests do not notice others that are hot, long, aborted on the way, or were there before."""
    return _beside(bench, noise=True)


def leaks(bench: Bench) -> Finding:
    """Pages come back when requests end or are aborted, and the device's memory when an engine closes."""
    held, pages_lost = [], 0
    for _ in range(3):
        with bench.engine() as engine:
            requests = _requests(engine)
            engine.generate([prompt for prompt, _ in requests], SamplingParams(max_tokens=8))
            names = [engine.add_request(*request) for request in requests]
            for _ in range(5):
                engine.step()
            for name in names:
                engine.release(name)
            stats, platform, device = engine.stats(), engine.platform, engine.torch_device
            pages_lost += stats.pages_total - stats.pages_free
        gc.collect()
        held.append(0 if device.type == "cpu" else platform.memory(device.index or 0).allocated)
    grown = held[2] - held[1]  # the first engine leaves what libraries keep
    numbers = {"pages lost": pages_lost, "bytes lost": None if device.type == "cpu" else grown}
    return Finding(pages_lost == 0 and grown <= 0, engine.decision, numbers)


def graphs(bench: Bench) -> Finding:
    """Captured decode steps give the tokens of steps that are launched operation by operation."""
    captured, choice = bench.first(EXACT, AS_IT_IS, graph="full")
    with captured as engine:
        replayed = _together(engine, _requests(engine))
    with bench.engine(graph="none", **choice) as engine:
        eager = _together(engine, _requests(engine))
    return _compared(eager, replayed, decision=captured.decision, to_the_bit=False)


ACCURACY = "accuracy of a trained model"
CHECKS: dict[str, Callable[[Bench], Finding]] = {
    ACCURACY: accuracy,
    "together as alone": batching,
    "alone beside noise": isolation,
    "nothing is left behind": leaks,
    "graphs give what eager gives": graphs,
    "speed": speed,
}


def _beside(bench: Bench, *, noise: bool) -> Finding:
    engine, choice = bench.first(INVARIANT, EXACT, AS_IT_IS)
    with engine:
        requests = _requests(engine)
        alone = [engine.generate([prompt], params)[0] for prompt, params in requests]
        beside = _in_noise(engine, requests) if noise else _together(engine, requests)
    return _compared(alone, beside, decision=engine.decision, to_the_bit=choice is INVARIANT)


def _requests(engine: Engine) -> list[Request]:
    """Prompts that the model was trained on, or random ones; with an adaptive exit where there is one."""
    rule = engine.exit_rules[0] if engine.exit_rules else None
    threshold = THRESHOLD if rule and not engine.exit_defaults else None
    rng = np.random.default_rng(0)
    if engine.spec.name in PUBLISHED:
        prompts: Sequence[Any] = [problem.prompt for problem in read_problems()[:REQUESTS]]
    else:
        prompts = [
            rng.integers(0, engine.vocab_size, int(rng.integers(1, 100))).tolist() for _ in range(REQUESTS)
        ]
    return [
        (
            prompt,
            SamplingParams(max_tokens=TOKENS, seed=number, exit_rule=rule, exit_threshold=threshold),
        )
        for number, prompt in enumerate(prompts)
    ]


def _together(engine: Engine, requests: Sequence[Request]) -> list[RequestOutput]:
    return engine.generate([prompt for prompt, _ in requests], [params for _, params in requests])


def _in_noise(engine: Engine, requests: Sequence[Request]) -> list[RequestOutput]:
    """The requests, each followed by one of random tokens and a high temperature; every other step one of
    these is aborted."""
    rng = np.random.default_rng(1)
    names, noise = [], []
    for number, request in enumerate(requests):
        names.append(engine.add_request(*request))
        tokens = rng.integers(0, engine.vocab_size, int(rng.integers(1, CONTEXT // 2))).tolist()
        hot = SamplingParams(temperature=5.0, seed=number, max_tokens=2 * TOKENS, ignore_eos=True)
        noise.append(engine.add_request(tokens, hot))
    steps = 0
    while any(not engine.output(name).finished for name in names):
        engine.step()
        steps += 1
        if noise and steps % 2:
            engine.release(noise.pop(0))
    outputs = [engine.output(name) for name in names]
    for name in (*names, *noise):
        engine.release(name)
    return outputs


def _compared(
    expected: Sequence[RequestOutput], found: Sequence[RequestOutput], *, decision: Any, to_the_bit: bool
) -> Finding:
    pairs = list(zip(expected, found, strict=True))
    equal = sum((a.token_ids, a.exit_depths) == (b.token_ids, b.exit_depths) for a, b in pairs)
    broken = sum(output.finish_reason not in ("stop", "length") for output in (*expected, *found))
    depths = [depth for output in found for depth in output.exit_depths]
    numbers: dict[str, float | int | str | None] = {
        "requests": len(pairs),
        "equal": equal,
        "must be": "equal to the bit" if to_the_bit else f"equal in {ENOUGH:.0%}",
        "mean depth": sum(depths) / len(depths),
        "dtype": str(decision.dtype.value),
    }
    share = 1.0 if to_the_bit else ENOUGH
    return Finding(not broken and equal >= share * len(pairs), decision, numbers)
