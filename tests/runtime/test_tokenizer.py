"""Text and ids equal those of the authors' library; streamed text equals the whole."""

from __future__ import annotations

import json
import random
import shutil
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file

from rlt_hw.errors import CheckpointError, ConfigError
from rlt_hw.models.config import model_path, read_spec
from rlt_hw.runtime.detokenizer import ByteLevelDecoder, Detokenizer, WindowDecoder, decoder_for
from rlt_hw.runtime.reasoning import split_reasoning
from rlt_hw.runtime.tokenizer import Tokenizer, stop_token_ids

GOLDEN = Path(__file__).parent.parent / "golden"
CASES = ("ouro-a", "ouro-b", "nanbeige-a", "nanbeige-b", "huginn-a", "huginn-b")
HI = [{"role": "user", "content": "Hi"}]


@lru_cache
def tokenizer(model):
    model = GOLDEN / model if model in CASES else model
    return Tokenizer.from_folder(model_path(model), read_spec(model))


@lru_cache
def golden(case):
    return json.loads((GOLDEN / case / "golden.json").read_text()), load_file(
        GOLDEN / case / "golden.safetensors"
    )


def altered(tmp_path, case="ouro-a", **settings):
    """A copy of a case's tokenizer files with changed settings; None removes one."""
    for path in (GOLDEN / case).iterdir():
        if path.name.startswith(("tokenizer", "config", "generation", "chat")):
            shutil.copy(path, tmp_path)
    path = tmp_path / "tokenizer_config.json"
    changed = json.loads(path.read_text()) | settings
    path.write_text(json.dumps({name: value for name, value in changed.items() if value is not None}))
    return tmp_path


def open_folder(folder):
    return Tokenizer.from_folder(folder, read_spec(folder))


@pytest.mark.parametrize("case", CASES)
class TestReference:
    def test_prompts(self, case):
        facts, tensors = golden(case)
        assert tokenizer(case).encode(facts["prompt_text"]) == tensors["input_ids"][0].tolist()
        for i, text in enumerate(facts["extra_prompt_text"], 1):
            assert tokenizer(case).encode(text) == tensors[f"extra{i}.input_ids"][0].tolist()

    def test_generated_text(self, case):
        facts, tensors = golden(case)
        assert tokenizer(case).decode(tensors["greedy_ids"].flatten().tolist()) == facts["greedy_text"]

    def test_chats(self, case):
        for chat in golden(case)[0]["chat"]:
            assert tokenizer(case).render_chat(chat["messages"], **chat["options"]) == chat["rendered"]
            assert tokenizer(case).encode_chat(chat["messages"], **chat["options"]) == chat["token_ids"]


STOPS = {
    "ouro-a": (0, 2),
    "ouro-b": (0, 2),
    "nanbeige-a": (506,),
    "nanbeige-b": (378,),
    "huginn-a": (506, 507, 510),
    "huginn-b": (378, 379, 382),
    "demo:ouro": (0, 2),
    "demo:nanbeige": (0, 2),
    "demo:huginn": (0, 2),
}


@pytest.mark.parametrize("model", STOPS)
def test_stop_tokens(model):
    assert tokenizer(model).stop_token_ids == STOPS[model]


def test_stop_tokens_without_a_tokenizer():
    spec = read_spec("demo:huginn")
    assert stop_token_ids(model_path("demo:huginn"), spec) == (0, 2)
    assert stop_token_ids(Path("/nowhere"), replace(spec, vocab_size=65536)) == (65504, 65505, 65508)


class TestBeginning:
    """The family's rule wins over tokenizer_config.json."""

    def test_ouro_never_prepends(self, tmp_path):
        folder = altered(tmp_path, add_bos_token=True, bos_token="<|endoftext|>")
        assert open_folder(folder).encode("Hi") == tokenizer("ouro-a").encode("Hi")

    def test_huginn_begins_with_its_token(self, tmp_path):
        folder = altered(tmp_path, "huginn-a", add_bos_token=None, bos_token="<|pad|>")
        assert open_folder(folder).encode("Hi") == tokenizer("huginn-a").encode("Hi")
        assert open_folder(folder).render_chat(HI).startswith("<|begin_text|>")

    def test_nanbeige_follows_its_file(self, tmp_path):
        plain = tokenizer("nanbeige-a").encode("Hi")
        assert open_folder(altered(tmp_path, "nanbeige-a", add_bos_token=True)).encode("Hi") == [505, *plain]

    def test_a_vocabulary_without_the_token_prepends_nothing(self):
        assert tokenizer("demo:huginn").decode(tokenizer("demo:huginn").encode("Q")) == "Q"


