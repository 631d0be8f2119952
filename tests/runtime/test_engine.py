"""The engine as a user meets it, on a trained checkpoint."""

from __future__ import annotations

import json
import shutil
from itertools import pairwise
from pathlib import Path

import pytest
import torch

from rlt_hw import CapacityError, CheckpointError, ConfigError, Engine, SamplingParams, UnsupportedError
from rlt_hw.models.config import DEMO, model_path

PROBLEMS = [json.loads(line) for line in (DEMO / "problems-200.jsonl").read_text().splitlines()]
PROMPT = PROBLEMS[0]["prompt"]
ANSWER = PROBLEMS[0]["solution"]


@pytest.fixture(scope="module")
def engine():
    with Engine("demo:ouro", device="cpu", max_num_seqs=16, max_model_len=256) as engine:
        yield engine
        assert engine.stats().pages_free == engine.stats().pages_total


def solve(engine: Engine, count: int, **params: object) -> list:
    return engine.generate([p["prompt"] for p in PROBLEMS[:count]], SamplingParams(max_tokens=48, **params))


def test_it_solves_a_word_problem(engine):
    (output,) = engine.generate(PROMPT)
    assert output.text == ANSWER
    assert output.finish_reason == "stop"
    assert set(output.exit_depths) == {4} and len(output.exit_depths) == len(output.token_ids)
    assert output.metrics.latency >= output.metrics.time_to_first_token > 0


def test_a_batch_gives_what_each_prompt_gives_alone(engine):
    together = solve(engine, 24, exit_threshold=0.5)
    alone = [engine.generate(p["prompt"], SamplingParams(exit_threshold=0.5))[0] for p in PROBLEMS[:24]]
    assert [o.token_ids for o in together] == [o.token_ids for o in alone]
    assert [o.exit_depths for o in together] == [o.exit_depths for o in alone]


def test_sampling_is_a_function_of_the_seed(engine):
    hot = SamplingParams(temperature=20.0, seed=11, max_tokens=20, ignore_eos=True)
    first = engine.generate([PROMPT, PROBLEMS[1]["prompt"]], hot)
    again = engine.generate([PROBLEMS[2]["prompt"], PROMPT], hot)
    other = engine.generate(PROMPT, SamplingParams(temperature=20.0, seed=12, max_tokens=20, ignore_eos=True))
    assert first[0].token_ids == again[1].token_ids != other[0].token_ids


def test_a_stream_ends_with_what_generate_gives(engine):
    outputs = list(engine.stream(PROMPT))
    assert outputs[-1].token_ids == engine.generate(PROMPT)[0].token_ids
    texts = [output.text for output in outputs]
    assert all(later.startswith(earlier) for earlier, later in pairwise(texts))
    assert [output.finished for output in outputs].count(True) == 1


def test_leaving_a_stream_frees_its_pages(engine):
    stream = engine.stream([PROMPT, PROBLEMS[1]["prompt"]])
    next(stream)
    assert engine.stats().pages_free < engine.stats().pages_total
    stream.close()
    assert engine.stats().pages_free == engine.stats().pages_total and not engine.has_work()


def test_abort_then_reuse_the_id(engine):
    engine.add_request(PROMPT, request_id="it")
    engine.step()
    assert engine.abort("it") and not engine.abort("it")
    assert engine.output("it").finish_reason == "abort"
    engine.release("it")
    engine.add_request(PROMPT, request_id="it")
    while engine.has_work():
        engine.step()
    assert engine.output("it").text == ANSWER
    engine.release("it")


def test_stop_strings_and_stop_ids(engine):
    (cut,) = engine.generate(PROMPT, SamplingParams(stop=("####",)))
    assert cut.text == ANSWER.partition("####")[0] and cut.finish_reason == "stop"
    token = engine.generate(PROMPT)[0].token_ids[2]
    (ended,) = engine.generate(PROMPT, SamplingParams(stop_token_ids=(token,)))
    assert ended.token_ids[-1] == token and len(ended.token_ids) == 3


def test_lengths(engine):
    for count in (1, 3):
        (output,) = engine.generate(PROMPT, SamplingParams(max_tokens=count, ignore_eos=True))
        assert len(output.token_ids) == count and output.finish_reason == "length"
    (one,) = engine.generate([[5]], SamplingParams(max_tokens=2))
    assert one.prompt_token_ids == (5,)
    full = [7] * (engine.max_model_len - 1)
    (last,) = engine.generate([full], SamplingParams(max_tokens=9, ignore_eos=True))
    assert len(last.token_ids) == 1 and last.finish_reason == "length"


