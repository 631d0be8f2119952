"""All prompts of a reference case in one engine, from the checkpoint folder to tokens and logprobs."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from rlt_hw import Engine, SamplingParams
from tests.models.golden import ATOL, ROOT, case

CASES = ("ouro-a", "ouro-b", "nanbeige-a", "nanbeige-b", "huginn-a", "huginn-b")
NEW = 24


@pytest.mark.parametrize("attention", ["torch_sdpa", "torch_reference"])
@pytest.mark.parametrize("name", CASES)
def test_reference_continuations(name, attention):
    golden = case(name)
    vocab = golden["decode_logits"].shape[1]
    params = SamplingParams(max_tokens=NEW, ignore_eos=True, logprobs=vocab)
    prompts = golden.prompts()
    with Engine(
        str(ROOT / name),
        device="cpu",
        dtype="float32",
        attention=attention,
        max_num_seqs=6,
        max_batched_tokens=32,
        max_model_len=128,
    ) as engine:
        for prefix, ids in prompts.items():
            states = golden.tensors.get(f"{prefix}initial_state")
            given = None if states is None else states[0].numpy()
            engine.add_request(ids, params, request_id=prefix or "main", initial_states=given)
        while engine.has_work():
            engine.step()
        for prefix in prompts:
            output = engine.output(prefix or "main")
            assert list(output.token_ids) == golden[f"{prefix}greedy_ids"][0].tolist()
            found = np.array([[value for _, value in sorted(row.top)] for row in output.logprobs])
            expected = torch.log_softmax(golden[f"{prefix}decode_logits"], -1).numpy()
            assert np.abs(found - expected).max() < 2 * ATOL