class TestFiles:
    def test_no_tokenizer(self, tmp_path):
        altered(tmp_path)
        (tmp_path / "tokenizer.json").rename(tmp_path / "tokenizer.model")
        with pytest.raises(CheckpointError, match=r"tokenizer\.model.*token ids") as caught:
            open_folder(tmp_path)
        assert caught.value.code == "TOKENIZER"

    @pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json", "generation_config.json"])
    def test_a_broken_file_is_named(self, tmp_path, name):
        (altered(tmp_path) / name).write_text("{")
        with pytest.raises(CheckpointError, match=name) as caught:
            open_folder(tmp_path)
        assert caught.value.code == "TOKENIZER"

    def test_more_tokens_than_the_model_knows(self):
        with pytest.raises(CheckpointError, match="token id 511; allowed: ids below the vocabulary size 500"):
            Tokenizer.from_folder(GOLDEN / "ouro-a", replace(read_spec(GOLDEN / "ouro-a"), vocab_size=500))

    def test_no_template_leaves_plain_prompts(self, tmp_path):
        found = open_folder(altered(tmp_path, chat_template=None))
        assert found.encode("Hi")
        with pytest.raises(CheckpointError, match="plain prompt") as caught:
            found.encode_chat(HI)
        assert caught.value.code == "TOKENIZER"

    def test_special_tokens_may_be_objects(self, tmp_path):
        folder = altered(tmp_path, eos_token={"content": "<think>", "special": True})
        assert open_folder(folder).stop_token_ids == (0, 2, 3)


class TestTemplate:
    def render(self, tmp_path, template, messages=HI, **options):
        return open_folder(altered(tmp_path, chat_template=template)).render_chat(messages, **options)

    def test_the_environment_of_the_authors_library(self, tmp_path):
        template = (
            "{% for m in messages %}\n"
            "    {% generation %}{{ m.content }}{% endgeneration %}\n"
            "    {% if loop.first %}{% continue %}{% endif %}\n"
            "{% endfor %}\n"
            "{{ {'a': '<é>'} | tojson }}|{{ tools | tojson(indent=1) }}|{{ eos_token }}"
            "|{{ strftime_now('%Y') | length }}"
        )
        text = self.render(tmp_path, template, tools=[{"name": "f"}])
        assert text == 'Hi{"a": "<é>"}|[\n {\n  "name": "f"\n }\n]|<|im_end|>|4'

    def test_variables_reach_the_template(self, tmp_path):
        assert (
            self.render(tmp_path, "{{ enable_thinking }} {{ deep }}", enable_thinking=True, deep=3)
            == "True 3"
        )
        with pytest.raises(ConfigError, match="eos_token"):
            self.render(tmp_path, "{{ eos_token }}", eos_token="x")

    def test_a_named_template_serves_tools(self, tmp_path):
        named = [{"name": "default", "template": "plain"}, {"name": "tool_use", "template": "tools"}]
        assert self.render(tmp_path, named) == "plain"
        assert self.render(tmp_path, named, tools=[{"name": "f"}]) == "tools"

    @pytest.mark.parametrize(
        ("template", "text"),
        [
            ("{{ raise_exception('system comes first') }}", "system comes first"),
            ("{{ messages[0].content + 3 }}", "concatenate"),
            ("{{ messages[0].nothing.at_all }}", "no attribute"),
            ("{{ messages.append(3) }}", "unsafe"),
            ("{{ messages.__class__.__mro__ }}", "unsafe"),
        ],
    )
    def test_what_a_template_refuses_is_an_error_of_the_messages(self, tmp_path, template, text):
        with pytest.raises(ConfigError, match=text):
            self.render(tmp_path, template)

    def test_a_template_that_does_not_parse(self, tmp_path):
        with pytest.raises(CheckpointError, match="line 2"):
            self.render(tmp_path, "\n{% if %}")

    @pytest.mark.parametrize("messages", [[], "Hi", [3], [{"content": "Hi"}], None])
    def test_messages_are_checked(self, messages):
        with pytest.raises(ConfigError, match="role, content"):
            tokenizer("ouro-a").render_chat(messages)


def stream(detokenizer, ids):
    pieces = [detokenizer.add(token) for token in ids]
    return [*pieces, detokenizer.finish()]


class TestStreaming:
    @pytest.mark.parametrize("case", CASES)
    def test_random_ids_stream_to_the_whole_text(self, case):
        """Random ids are mostly broken characters, the worst case."""
        draw = random.Random(case)
        for length in (0, 1, 2, 3, 5, 100, 400):
            ids = [draw.randrange(384) for _ in range(length)]
            assert "".join(stream(tokenizer(case).detokenizer(), ids)) == tokenizer(case).decode(ids)

    @given(st.text(max_size=30))
    @settings(max_examples=60)
    def test_no_piece_breaks_a_character(self, text):
        found = tokenizer("demo:ouro")
        detokenizer = found.detokenizer()
        pieces = stream(detokenizer, found.encode(text))
        assert "".join(pieces) == detokenizer.text == found.decode(found.encode(text))
        if "\ufffd" not in text:
            assert not any("\ufffd" in piece for piece in pieces)

    def test_a_character_comes_whole_and_at_once(self):
        found = tokenizer("demo:ouro")
        ids = found.encode("é€🙂x")
        pieces = stream(found.detokenizer(), ids)
        assert [piece for piece in pieces if piece] == ["é", "€", "🙂", "x"]
        assert pieces[-2:] == ["x", ""]

    def test_an_unfinished_character_comes_at_the_end(self):
        found = tokenizer("demo:ouro")
        pieces = stream(found.detokenizer(), found.encode("a🙂")[:-1])
        assert "".join(pieces[:-1]) == "a"
        assert pieces[-1] == "\ufffd"

    def test_special_tokens_leave_no_text_but_thinking_does(self):
        ids = tokenizer("ouro-a").encode("<think>1</think>2<|im_end|>")
        assert tokenizer("ouro-a").decode(ids) == "<think>1</think>2"
        assert "".join(stream(tokenizer("ouro-a").detokenizer(), ids)) == "<think>1</think>2"
        assert tokenizer("ouro-a").decode(ids, skip_special_tokens=False).endswith("<|im_end|>")


