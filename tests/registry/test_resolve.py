"""Rules of the choice: what the user named is honoured or refused, what follows carries its origin."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from rlt_hw.backends.catalog import load_registry
from rlt_hw.devices.target import Target
from rlt_hw.errors import ConfigError, UnsupportedError
from rlt_hw.reasons import Code, Rejection
from rlt_hw.registry import (
    BackendSpec,
    Kind,
    Rank,
    Registry,
    Sizes,
    assess,
    assess_jointly,
    resolve,
    select,
)
from tests.registry.machines import machine, need

CPU, H200, MI300X, NPU_310P = (Target.parse(t) for t in ("cpu", "nvidia:sm90", "amd:gfx942", "ascend:310p"))
REGISTRY = load_registry(points=())


def with_specs(*specs: BackendSpec) -> Registry:
    return replace(REGISTRY, specs=(*REGISTRY.specs, *specs))


def attention(name: str, **fields) -> BackendSpec:
    ranks = (Rank("*", fields.pop("rank", 1000), "a test"),)
    return BackendSpec(Kind.ATTENTION, name, "tests:Nothing", ("*",), ranks=ranks, **fields)


def code_of(target, registry=REGISTRY, change="all", **fields):
    with pytest.raises(UnsupportedError) as caught:
        resolve(target, need(**fields), machine(target, change), registry)
    return caught.value.code


def resolved(target=CPU, registry=REGISTRY, **fields):
    return resolve(target, need(**fields), machine(target), registry)


class TestTheOrder:
    def test_a_named_backend_is_taken_whatever_its_rank(self):
        decision = resolved(H200, attention="torch_reference")
        assert decision.decode.chosen.name == decision.prefill.chosen.name == "torch_reference"
        assert decision.decode.reason == "named by the user"

    def test_prefill_and_decode_are_named_apart(self):
        decision = resolved(H200, attention="triton_paged", prefill="flash_attn_4")
        assert (decision.prefill.chosen.name, decision.decode.chosen.name) == ("flash_attn_4", "triton_paged")

    def test_a_named_backend_that_does_not_fit_is_an_error_with_its_table(self):
        with pytest.raises(UnsupportedError) as caught:
            resolved(H200, attention="flashinfer", head_dim=96)
        assert caught.value.code == "HEAD_DIM"
        assert "flashinfer refused" in str(caught.value)
        assert "triton_paged" in str(caught.value)

    def test_auto_never_takes_a_worse_backend_silently(self):
        decision = resolved(H200, head_dim=96)
        rejected = {row.name: row.rejections for row in decision.decode.candidates}
        assert [row.code for row in rejected["flashinfer"]] == [Code.HEAD_DIM]

    def test_the_most_specific_rank_counts(self):
        ranks = (Rank("*", 1, "any"), Rank("cpu", 3, "cpu"), Rank("cpu:*", 2, "cpus"))
        spec = BackendSpec(Kind.ATTENTION, "ranked", "a:B", ("*",), ranks=ranks)
        assert spec.rank(CPU, None).value == 3

    def test_an_equal_rank_is_ordered_by_name(self):
        registry = with_specs(attention("b"), attention("a"))
        assert resolved(registry=registry).decode.chosen.name == "a"

    def test_an_unknown_name_is_a_usage_error_with_the_nearest(self):
        with pytest.raises(ConfigError, match="Did you mean 'triton_paged'"):
            resolved(attention="triton")

    def test_a_wrong_architecture_stands_alone(self):
        decision = assess_jointly(CPU, need(head_dim=96), machine(CPU), REGISTRY)
        rejected = {row.name: row.rejections for row in decision.decode.candidates}
        assert [row.code for row in rejected["flashinfer"]] == [Code.ARCH]

    def test_otherwise_every_reason_is_kept(self):
        decision = assess_jointly(
            H200, need(head_dim=96, dtype="float32", page_size=8), machine(H200, "none"), REGISTRY
        )
        rejected = {
            row.name: [reason.code for reason in row.rejections] for row in decision.decode.candidates
        }
        assert rejected["flashinfer"] == [Code.HEAD_DIM, Code.DTYPE, Code.PKG_MISSING]
        assert rejected["flash_attn_4"] == [Code.DTYPE, Code.PAGE_SIZE, Code.PKG_MISSING]


class TestDerivedValues:
    def test_they_carry_their_origin(self):
        decision = resolved(H200)
        assert str(decision.page_size) == "16, from triton_paged"
        assert str(decision.dtype) == "bfloat16, from the model's config"
        assert str(decision.kv_dtype) == "bfloat16, the same as dtype"
        assert str(decision.kv_layout) == "last_exited, preferred by the model"
        assert str(decision.tensor_layout) == "NHD, stored by paged"
        assert str(decision.graph_level) == "full, from cuda_graph"

    @pytest.mark.parametrize(
        ("target", "config", "dtype"),
        [
            (CPU, "bfloat16", "float32"),
            (H200, "float32", "bfloat16"),
            (H200, "float16", "float16"),
            (NPU_310P, "bfloat16", "float16"),
        ],
    )
    def test_dtype_auto(self, target, config, dtype):
        assert resolved(target, model_dtype=config).dtype.value == dtype

    def test_what_the_user_sets_is_kept_or_refused(self):
        decision = resolved(H200, page_size=64, dtype="float16", kv_layout="shared", graph="none")
        values = {name: value.value for name, value in decision.derived.items()}
        wanted = {"page_size": 64, "dtype": "float16", "kv_layout": "shared", "graph_level": "none"}
        assert values == values | wanted
        assert decision.page_size.origin == "set by the user"
        assert code_of(NPU_310P, dtype="bfloat16") == "DTYPE"

    def test_a_page_that_suits_both_is_found_where_their_favourites_differ(self):
        registry = with_specs(
            attention("first", rank=2000, phases=("decode",), page_sizes=Sizes((48,), 32), preferred_page=48),
            attention("second", phases=("prefill",), page_sizes=Sizes(multiple=64), preferred_page=64),
        )
        assert str(resolved(H200, registry).page_size) == "64, from second"

    def test_odd_pages_meet_at_their_common_multiple(self):
        registry = with_specs(
            attention("first", phases=("decode",), page_sizes=Sizes(multiple=24)),
            attention("second", phases=("prefill",), page_sizes=Sizes(multiple=10)),
        )
        decision = resolved(H200, registry)
        assert decision.page_size.value == 120
        assert "first, second" in decision.page_size.origin


class TestTogether:
    def test_the_next_best_is_taken_where_the_best_do_not_suit_each_other(self):
        registry = with_specs(attention("huge_pages", phases=("prefill",), page_sizes=Sizes((4096,))))
        decision = resolved(H200, registry, decode="flashinfer_xqa")
        assert decision.prefill.chosen.name == "triton_paged"
        subjects = {row.subject for row in decision.conflicts}
        assert subjects == {"flashinfer_xqa with huge_pages", "cuda_graph with flashinfer_xqa"}

    def test_another_tensor_layout_is_a_conflict(self):
        registry = with_specs(attention("heads_first", tensor_layouts=("HND",)))
        assert resolved(registry=registry).decode.chosen.name == "torch_sdpa"
        assert code_of(CPU, registry, attention="heads_first") == "COMBINATION"

    def test_a_graph_goes_as_far_as_its_parts(self):
        graph = BackendSpec(
            Kind.GRAPH, "capture", "a:B", ("nvidia:sm90",), graph_levels=("piecewise", "full"),
            ranks=(Rank("nvidia:sm90", 95, "a test"),),
        )  # fmt: skip
        registry = with_specs(graph, attention("pieces", graph_levels=("none", "piecewise")))
        assert str(resolved(H200, with_specs(graph)).graph_level) == "full, from capture"
        pieces = resolved(H200, registry, decode="pieces")
        assert str(pieces.graph_level) == "piecewise, the most pieces allows"
        eager = resolved(H200, registry, decode="torch_sdpa")
        assert (eager.graph.chosen.name, eager.graph_level.value) == ("eager", "none")
        assert code_of(H200, registry, decode="pieces", graph="full") == "GRAPH"

    def test_a_cache_without_loops_is_refused_unless_all_loops_share_it(self):
        one = BackendSpec(Kind.KV, "one_plane", "a:B", ("*",), loop_planes=False)
        assert code_of(CPU, with_specs(one), kv="one_plane") == "LOOP_KV"
        assert resolved(registry=with_specs(one), kv="one_plane", kv_layout="shared").supported

    @pytest.mark.parametrize(
        ("target", "size", "name"),
        [(CPU, 1, "local"), (CPU, 2, "gloo"), (H200, 4, "nccl"), (MI300X, 2, "rccl"), (NPU_310P, 2, "hccl")],
    )
    def test_communication_follows_the_world(self, target, size, name):
        assert resolved(target, tensor_parallel=size).communication.chosen.name == name


class TestObstacles:
    def test_heads_name_every_divisor(self):
        with pytest.raises(UnsupportedError, match="allowed: 1, 5, 11, 55") as caught:
            resolved(num_heads=55, num_kv_heads=55, head_dim=96, tensor_parallel=2)
        assert caught.value.code == "TP_DIVISIBILITY"

    @pytest.mark.parametrize("threshold", [None, 1.0, 2.0])
    def test_fixed_depth_needs_no_exit_rule(self, threshold):
        assert resolved(exit_rules=(), exit_threshold=threshold).supported

    def test_they_stop_every_kind(self):
        decision = assess_jointly(CPU, need(exit_rules=(), exit_threshold=0.5), machine(CPU), REGISTRY)
        assert not decision.supported
        assert {part.reason for part in decision.parts} == {"refused: MODEL_FEATURE"}
        assert decision.table().splitlines()[1].startswith("  ! MODEL_FEATURE")


class TestOneKind:
    def test_select_serves_both_phases_by_default(self):
        decision = select(Kind.ATTENTION, H200, need(), machine(H200), REGISTRY)
        assert decision.chosen.name == "triton_paged" or "prefill" in decision.chosen.phases
        xqa = next(row for row in decision.candidates if row.name == "flashinfer_xqa")
        assert [row.code for row in xqa.rejections] == [Code.PHASE]

    def test_assess_does_not_raise(self):
        refused = assess(Kind.KV, CPU, need(kv_dtype="int4"), machine(CPU), REGISTRY)
        assert refused.chosen is None
        with pytest.raises(UnsupportedError) as caught:
            select(Kind.KV, CPU, need(kv_dtype="int4"), machine(CPU), REGISTRY)
        assert caught.value.decision.kind is Kind.KV
        assert caught.value.code == "KV_DTYPE"

    def test_the_level_comes_from_the_records(self):
        registry = replace(REGISTRY, levels={("torch_sdpa", "cpu"): 4})
        rows = {row.name: row.level for row in resolved(registry=registry).decode.candidates}
        assert (rows["torch_sdpa"], rows["torch_reference"]) == (4, 0)


class TestPredicates:
    def test_one_of_ours_that_fails_is_a_fault(self):
        def fails(target, need, environment):
            raise ZeroDivisionError("ours")

        with pytest.raises(ZeroDivisionError):
            resolved(registry=with_specs(attention("faulty", predicate=fails)))

    @pytest.mark.parametrize(
        "outcome", [ZeroDivisionError("theirs"), "no", None, Rejection(Code.ARCH, *"abcd")]
    )
    def test_a_plugins_becomes_a_row(self, outcome):
        def predicate(target, need, environment):
            if isinstance(outcome, Exception):
                raise outcome
            return outcome

        spec = attention("theirs", predicate=predicate, source="acme 1.0")
        rows = resolved(registry=with_specs(spec)).decode.candidates
        codes = [row.code for row in next(row for row in rows if row.name == "theirs").rejections]
        wanted = [] if outcome is None else [Code.ARCH if isinstance(outcome, Rejection) else Code.PLUGIN]
        assert codes == wanted


def test_decisions_are_json():
    for decision in (
        resolved(H200),
        assess_jointly(H200, need(head_dim=264, attention="flashinfer"), machine(H200), REGISTRY),
    ):
        data = json.loads(json.dumps(decision.to_json()))
        assert [kind["kind"] for kind in data["kinds"]] == ["attention"] * 2 + [
            "kv",
            "operators",
            "graph",
            "communication",
        ]
        assert data["supported"] is decision.supported
    json.dumps([spec.to_json() for spec in REGISTRY.specs])


@pytest.mark.parametrize(
    ("sizes", "inside", "outside", "text"),
    [
        (Sizes((1,), 16), (1, 16, 48), (0, 2, 8), "1, multiples of 16"),
        (Sizes(multiple=8, high=256), (8, 256), (4, 257, 264), "multiples of 8 up to 256"),
        (Sizes(multiple=1, low=2), (2, 3), (1,), "any from 2"),
        (Sizes((64, 128)), (64, 128), (96,), "64, 128"),
    ],
)
def test_sizes(sizes, inside, outside, text):
    assert all(size in sizes for size in inside)
    assert not any(size in sizes for size in outside if size > 0)
    assert str(sizes) == text