def test_min_tokens_holds_the_end_back(engine):
    normal = len(engine.generate(PROMPT)[0].token_ids)
    (longer,) = engine.generate(PROMPT, SamplingParams(min_tokens=normal + 5, max_tokens=normal + 9))
    assert len(longer.token_ids) > normal + 5


def test_logprobs(engine):
    (output,) = engine.generate(PROMPT, SamplingParams(logprobs=3, max_tokens=4))
    assert len(output.logprobs) == 4
    for token, found in zip(output.token_ids, output.logprobs, strict=True):
        assert found.token_id == token == found.top[0][0]
        assert found.logprob == pytest.approx(found.top[0][1]) and len(found.top) == 3


def test_depth_is_a_request_of_its_own(engine):
    depths = [1, 2, 3, 4]
    outputs = engine.generate([PROMPT] * 4, [SamplingParams(num_loops=d, max_tokens=8) for d in depths])
    assert [set(o.exit_depths) for o in outputs] == [{d} for d in depths]
    (early,) = engine.generate(PROMPT, SamplingParams(exit_threshold=0.3))
    assert early.text == ANSWER and early.mean_exit_depth < 2.5


BAD = {
    "an empty prompt": ([[]], {}, ConfigError, "no tokens"),
    "a token id out of range": ([[512]], {}, ConfigError, "0 to 511"),
    "a prompt longer than the context": ([[7] * 300], {}, CapacityError, "at most 255"),
    "more loops than the engine has": (PROMPT, {"num_loops": 9}, ConfigError, "1 to 4"),
    "an unknown exit rule": (PROMPT, {"exit_rule": "kl"}, UnsupportedError, "gate"),
    "more logprobs than tokens": (PROMPT, {"logprobs": 513}, ConfigError, "vocabulary size 512"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_requests_are_refused_and_the_engine_goes_on(engine, name):
    prompt, params, error, text = BAD[name]
    engine.add_request(PROMPT, request_id="beside")
    with pytest.raises(error, match=text):
        engine.generate(prompt, SamplingParams(**params))
    while engine.has_work():
        engine.step()
    assert engine.output("beside").text == ANSWER
    engine.release("beside")


@pytest.mark.parametrize("field", [{"max_tokens": 0}, {"temperature": float("nan")}, {"top_p": 0.0}])
def test_bad_sampling_values_are_refused(field):
    with pytest.raises(ConfigError, match=next(iter(field))):
        SamplingParams(**field)


def test_a_failing_step_ends_its_requests_and_not_the_engine(engine, monkeypatch):
    runner = engine._parts.runner
    step, calls = runner.step, []

    def failing(plan):
        calls.append(plan)
        if len(calls) == 3:
            raise RuntimeError("the device is on fire")
        return step(plan)

    monkeypatch.setattr(runner, "step", failing)
    outputs = engine.generate([PROMPT, PROBLEMS[1]["prompt"]])
    assert {o.finish_reason for o in outputs} == {"error"} and "on fire" in outputs[0].error
    assert engine.generate(PROMPT)[0].text == ANSWER


def test_logits_that_are_not_finite_fail_that_request_alone(engine, monkeypatch):
    model = engine._parts.runner._model
    head = model.head
    first = torch.tensor([0])
    monkeypatch.setattr(model, "head", lambda hidden: head(hidden).index_fill(0, first, torch.nan))
    bad, _ = engine.generate([PROMPT, PROBLEMS[1]["prompt"]])
    assert bad.finish_reason == "error" and "not finite" in bad.error
    monkeypatch.undo()
    assert engine.generate(PROMPT)[0].text == ANSWER


def checkpoint(tmp_path: Path) -> Path:
    return Path(shutil.copytree(model_path("demo:ouro"), tmp_path / "model"))


def test_without_a_tokenizer_token_ids_still_run(tmp_path):
    folder = checkpoint(tmp_path)
    (folder / "tokenizer.json").unlink()
    with Engine(str(folder), device="cpu", max_num_seqs=2, max_model_len=64) as engine:
        (output,) = engine.generate([[5, 6, 7]], SamplingParams(max_tokens=3))
        assert output.text is None and len(output.token_ids) == 3
        with pytest.raises(CheckpointError, match="tokenizer") as refused:
            engine.generate("hello")
        assert refused.value.code == "TOKENIZER"


@pytest.mark.parametrize("layout", ["full", "last_exited", "shared"])
def test_a_tight_pool_changes_nothing(layout):
    """32 KiB a token and 4 tokens a page; the shared layout has a quarter of the planes."""
    page = 4 * 2**15 // (4 if layout == "shared" else 1)

    def run(pages: int) -> tuple[list, int]:
        with Engine(
            "demo:ouro",
            device="cpu",
            kv_layout=layout,
            page_size=4,
            kv_cache_bytes=pages * page,
            max_num_seqs=6,
            max_batched_tokens=64,
            max_model_len=128,
        ) as engine:
            assert engine.decision.kv_layout.value == layout
            outputs = solve(engine, 8, exit_threshold=0.7)
            return [(o.token_ids, o.exit_depths) for o in outputs], engine.stats().preemptions

    roomy, none = run(192)
    tight, some = run(32)
    assert none == 0
    assert some or layout == "shared"
    assert roomy == tight


def test_a_pool_too_small_for_a_request_says_so():
    with Engine("demo:ouro", device="cpu", max_num_seqs=2, max_model_len=256, kv_cache_bytes=2**20) as engine:
        with pytest.raises(CapacityError, match="pages"):
            engine.generate([[5] * 100], SamplingParams(max_tokens=60))
        with pytest.raises(CapacityError, match="at least one page"):
            Engine("demo:ouro", device="cpu", kv_cache_bytes=1000)


def test_a_closed_engine_says_so():
    engine = Engine("demo:ouro", device="cpu", max_num_seqs=1, max_model_len=32)
    engine.close()
    engine.close()
    with pytest.raises(ConfigError, match="closed"):
        engine.generate("x")


def test_dummy_weights_run_any_published_shape_by_name(tmp_path):
    with Engine("demo:ouro", device="cpu", load_format="dummy", max_num_seqs=1, max_model_len=32) as engine:
        (output,) = engine.generate([[1, 2, 3]], SamplingParams(max_tokens=2, ignore_eos=True))
        assert len(output.token_ids) == 2


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"seed": -1}, ConfigError, "seed"),
        ({"max_num_seqs": 0}, ConfigError, "max_num_seqs"),
        ({"max_batched_tokens": 1}, ConfigError, "at least max_num_seqs"),
        ({"max_model_len": 5000}, ConfigError, "1024"),
        ({"max_loops": 0}, ConfigError, "max_loops"),
        ({"page_size": 0}, ConfigError, "page_size"),
        ({"load_format": "gguf"}, ConfigError, "dummy"),
        ({"kv_layout": "ring:0"}, ConfigError, "ring:N"),
        ({"attention": "flashinfer"}, UnsupportedError, "ARCH"),
        ({"attention": "nothing"}, ConfigError, "torch_sdpa"),
        ({"dtype": "int8"}, UnsupportedError, "DTYPE"),
        ({"graph": "full"}, UnsupportedError, "GRAPH"),
    ],
)
def test_options_that_cannot_be_honoured_are_refused(options, error, text):
    with pytest.raises(error, match=text):
        Engine("demo:ouro", device="cpu", **({"max_num_seqs": 2} | options))


