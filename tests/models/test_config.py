"""Configurations: published values, the class defaults that are harmless, and everything that is refused."""

from __future__ import annotations

import json
import math

import pytest

from rlt_hw import CheckpointError, ConfigError, UnsupportedError
from rlt_hw.models.config import PUBLISHED, parse_config, published_names, read_spec
from rlt_hw.models.spec import KVLayout

PARAMETERS = {
    "Ouro-1.4B": 1_434_652_673,
    "Ouro-1.4B-Thinking": 1_434_652_673,
    "Ouro-2.6B": 2_667_974_657,
    "Ouro-2.6B-Thinking": 2_667_974_657,
    "Nanbeige4.2-3B": 4_169_800_704,
    "Nanbeige4.2-3B-Base": 4_169_800_704,
    "Huginn-0125": 3_564_976_800,
}


def published(name: str) -> dict:
    return json.loads((PUBLISHED / f"{name}.json").read_text())


def test_parameters_are_counted_from_the_shapes():
    assert {name: read_spec(name).parameters for name in published_names()} == PARAMETERS


@pytest.mark.parametrize("name", ["ouro-1.4b", "ByteDance/Ouro-1.4B", "Ouro-1.4B"])
def test_names_with_an_organisation_and_in_any_case(name):
    assert read_spec(name).name == "Ouro-1.4B"


def test_an_unknown_model_says_what_is_known():
    with pytest.raises(CheckpointError, match=r"demo:ouro.*Huginn-0125"):
        read_spec("nowhere")


# (checkpoint, changed fields, the field that is refused)
REFUSED = [
    ("Ouro-1.4B", {"hidden_act": "gelu"}, "hidden_act"),
    ("Ouro-1.4B", {"use_sliding_window": True}, "use_sliding_window"),
    ("Ouro-1.4B", {"rope_scaling": {"type": "linear", "factor": 2.0}}, "rope_scaling"),
    ("Ouro-1.4B", {"layer_types": ["sliding_attention"]}, "layer_types"),
    *(
        ("Nanbeige4.2-3B", {name: True}, name)
        for name in (
            "enable_double_loop_split",
            "enable_hyper_connection",
            "enable_mhc",
            "enable_depth_attention",
            "loop_share_kv",
            "ngram_insert_all_layers",
            "attention_bias",
            "mlp_bias",
        )
    ),
    ("Nanbeige4.2-3B", {"emb_neighbor_num": 2}, "emb_neighbor_num"),
    ("Nanbeige4.2-3B", {"emb_split_num": 2}, "emb_split_num"),
    ("Nanbeige4.2-3B", {"insert_ngram_layer_idx": [1]}, "insert_ngram_layer_idx"),
    ("Nanbeige4.2-3B", {"pretraining_tp": 2}, "pretraining_tp"),
    ("Huginn-0125", {"injection_type": "add"}, "injection_type"),
    ("Huginn-0125", {"state_init": "zero"}, "state_init"),
    ("Huginn-0125", {"bias": True}, "bias"),
    ("Huginn-0125", {"num_key_value_heads": 11}, "num_key_value_heads"),
    ("Huginn-0125", {"model_type": "llama"}, "model_type"),
]


@pytest.mark.parametrize(("name", "changes", "field"), REFUSED)
def test_features_without_a_published_checkpoint_are_refused_by_name(name, changes, field):
    with pytest.raises(UnsupportedError, match=field) as refused:
        parse_config(published(name) | changes)
    assert refused.value.code == "MODEL_FEATURE"


HARMLESS = {
    "depth_attention_static_anchor_once": True,
    "ngram_fused_mode": "average",
    "num_residual_streams": 4,
    "mhc_sinkhorn_iterations": 20,
    "mhc_init_gating_factor": 0.01,
    "auto_map": {"AutoConfig": "a.B"},
    "rope_scaling": {"rope_type": "default"},
}


def test_harmless_defaults_of_a_saved_config_are_accepted():
    assert parse_config(published("Nanbeige4.2-3B") | HARMLESS) == parse_config(published("Nanbeige4.2-3B"))


@pytest.mark.parametrize(
    ("changes", "loops"),
    [({}, 2), ({"num_loops": 6}, 6), ({"loop_loss_weights": [0.1, 0.2, 0.3], "num_loops": 9}, 4)],
)
def test_nanbeige_loops(changes, loops):
    assert parse_config(published("Nanbeige4.2-3B") | changes).loops == loops


@pytest.mark.parametrize("field", ["torch_dtype", "dtype"])
def test_the_dtype_field_has_two_names(field):
    config = {name: value for name, value in published("Ouro-1.4B").items() if name != "torch_dtype"}
    assert parse_config(config | {field: "float16"}).dtype == "float16"


@pytest.mark.parametrize("value", [math.nan, math.inf, -1, 0, "1e-6", True, None])
@pytest.mark.parametrize("field", ["hidden_size", "rms_norm_eps", "rope_theta", "total_ut_steps"])
def test_values_that_are_no_sizes_are_refused(field, value):
    with pytest.raises(ConfigError, match=field):
        parse_config(published("Ouro-1.4B") | {field: value})


def test_layouts_round_trip_and_count_planes():
    for text, planes in (
        ("full", (0, 1, 2, 3)),
        ("last_exited", (0, 1, 2, 3)),
        ("shared", (0, 0, 0, 0)),
        ("ring:1", (0, 0, 0, 0)),
        ("ring:3", (0, 1, 2, 0)),
        ("anchor:2", (0, 1, 2, 2)),
    ):
        layout = KVLayout.parse(text)
        assert str(layout) == text
        assert layout.planes(4) == planes


@pytest.mark.parametrize("text", ["", "ring", "ring:", "ring:0", "ring:-1", "full:2", "anchor:x", "FULL"])
def test_what_is_no_layout_is_refused(text):
    with pytest.raises(ConfigError) as refused:
        KVLayout.parse(text)
    assert refused.value.code == "KV_LAYOUT"
