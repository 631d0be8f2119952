"""The reference cases and a few steps of decoding on an emulated accelerator. Prints one line of JSON.

python -m tests.emulated.run_generic NAME
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict

from tests.emulated.device import register, synchronisations

NAME = sys.argv[1]
register(NAME)

from rlt_hw import Engine, SamplingParams  # noqa: E402 - torch must know the device first
from rlt_hw.devices.detect import detect  # noqa: E402
from tests.models.golden import ROOT  # noqa: E402
from tests.runtime.continuations import CASES, continuations  # noqa: E402


def golden() -> dict[str, list[dict]]:
    return {name: [asdict(row) for row in continuations(name, device=NAME)] for name in CASES}


def waits_of_a_decode_step(name: str) -> list[int]:
    """How often the host waited in each of the last decode steps of one engine with two requests."""
    counts = []
    with Engine(str(ROOT / name), device=NAME, max_num_seqs=2, max_model_len=64) as engine:
        for prompt in ([5, 6, 7], [8, 9]):
            engine.add_request(prompt, SamplingParams(max_tokens=12, ignore_eos=True))
        while engine.has_work():
            before = synchronisations()
            engine.step()
            counts.append(synchronisations() - before)
    return counts[3:-1]


if __name__ == "__main__":
    answer = {
        "devices": [row.to_json() for row in detect().devices],
        "golden": golden(),
        "waits": {name: waits_of_a_decode_step(name) for name in CASES},
    }
    print(json.dumps(answer))
