"""Ascend's whole path on the emulated device `npu`. Prints one line of JSON.

python -m tests.emulated.run_npu golden|half|graphs|conformance|demo
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, replace

import torch_npu  # of the emulated machine; torch must know the device before anything else

from rlt_hw import Engine, SamplingParams
from rlt_hw.backends.catalog import load_registry
from rlt_hw.devices.detect import detect
from rlt_hw.registry import Registry
from rlt_hw.runtime import assembly
from rlt_hw.verify.conformance import machine_here, run
from rlt_hw.verify.evaluation import PUBLISHED, evaluate, read_problems
from rlt_hw.verify.record import record_of
from rlt_hw.verify.suite import Run
from tests.emulated import npu_misuse, npu_operators
from tests.emulated.device import synchronisations
from tests.emulated.npu_graph import NPUGraph
from tests.models.golden import ROOT
from tests.runtime.continuations import CASES, continuations

BACKENDS = ("npu_fia", "npu_fia_decode", "npu_fia_prefill", "npu_atb", "npu")


def golden() -> dict:
    """The reference cases in float32, which the device's operators do not take and the emulated ones here do:
    so the numbers are the adapters' alone. Before, what engines choose and wait for in float16, and what they
    choose where the fused operator is another one."""
    found = {
        "devices": [row.to_json() for row in detect().devices],
        "steps": {row: steps(row) for row in CASES},
        "refused": npu_misuse.refused(torch_npu),
        "older": [with_fused(operator) for operator in (raises_packed, forgets_pages)],
    }
    npu_operators.DTYPES.append(npu_operators.torch.float32)
    assembly.load_registry = lambda: in_float32(load_registry())
    return {**found, "golden": half("float32")}


def in_float32(registry: Registry) -> Registry:
    """With `BACKENDS` declared for float32 too."""
    specs = (
        replace(spec, dtypes=(*spec.dtypes, "float32")) if spec.name in BACKENDS else spec
        for spec in registry.specs
    )
    return replace(registry, specs=tuple(specs))


def with_fused(operator) -> dict:
    """What an engine chooses where the fused operator is this one."""
    kept = torch_npu.npu_fused_infer_attention_score
    torch_npu.npu_fused_infer_attention_score = lambda **given: operator(kept, given)
    with Engine(str(ROOT / "ouro-a"), device="npu", dtype="float16", max_model_len=64) as engine:
        decode = engine.decision.decode
    torch_npu.npu_fused_infer_attention_score = kept
    packed = next(row for row in decode.candidates if row.name == "npu_fia")
    return {"chosen": decode.chosen.name, "rejections": [row.to_json() for row in packed.rejections]}


def raises_packed(operator, given):
    if given["input_layout"] == "TND":
        raise RuntimeError("call aclnnFusedInferAttentionScoreV3 failed, error code is 561002")
    return operator(**given)


def forgets_pages(operator, given):
    if given["input_layout"] == "TND":
        given["block_table"] = npu_operators.torch.zeros_like(given["block_table"])
    return operator(**given)


def half(dtype: str = "float16") -> dict:
    return {name: [asdict(row) for row in continuations(name, device="npu", dtype=dtype)] for name in CASES}


def steps(name: str, graph: str = "none", threshold: float | None = None) -> dict:
    """What was chosen, what two requests gave, and how often the host waited in each of the last steps."""
    options = {"device": "npu", "dtype": "float16", "max_num_seqs": 2, "max_model_len": 64, "graph": graph}
    params = SamplingParams(max_tokens=12, ignore_eos=True, exit_threshold=threshold)
    counts, replays = [], NPUGraph.replays
    with Engine(str(ROOT / name), **options) as engine:
        requests = [engine.add_request(prompt, params) for prompt in ([5, 6, 7], [8, 9])]
        while engine.has_work():
            before = synchronisations()
            engine.step()
            counts.append(synchronisations() - before)
        decision, outputs = engine.decision, [engine.output(request) for request in requests]
        chosen = [part.chosen.name for part in (decision.prefill, decision.decode, decision.operators)]
    return {
        "chosen": chosen,
        "waits": counts[3:-1],
        "replays": NPUGraph.replays - replays,
        "outputs": [(output.token_ids, output.exit_depths) for output in outputs],
    }


def graphs() -> dict:
    """Two requests step by step and captured: tokens, depths, replays, and waits of the last decode steps."""
    found = {}
    for name, threshold in (("ouro-a", None), ("ouro-a", 0.4), ("nanbeige-a", None), ("huginn-b", None)):
        rows = [steps(name, graph=graph, threshold=threshold) for graph in ("none", "full")]
        found[f"{name} {threshold}"] = rows
    return found


def conformance() -> dict:
    """Every case, and what a record of them says."""
    machine = machine_here("npu")
    rows = tuple(row for name in BACKENDS for row in run(name, machine, ("bfloat16", "float16"), long=512))
    record = record_of(Run(machine, "npu_fia", rows, ()), None)
    return {
        "failed": [str(row) for row in rows if row.outcome == "failed"],
        "passed": {name: sum(row.backend == name and row.outcome == "passed" for row in rows)
                   for name in BACKENDS},
        "record": {name: record[name] for name in ("level", "target", "emulated", "backends")},
    }  # fmt: skip


def demo() -> dict:
    found = {}
    for name in PUBLISHED:
        with Engine(name, device="npu", dtype="bfloat16", max_num_seqs=100) as engine:
            scores = evaluate(engine, read_problems(), SamplingParams(max_tokens=64))
            names = [part.chosen.name for part in (engine.decision.prefill, engine.decision.decode)]
        found[name] = {"chosen": names, **{score.variant: score.accuracy for score in scores}}
    return found


if __name__ == "__main__":
    parts = {"golden": golden, "half": half, "graphs": graphs, "conformance": conformance, "demo": demo}
    print(json.dumps(parts[sys.argv[1]]()))
