"""Whatever the target, the need and the machine: a decision or UnsupportedError, and the promises hold."""

import json

from hypothesis import given
from hypothesis import strategies as st

from rlt_hw.backends.catalog import load_registry
from rlt_hw.devices.environment import Device, Environment, Package, TorchBuild
from rlt_hw.devices.facts import known_targets
from rlt_hw.devices.target import Target
from rlt_hw.errors import UnsupportedError
from rlt_hw.reasons import Code
from rlt_hw.registry import GRAPH_LEVELS, Kind, Need, resolve

REGISTRY = load_registry(points=())
NAMES = {kind: ["auto", *(spec.name for spec in REGISTRY.of(kind))] for kind in Kind}
UNKNOWN = [
    Target("nvidia", "sm75"),
    Target("amd", "gfx1250"),
    Target("ascend", "x"),
    Target("emulated", "npu"),
]
VERSIONS = ("0.1", "2.6.3", "2.11.0", "3.6.0", "4.0.0b36", "0.7.4", "1!2.0", "not a version", "")
PACKAGES = ("triton", "triton-rocm", "flashinfer-python", "flash-attn", "flash-attn-4", "torch-npu", "torch")

targets = st.sampled_from([*known_targets(), *UNKNOWN])
dtypes = st.sampled_from(["auto", "float32", "bfloat16", "float16", "float8_e4m3fn", "int4"])
packages = st.dictionaries(
    st.sampled_from(PACKAGES),
    st.builds(Package, st.just("x"), st.sampled_from(VERSIONS), st.sampled_from([None, "broken"])),
)
builds = st.builds(
    TorchBuild,
    st.sampled_from(["2.7.0", "2.11.0+cu130", "2.13.0+cpu", "unknown"]),
    st.sampled_from([None, "11.8", "12.8", "13.0"]),
    st.sampled_from([None, "6.4"]),
)
toolkits = st.dictionaries(st.sampled_from(["nvcc", "cxx"]), st.sampled_from(["9", "12.4", "13.0", "junk"]))


@st.composite
def machines(draw, target):
    driver = draw(st.sampled_from([None, "450.1", "580.159.04"]))
    here = (Device(target, 0, "x", driver=driver),) if draw(st.booleans()) else ()
    torch = draw(st.none() | builds)
    return Environment(packages=draw(packages), torch=torch, devices=here, toolkits=draw(toolkits))


@st.composite
def needs(draw):
    kv_heads = draw(st.integers(1, 64))
    return Need(
        num_heads=draw(st.sampled_from([kv_heads, kv_heads * 4, kv_heads + 1])),
        num_kv_heads=kv_heads,
        head_dim=draw(st.integers(1, 512)),
        model_dtype=draw(st.sampled_from(["float32", "bfloat16", "float16"])),
        allowed_kv_layouts=draw(st.sampled_from([("full",), ("last_exited", "full", "shared")])),
        loops=draw(st.integers(1, 64)),
        exit_rules=draw(st.sampled_from([(), ("gate",)])),
        exit_threshold=draw(st.none() | st.floats(-1, 2)),
        dtype=draw(dtypes),
        kv_dtype=draw(dtypes),
        page_size=draw(st.none() | st.integers(1, 1024)),
        kv_layout=draw(st.sampled_from(["auto", "full", "last_exited", "shared", "ring"])),
        graph=draw(st.sampled_from(["auto", *GRAPH_LEVELS])),
        tensor_parallel=draw(st.integers(1, 16)),
        attention=draw(st.sampled_from(NAMES[Kind.ATTENTION])),
        prefill=draw(st.sampled_from(NAMES[Kind.ATTENTION])),
        decode=draw(st.sampled_from(NAMES[Kind.ATTENTION])),
        kv=draw(st.sampled_from(NAMES[Kind.KV])),
        graph_backend=draw(st.sampled_from(NAMES[Kind.GRAPH])),
        communication=draw(st.sampled_from(NAMES[Kind.COMMUNICATION])),
    )


@given(st.data())
def test_nothing_but_decisions_and_refusals(data):
    target = data.draw(targets)
    need, machine = data.draw(needs()), data.draw(machines(target))
    try:
        decision = resolve(target, need, machine, REGISTRY)
    except UnsupportedError as error:
        refused, decision = error, error.decision
    else:
        refused = None
        kept(need, decision)
    if refused is not None:
        assert refused.code in {code.value for code in Code}
        assert not decision.supported
        assert refused.remedy
    json.dumps(decision.to_json())
    assert decision.table()


def kept(need, decision):
    """What the user set is what was decided; what was chosen had nothing against it."""
    for part in decision.parts:
        assert part.asked in ("auto", part.chosen.name)
        row = next(row for row in part.candidates if row.name == part.chosen.name)
        assert not row.rejections
    set_values = {"dtype": need.dtype, "kv_dtype": need.kv_dtype, "kv_layout": need.kv_layout}
    for name, value in {**set_values, "graph_level": need.graph}.items():
        assert value in ("auto", decision.derived[name].value)
    assert need.page_size in (None, decision.page_size.value)
    for part in (decision.prefill, decision.decode, decision.kv):
        assert decision.page_size.value in part.chosen.page_sizes
        assert decision.kv_layout.value in part.chosen.kv_layouts
