"""Sampling parameters are honoured or refused, never rewritten."""

from __future__ import annotations

import math
from dataclasses import FrozenInstanceError, fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlt_hw.errors import ConfigError, RltHwError, UnsupportedError
from rlt_hw.models.config import read_spec
from rlt_hw.runtime.loop_limits import LoopLimits
from rlt_hw.runtime.outputs import RequestMetrics, RequestOutput, TokenLogprobs
from rlt_hw.runtime.sampling_params import SamplingParams

OURO, NANBEIGE, HUGINN = (read_spec(f"demo:{name}") for name in ("ouro", "nanbeige", "huginn"))

WRONG = [
    ("exit_depths", 3),
    ("exit_depths", (4, -1)),
    ("max_tokens", 0),
    ("max_tokens", -1),
    ("max_tokens", 1.0),
    ("max_tokens", None),
    ("max_tokens", True),
    ("min_tokens", -1),
    ("min_tokens", 65),
    ("temperature", -0.1),
    ("temperature", math.nan),
    ("temperature", math.inf),
    ("temperature", "0.5"),
    ("top_k", -1),
    ("top_k", 0.5),
    ("top_p", 0.0),
    ("top_p", 1.01),
    ("top_p", math.nan),
    ("seed", -1),
    ("seed", 2**64),
    ("seed", 1.5),
    ("stop", ""),
    ("stop", ("a", "")),
    ("stop", 3),
    ("stop", b"a"),
    ("stop", None),
    ("stop_token_ids", 3),
    ("stop_token_ids", (-1,)),
    ("stop_token_ids", ("a",)),
    ("stop_token_ids", "ab"),
    ("ignore_eos", 1),
    ("num_loops", 0),
    ("num_loops", "4"),
    ("min_loops", 0),
    ("max_loops", 0),
    ("exit_threshold", -0.5),
    ("exit_threshold", math.nan),
    ("exit_threshold", math.inf),
    ("exit_threshold", True),
    ("exit_rule", 3),
    ("logprobs", -1),
    ("logprobs", True),
    ("initial_state", "ones"),
    ("initial_state", None),
]


@pytest.mark.parametrize(("name", "value"), WRONG)
def test_a_wrong_value_is_named_with_what_is_allowed(name, value):
    with pytest.raises(ConfigError) as caught:
        SamplingParams(**{name: value})
    assert caught.value.subject == name
    assert caught.value.found == repr(value)
    assert caught.value.allowed


def test_every_parameter_has_a_refused_value():
    assert {name for name, _ in WRONG} == {field.name for field in fields(SamplingParams)}


NAMES = st.sampled_from([field.name for field in fields(SamplingParams)])
VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(0, 9),
    st.floats(),
    st.text(),
    st.lists(st.integers()),
)


@given(st.dictionaries(NAMES, VALUES, max_size=4))
def test_any_values_make_parameters_or_a_config_error(values):
    try:
        params = SamplingParams(**values)
    except ConfigError:
        return
    for spec in (OURO, NANBEIGE, HUGINN):
        try:
            limits = params.resolve(spec, max_loops=spec.loops)
        except RltHwError:
            continue
        assert 1 <= limits.min_loops <= limits.max_loops <= spec.loops


def test_lists_become_tuples_and_nothing_can_be_changed():
    params = SamplingParams(stop="END", stop_token_ids=[3, 4])
    assert (params.stop, params.stop_token_ids) == (("END",), (3, 4))
    with pytest.raises(FrozenInstanceError):
        params.stop = ()
    assert hash(params) == hash(replace(params))


def test_from_dict_refuses_unknown_names_with_the_nearest():
    assert SamplingParams.from_dict({"max_tokens": 3}) == SamplingParams(max_tokens=3)
    with pytest.raises(ConfigError, match=r"'exit_treshold'.*Did you mean exit_threshold\?"):
        SamplingParams.from_dict({"exit_treshold": 0.5})
    with pytest.raises(ConfigError, match="'xyz'"):
        SamplingParams.from_dict({"xyz": 1})


