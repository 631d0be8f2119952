"""The prompts of a reference case through an engine, and how far the answers are from the authors' code."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from rlt_hw import Engine, SamplingParams
from tests.models.golden import ROOT, case

CASES = ("ouro-a", "ouro-b", "nanbeige-a", "nanbeige-b", "huginn-a", "huginn-b")
NEW = 24


@dataclass(frozen=True)
class Continuation:
    """One prompt's. found, expected: token ids. error: largest difference of log-probabilities where the
    tokens so far are the same. margin: how far apart the two best tokens are where the ids part, else 0."""

    prompt: str
    found: list[int]
    expected: list[int]
    error: float
    margin: float


def continuations(name: str, **options: Any) -> list[Continuation]:
    """Every prompt of a case, in one engine."""
    options = {"device": "cpu", "dtype": "float32", "max_num_seqs": 6, "max_batched_tokens": 32,
               "max_model_len": 128, **options}  # fmt: skip
    with Engine(str(ROOT / name), **options) as engine:
        return run(engine, name)


def run(engine: Engine, name: str) -> list[Continuation]:
    golden = case(name)
    params = SamplingParams(max_tokens=NEW, ignore_eos=True, logprobs=golden["decode_logits"].shape[1])
    prompts = golden.prompts()
    for prefix, ids in prompts.items():
        states = golden.tensors.get(f"{prefix}initial_state")
        given = None if states is None else states[0].numpy()
        engine.add_request(ids, params, request_id=prefix or "main", initial_states=given)
    while engine.has_work():
        engine.step()
    return [_compared(golden, prefix, engine.output(prefix or "main")) for prefix in prompts]


def _compared(golden, prefix, output) -> Continuation:
    expected = golden[f"{prefix}greedy_ids"][0].tolist()
    found = list(output.token_ids)
    same = next((at for at, pair in enumerate(zip(found, expected, strict=True)) if pair[0] != pair[1]), NEW)
    scores = np.array([[value for _, value in sorted(row.top)] for row in output.logprobs])
    wanted = torch.log_softmax(golden[f"{prefix}decode_logits"], -1).numpy()
    error = float(np.abs(scores - wanted)[: same + 1].max())
    margin = float(wanted[same, expected[same]] - wanted[same, found[same]]) if same < NEW else 0.0
    return Continuation(prefix or "main", found, expected, error, margin)
