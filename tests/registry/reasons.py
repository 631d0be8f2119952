"""One case a code: how a user meets it. The pages of docs/reasons show these very texts.

python -m tests.registry.reasons          print them
python -m tests.registry.reasons --write  put them into docs/reasons/*.md
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from rlt_hw.backends.catalog import load_registry
from rlt_hw.devices.detect import Ran, detect
from rlt_hw.devices.target import Target
from rlt_hw.reasons import Code, Rejection
from rlt_hw.registry import (
    BackendSpec,
    BrokenPlugin,
    Kind,
    Registry,
    Sizes,
    assess_jointly,
    first_rejection,
)
from rlt_hw.runtime.planning import assess_plan
from tests.devices.machines import H200, smi
from tests.registry.machines import machine, need

PAGES = Path(__file__).parents[2] / "docs" / "reasons"
UNLIKE = smi(("NVIDIA H200", "9.0", 143771, 143156, "580.1"), ("NVIDIA L4", "8.9", 23034, 22000, "580.1"))
RATIOS = BackendSpec(Kind.ATTENTION, "fixed_ratio", "x:Y", ("*",), gqa_ratios=Sizes(values=(1, 4, 8)))
TILES = BackendSpec(Kind.ATTENTION, "wide_tile", "x:Y", ("*",), tile_tokens=256)
ONE_PLANE = BackendSpec(Kind.KV, "one_plane", "x:Y", ("*",), loop_planes=False)
BROKEN = BrokenPlugin(
    "acme",
    "acme-rlt 1.2",
    Rejection(
        Code.PLUGIN,
        "acme (acme-rlt 1.2)",
        "ImportError on import: libacme.so.3: cannot open shared object file",
        "a module that imports",
        "`pip install --upgrade acme-rlt`, or `pip uninstall acme-rlt`",
    ),
)


def refused(target: str, change: str = "all", *extra: BackendSpec, **fields) -> Rejection:
    """What an error would say first."""
    registry = load_registry(points=())
    registry = replace(registry, specs=(*registry.specs, *extra), broken=(BROKEN,))
    at = Target.parse(target)
    return first_rejection(assess_jointly(at, need(**fields), machine(at, change), registry))


def row(target: str, backend: str, change: str = "all", **fields) -> Rejection:
    """The first reason against one attention backend for decode, in a decision that may succeed."""
    registry: Registry = load_registry(points=())
    at = Target.parse(target)
    decision = assess_jointly(at, need(**fields), machine(at, change), registry)
    return next(row for row in decision.decode.candidates if row.name == backend).rejections[0]


def finding(code: Code, **changes) -> Rejection:
    """A finding of detection on a machine with an H200, changed."""
    return next(row for row in detect(H200.having(**changes)).findings if row.code is code)


def too_big() -> Rejection:
    return first_rejection(assess_plan("Huginn-0125", "rtx 5090", context=4096, loops=128).decision)


EXAMPLES: dict[Code, Callable[[], Rejection]] = {
    Code.ARCH: lambda: refused("nvidia:sm120", attention="flash_attn_4"),
    Code.ARCH_UNKNOWN: lambda: refused("nvidia:sm75"),
    Code.HEAD_DIM: lambda: refused("nvidia:sm90", attention="flashinfer", head_dim=96),
    Code.GQA_RATIO: lambda: refused(
        "nvidia:sm90", "all", RATIOS, attention="fixed_ratio", num_heads=48, num_kv_heads=8
    ),
    Code.DTYPE: lambda: refused("nvidia:sm90", attention="flashinfer", dtype="float32"),
    Code.KV_DTYPE: lambda: refused("nvidia:sm90", attention="triton_paged", kv_dtype="float8_e4m3fn"),
    Code.PAGE_SIZE: lambda: refused("nvidia:sm90", attention="flash_attn", page_size=64),
    Code.KV_LAYOUT: lambda: refused("nvidia:sm90", allowed_kv_layouts=("full",), kv_layout="last_exited"),
    Code.PHASE: lambda: refused("nvidia:sm90", attention="flashinfer_xqa"),
    Code.GRAPH: lambda: refused("cpu", graph="full"),
    Code.PKG_MISSING: lambda: refused("nvidia:sm90", "-triton", attention="triton_paged"),
    Code.PKG_VERSION: lambda: refused("nvidia:sm90", "triton==3.2.0", attention="triton_paged"),
    Code.PKG_BROKEN: lambda: refused("nvidia:sm90", "!triton", attention="triton_paged"),
    Code.TOOLCHAIN: lambda: row("nvidia:sm120", "flashinfer", "nvcc==12.4"),
    Code.DRIVER: lambda: refused("nvidia:sm90", "driver==525.60"),
    Code.TORCH_BUILD: lambda: refused("nvidia:sm90", "torch-cpu"),
    Code.RESOURCE: lambda: refused("nvidia:sm86", "all", TILES, attention="wide_tile"),
    Code.MEMORY: too_big,
    Code.VISIBILITY: lambda: finding(Code.VISIBILITY, variables={"CUDA_VISIBLE_DEVICES": "3"}),
    Code.MIXED_DEVICES: lambda: finding(Code.MIXED_DEVICES, commands={"nvidia-smi --query-gpu": UNLIKE}),
    Code.COMM: lambda: refused("cpu", tensor_parallel=2, communication="local"),
    Code.TP_DIVISIBILITY: lambda: refused(
        "nvidia:sm90", num_heads=55, num_kv_heads=55, head_dim=96, tensor_parallel=2
    ),
    Code.MODEL_FEATURE: lambda: refused("nvidia:sm90", exit_rules=(), exit_threshold=0.5),
    Code.LOOP_KV: lambda: refused("cpu", "all", ONE_PLANE, kv="one_plane"),
    Code.COMBINATION: lambda: refused("nvidia:sm90", prefill="flash_attn", decode="flashinfer_xqa"),
    Code.PLUGIN: lambda: refused("cpu", attention="acme"),
    Code.ENV_UNKNOWN: lambda: finding(Code.ENV_UNKNOWN, variables={"RLT_HW_DEVIC": "cpu"}),
    Code.PROBE_TIMEOUT: lambda: finding(
        Code.PROBE_TIMEOUT, commands={"nvidia-smi --query-gpu": Ran("timeout", error="no answer")}
    ),
}
ELSEWHERE = {Code.CHECKPOINT, Code.TOKENIZER}
"""Codes of weights and text, whose cases are tests of those parts."""

_BLOCK = re.compile(r"```text\n.*?```", re.DOTALL)


def write() -> None:
    """Put every example into its page."""
    for code, example in EXAMPLES.items():
        page = PAGES / f"{code}.md"
        before, after = _BLOCK.split(page.read_text(encoding="utf-8"), maxsplit=1)
        page.write_text(f"{before}```text\n{example()}\n```{after}", encoding="utf-8")


if __name__ == "__main__":
    if "--write" in sys.argv:
        write()
    else:
        for example in EXAMPLES.values():
            print(example())
