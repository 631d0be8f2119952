"""generate, eval and bench from the command line."""

from __future__ import annotations

import json

import pytest

from rlt_hw.cli import main
from rlt_hw.models.config import DEMO

PROBLEMS = (DEMO / "problems-200.jsonl").read_text().splitlines()
FIRST = json.loads(PROBLEMS[0])
SMALL = ["--device", "cpu", "--max-seqs", "4"]


def run(capsys, *words: str) -> tuple[int, str, str]:
    code = main(list(words))
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_generate_streams_text(capsys):
    code, out, _ = run(capsys, "generate", *SMALL, "--prompt", FIRST["prompt"])
    assert code == 0
    assert out == FIRST["solution"] + "\n"


def test_generate_prints_json(capsys):
    code, out, _ = run(capsys, "generate", *SMALL, "--prompt", FIRST["prompt"], "--loops", "3", "--json")
    data = json.loads(out)
    assert code == 0
    assert data["schema_version"] == 1
    assert data["text"] == FIRST["solution"]
    assert set(data["exit_depths"]) == {3}


def test_show_depth_numbers_every_token_where_there_is_no_colour(capsys):
    words = ("generate", *SMALL, "--prompt", FIRST["prompt"], "--exit-threshold", "0.5", "--show-depth")
    _, out, _ = run(capsys, *words)
    digits = str.maketrans("", "", "₁₂₃₄")
    assert out.splitlines()[0].translate(digits) == FIRST["solution"]
    assert "mean 1." in out


def test_generate_chats(capsys):
    _, out, _ = run(capsys, "generate", *SMALL, "--chat", FIRST["prompt"].removeprefix("Q: ")[:-3])
    assert out.strip()


def test_a_file_answers_line_by_line_and_bad_lines_with_their_error(capsys, tmp_path):
    file = tmp_path / "prompts.jsonl"
    lines = [
        {"prompt": FIRST["prompt"]},
        {"prompt": FIRST["prompt"], "temprature": 1},
        {"prompt": [5, 6], "max_tokens": 3},
        {"prompt": [512]},
    ]
    file.write_text("\n".join(json.dumps(line) for line in lines) + "\nnot json\n")
    code, out, _ = run(capsys, "generate", *SMALL, "--file", str(file))
    answers = [json.loads(line) for line in out.splitlines()]
    assert code == 0
    assert answers[0]["text"] == FIRST["solution"]
    assert "temperature" in answers[1]["error"]["remedy"]
    assert len(answers[2]["token_ids"]) == 3
    assert answers[3]["error"]["code"] == "CONFIG"
    assert answers[4]["line"] == 5


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (("generate",), 2, "one of --prompt, --chat and --file"),
        (("generate", "--prompt", "x", "--model", "nowhere"), 2, "demo:ouro"),
        (("generate", "--prompt", "x", "--attention", "nothing"), 2, "torch_sdpa"),
        (("generate", "--prompt", "x", "--device", "cuda:7"), 2, "cpu"),
        (("generate", "--prompt", "x", "--kv-layout", "ring"), 2, "ring:N"),
        (("generate", "--prompt", "x", "--max-tokens", "0"), 2, "at least 1"),
        (("generate", "--prompt", "x", "--model", "demo:nanbeige", "--exit-threshold", "0.5"), 3, "adaptive"),
        (("eval", "--problems", "missing.jsonl"), 2, "missing.jsonl"),
        (("bench", "--batch", "0"), 2, "at least 1"),
    ],
)
def test_wrong_input_says_what_is_allowed(capsys, words, code, text):
    found, _, err = run(capsys, *words)
    assert found == code, err
    assert text in err


def test_eval_scores_a_file_by_variant(capsys, tmp_path):
    file = tmp_path / "some.jsonl"
    file.write_text("\n".join(PROBLEMS[:6] + PROBLEMS[100:106]))
    code, out, _ = run(capsys, "eval", "--device", "cpu", "--problems", str(file), "--loops", "2", "--json")
    results = {row["variant"]: row for row in json.loads(out)["results"]}
    assert code == 0
    assert results["cot"]["accuracy"] == 1.0
    assert results["short"]["problems"] == 6
    assert results["cot"]["mean_depth"] == 2


def test_eval_sweeps_and_plots(capsys, tmp_path):
    file, plot = tmp_path / "some.jsonl", tmp_path / "plot.png"
    file.write_text("\n".join(PROBLEMS[:2] + PROBLEMS[100:102]))
    words = ("eval", "--device", "cpu", "--problems", str(file), "--sweep", "--plot", str(plot))
    code, out, _ = run(capsys, *words)
    assert code == 0
    assert plot.read_bytes().startswith(b"\x89PNG")
    assert "loops 4" in out
    assert "threshold 0.9" in out


def test_bench_reports_every_batch_size(capsys):
    words = ("bench", "--device", "cpu", "--batch", "1,4", "--input-len", "8", "--output-len", "4")
    code, out, _ = run(capsys, *words, "--repeats", "1", "--json")
    data = json.loads(out)
    assert code == 0
    assert [row["batch"] for row in data["results"]] == [1, 4]
    assert all(row["tokens_per_second"] > 0 for row in data["results"])
    assert data["backends"]["attention (decode)"] == "torch_sdpa"


def test_bench_compares_two_engines_in_turn(capsys, tmp_path):
    sizes = ("--batch", "2", "--input-len", "8", "--output-len", "2", "--decode-steps", "2", "--repeats", "1")
    plot = tmp_path / "plot.png"
    words = ("bench", "--device", "cpu", *sizes, "--compare", "page_size=16", "page_size=32")
    code, out, _ = run(capsys, *words, "--plot", str(plot))
    assert code == 0
    assert "second / first" in out
    assert plot.read_bytes().startswith(b"\x89PNG")
    _, out, _ = run(capsys, *words, "--json")
    pages = [engine["choices"]["page_size"] for engine in json.loads(out)["compared"]]
    assert [text.split(",")[0] for text in pages] == ["16", "32"]


def test_bench_compares_depths_on_one_engine(capsys):
    sizes = ("--batch", "2", "--input-len", "8", "--output-len", "4", "--decode-steps", "8", "--repeats", "1")
    code, out, _ = run(
        capsys, "bench", "--device", "cpu", *sizes, "--compare", "loops=4", "loops=2", "--json"
    )
    assert code == 0
    depths = [engine["results"][0]["decode"]["mean_depth"] for engine in json.loads(out)["compared"]]
    assert depths == [4, 2]


@pytest.mark.parametrize(
    "pair", [("graph", ""), ("exit_threshold=half", ""), ("colour=red", ""), ("refill=maybe", ""), ("", "")]
)
def test_bench_says_what_can_be_compared(capsys, pair):
    code, _, err = run(capsys, "bench", "--device", "cpu", "--compare", *pair)
    assert code == 2
    assert "--compare" in err