def test_a_kv_dtype_of_its_own_finds_a_backend_that_takes_it():
    with Engine(
        "demo:ouro", device="cpu", max_num_seqs=2, max_model_len=128, kv_cache_dtype="bfloat16"
    ) as it:
        assert it.decision.decode.chosen.name == "torch_reference"
        assert it.generate(PROMPT)[0].text == ANSWER


def test_a_recorded_trace_repeats_a_run(engine):
    prompts = [problem["prompt"] for problem in PROBLEMS[:4]]
    first = engine.generate(prompts, SamplingParams(exit_threshold=0.4))
    traces = [SamplingParams(exit_depths=output.exit_depths) for output in first]
    again = engine.generate(prompts, traces)
    assert [o.token_ids for o in again] == [o.token_ids for o in first]
    assert [o.exit_depths for o in again] == [o.exit_depths for o in first]
    (short,) = engine.generate(PROMPT, SamplingParams(exit_depths=(4, 1, 2), max_tokens=6, ignore_eos=True))
    assert short.exit_depths == (4, 1, 2, 4, 4, 4)


@pytest.mark.parametrize(
    "fields",
    [{"exit_depths": (4, 5)}, {"exit_depths": (1, 2)}, {"exit_depths": (4, 2), "exit_threshold": 0.5}],
)
def test_a_trace_that_cannot_be_is_refused(engine, fields):
    with pytest.raises(ConfigError, match="exit_depths"):
        engine.generate(PROMPT, SamplingParams(**fields))


def test_a_delayed_exit_comes_one_loop_later(engine):
    prompts = [problem["prompt"] for problem in PROBLEMS[:4]]
    exact = engine.generate(prompts, SamplingParams(exit_threshold=0.3))
    late = engine.generate(prompts, SamplingParams(exit_threshold=0.3, exit_rule="gate-delayed"))
    assert [o.text for o in late] == [o.text for o in exact]
    first = [(now.exit_depths[1], then.exit_depths[1]) for now, then in zip(late, exact, strict=True)]
    assert all(now == min(then + 1, 4) for now, then in first)