class TestWindow:
    """Tokenizers that are not byte-level, here with a leading-space mark and byte tokens."""

    @staticmethod
    @lru_cache
    def backend():
        words = ["<unk>", "▁", "▁Hi", "▁there", "!", *(f"<0x{byte:02X}>" for byte in range(256))]
        made = tokenizers.Tokenizer(tokenizers.models.BPE({word: i for i, word in enumerate(words)}, []))
        decoders = tokenizers.decoders
        made.decoder = decoders.Sequence(
            [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
        )
        return made

    def pieces(self, ids):
        decoder = decoder_for(self.backend())
        assert isinstance(decoder, WindowDecoder)
        return stream(Detokenizer(decoder), ids)

    def test_spaces_between_words_stay(self):
        assert self.pieces([2, 3, 4]) == ["Hi", " there", "!", ""]

    def test_bytes_wait_for_their_character(self):
        euro = [5 + byte for byte in "€".encode()]
        assert self.pieces([2, *euro, 4]) == ["Hi", "", "", "€", "!", ""]

    def test_wrong_bytes_do_not_hold_the_text_for_ever(self):
        decoder = WindowDecoder(self.backend())
        for _ in range(100):
            decoder.add(5 + 0x80)
            assert len(decoder._pending) < 10
        assert "Hi" in self.pieces([*[5 + 0x80] * 100, 2])[-2]


class Letters:
    """A decoder whose tokens are characters."""

    def add(self, token):
        return chr(token)

    def finish(self):
        return ""


def letters(text, **options):
    detokenizer = Detokenizer(Letters(), **options)
    return detokenizer, stream(detokenizer, map(ord, text))


class TestStopStrings:
    def test_the_stop_string_and_what_follows_are_cut(self):
        detokenizer, _ = letters("abcENDdef", stop=("END",))
        assert (detokenizer.text, detokenizer.stopped_by) == ("abc", "END")

    def test_a_possible_beginning_is_held_back_and_given_when_it_was_none(self):
        _, pieces = letters("aENxE", stop=("END",))
        assert pieces == ["a", "", "", "ENx", "", "E"]

    def test_a_beginning_inside_a_beginning(self):
        assert letters("aaab", stop=("aab",))[0].text == "a"

    def test_the_first_to_appear_wins(self):
        detokenizer, _ = letters("xxabc", stop=("bc", "ab"))
        assert (detokenizer.text, detokenizer.stopped_by) == ("xx", "ab")

    def test_not_before_min_tokens(self):
        detokenizer, _ = letters("a.b.c", stop=(".",), min_tokens=2)
        assert detokenizer.text == "a.b"

    @given(
        st.text("ab", max_size=30), st.lists(st.text("ab", min_size=1, max_size=4), min_size=1, max_size=3)
    )
    def test_equal_to_a_search_of_the_whole_text(self, text, stop):
        detokenizer, pieces = letters(text, stop=tuple(stop))
        ends = [text[: n + 1] for n in range(len(text))]
        first = next((end for end in ends if any(s in end for s in stop)), None)
        cut = text if first is None else first[: min(at for s in stop if (at := first.find(s)) >= 0)]
        assert "".join(pieces) == detokenizer.text == cut
        assert (detokenizer.stopped_by is not None) == (first is not None)

    def test_token_borders_do_not_matter(self):
        found = tokenizer("demo:ouro")
        detokenizer = found.detokenizer(stop=("€ 4",))
        stream(detokenizer, found.encode("costs 3€ 45"))
        assert detokenizer.text == "costs 3"


def test_byte_level_tokenizers_get_the_exact_decoder():
    backend = tokenizers.Tokenizer.from_file(str(model_path("demo:ouro") / "tokenizer.json"))
    assert isinstance(decoder_for(backend), ByteLevelDecoder)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("4", (None, "4")),
        ("<think>\n2+2\n</think>\n\n4", ("2+2", "4")),
        ("2+2</think>4", ("2+2", "4")),
        ("<think>\n\n</think>\n\n4", ("", "4")),
        ("<think>2+", ("2+", "")),
        ("a</think>b</think>", ("a", "b</think>")),
        ("", (None, "")),
    ],
)
def test_split_reasoning(text, expected):
    assert split_reasoning(text) == expected