RESOLVED = [
    (OURO, 4, {}, LoopLimits(1, 4)),
    (OURO, 2, {}, LoopLimits(1, 2)),
    (OURO, 8, {}, LoopLimits(1, 4)),
    (OURO, 8, {"num_loops": 6}, LoopLimits(1, 6)),
    (OURO, 4, {"max_loops": 3}, LoopLimits(1, 3)),
    (OURO, 4, {"exit_threshold": 1.0}, LoopLimits(1, 4)),
    (OURO, 4, {"exit_threshold": 7.0}, LoopLimits(1, 4)),
    (OURO, 4, {"exit_threshold": 0.0}, LoopLimits(1, 4, 0.0, "gate")),
    (OURO, 4, {"exit_threshold": 0.5, "min_loops": 2}, LoopLimits(2, 4, 0.5, "gate")),
    (OURO, 4, {"exit_threshold": 0.5, "num_loops": 3}, LoopLimits(1, 3, 0.5, "gate")),
    (OURO, 4, {"exit_threshold": 0.5, "exit_rule": "gate"}, LoopLimits(1, 4, 0.5, "gate")),
    (replace(OURO, exit_threshold=0.4), 4, {}, LoopLimits(1, 4, 0.4, "gate")),
    (replace(OURO, exit_threshold=0.4), 4, {"num_loops": 2}, LoopLimits(1, 2)),
    (
        replace(OURO, exit_threshold=0.4),
        4,
        {"exit_rule": "gate", "num_loops": 2},
        LoopLimits(1, 2, 0.4, "gate"),
    ),
    (NANBEIGE, 2, {}, LoopLimits(1, 2)),
    (NANBEIGE, 2, {"exit_threshold": 1}, LoopLimits(1, 2)),
    (NANBEIGE, 2, {"num_loops": 1}, LoopLimits(1, 1)),
    (HUGINN, 8, {}, LoopLimits(1, 8)),
    (HUGINN, 8, {"initial_state": "zero"}, LoopLimits(1, 8)),
    (HUGINN, 8, {"exit_rule": "kl"}, LoopLimits(1, 8, 1e-3, "kl")),
    (HUGINN, 8, {"exit_threshold": 0.1}, LoopLimits(1, 8, 0.1, "latent-diff")),
    (
        HUGINN,
        8,
        {"exit_rule": "argmax-stability", "exit_threshold": 2},
        LoopLimits(1, 8, 2.0, "argmax-stability"),
    ),
]


@pytest.mark.parametrize(("spec", "engine_loops", "values", "expected"), RESOLVED)
def test_resolve(spec, engine_loops, values, expected):
    assert SamplingParams(**values).resolve(spec, max_loops=engine_loops) == expected


REFUSED = [
    (NANBEIGE, {"exit_threshold": 0.5}, UnsupportedError, "MODEL_FEATURE", "exit_threshold"),
    (NANBEIGE, {"exit_rule": "gate"}, UnsupportedError, "MODEL_FEATURE", "exit_rule"),
    (NANBEIGE, {"initial_state": "zero"}, UnsupportedError, "MODEL_FEATURE", "initial_state"),
    (OURO, {"exit_rule": "kl"}, UnsupportedError, "MODEL_FEATURE", "exit_rule"),
    (OURO, {"initial_state": "zero"}, UnsupportedError, "MODEL_FEATURE", "initial_state"),
    (HUGINN, {"exit_rule": "gate"}, UnsupportedError, "MODEL_FEATURE", "exit_rule"),
    (OURO, {"num_loops": 5}, ConfigError, "CONFIG", "num_loops"),
    (OURO, {"max_loops": 5}, ConfigError, "CONFIG", "max_loops"),
    (OURO, {"min_loops": 5}, ConfigError, "CONFIG", "min_loops"),
    (OURO, {"num_loops": 2, "min_loops": 3}, ConfigError, "CONFIG", "min_loops"),
    (OURO, {"num_loops": 2, "max_loops": 3}, ConfigError, "COMBINATION", "num_loops and max_loops"),
    (OURO, {"stop_token_ids": (512,)}, ConfigError, "CONFIG", "stop_token_ids"),
]


@pytest.mark.parametrize(("spec", "values", "kind", "code", "subject"), REFUSED)
def test_what_a_family_or_an_engine_cannot_honour_is_refused(spec, values, kind, code, subject):
    with pytest.raises(kind) as caught:
        SamplingParams(**values).resolve(spec, max_loops=4)
    assert (caught.value.code, caught.value.subject) == (code, subject)
    assert caught.value.allowed


def output(**changes):
    values = {
        "request_id": "r",
        "prompt_token_ids": (1, 2),
        "token_ids": (3, 4, 5),
        "text": "<think>\n1+1\n</think>\n\n2",
        "exit_depths": (4, 1, 1),
        "finish_reason": "stop",
        "metrics": RequestMetrics(10.0, 10.5, 11.5),
    }
    return RequestOutput(**(values | changes))


class TestRequestOutput:
    def test_derived_values(self):
        found = output()
        assert found.finished
        assert (found.reasoning, found.answer) == ("1+1", "2")
        assert found.mean_exit_depth == 2.0

    def test_json(self):
        data = output(logprobs=(TokenLogprobs(3, -0.5, ((3, -0.5), (7, -1.0))),)).to_json()
        assert data["metrics"] == {"time_to_first_token": 0.5, "time_per_token": 0.5, "latency": 1.5}
        assert data["logprobs"][0]["top"][1] == (7, -1.0)
        assert (data["reasoning"], data["mean_exit_depth"]) == ("1+1", 2.0)

    def test_before_the_first_token(self):
        empty = {"token_ids": (), "exit_depths": (), "text": "", "finish_reason": None}
        data = output(**empty, metrics=RequestMetrics(10.0)).to_json()
        assert data["mean_exit_depth"] is None
        assert set(data["metrics"].values()) == {None}

    def test_without_a_tokenizer(self):
        found = output(text=None)
        assert (found.text, found.answer, found.reasoning) == (None, None, None)
