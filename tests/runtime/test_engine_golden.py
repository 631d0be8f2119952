"""All prompts of a reference case in one engine, from the checkpoint folder to tokens and logprobs."""

from __future__ import annotations

import pytest

from tests.models.golden import ATOL
from tests.runtime.continuations import CASES, continuations


@pytest.mark.parametrize("attention", ["torch_sdpa", "torch_reference"])
@pytest.mark.parametrize("name", CASES)
def test_reference_continuations(name, attention):
    for row in continuations(name, attention=attention):
        assert row.found == row.expected
        assert row.error < 2 * ATOL
