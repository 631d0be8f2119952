"""Text to ids and back, from a checkpoint's tokenizer files and its family's rules.

The published files do not always state which token begins a text or ends a turn, so the family's
rule wins over `tokenizer_config.json` where the two differ. No remote code is ever run.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import tokenizers

from rlt_hw.errors import CheckpointError, ConfigError
from rlt_hw.models.spec import ModelSpec
from rlt_hw.reasons import Code
from rlt_hw.runtime.detokenizer import Detokenizer, decoder_for
from rlt_hw.runtime.reasoning import CLOSE, OPEN

if TYPE_CHECKING:
    from rlt_hw.runtime.chat_template import ChatTemplate

_SPECIAL_NAMES = ("bos_token", "eos_token", "pad_token", "unk_token")


class Tokenizer:
    """Encodes, decodes and renders chats for one checkpoint.

    special_tokens: name ("bos_token") to text, as the chat template sees them.
    stop_token_ids: everything that ends a generation, sorted.
    """

    def __init__(
        self, folder: Path, backend: tokenizers.Tokenizer, settings: Mapping[str, Any], spec: ModelSpec
    ) -> None:
        self._folder, self._backend, self._settings = folder, backend, settings
        self._begin_text = spec.begin_text
        self.special_tokens = _special_tokens(settings)
        self._begin = self._beginning()
        self._hidden = self._hidden_ids()
        named = (*spec.stop_texts, self.special_tokens.get("eos_token", ""))
        ids = {token for text in named if (token := backend.token_to_id(text)) is not None}
        self.stop_token_ids = tuple(sorted(ids | {*stop_token_ids(folder, spec)}))

    @classmethod
    def from_folder(cls, folder: Path, spec: ModelSpec) -> Tokenizer:
        """Raises CheckpointError (TOKENIZER) for missing or unusable files."""
        path = folder / "tokenizer.json"
        if not path.is_file():
            _missing(folder)
        try:
            backend = tokenizers.Tokenizer.from_file(str(path))
        except Exception as error:  # noqa: BLE001 - the library raises nothing narrower
            _fail(str(path), str(error), "a tokenizer.json of the tokenizers library")
        settings = _json(folder / "special_tokens_map.json") | _json(folder / "tokenizer_config.json")
        largest = max(backend.get_vocab(with_added_tokens=True).values(), default=-1)
        if largest >= spec.vocab_size:
            _fail(str(path), f"token id {largest}", f"ids below the vocabulary size {spec.vocab_size}")
        backend.no_padding()
        backend.no_truncation()
        return cls(folder, backend, settings, spec)

    def encode(self, text: str) -> list[int]:
        """Ids of a plain text, beginning with the family's first token where it has one."""
        return [*self._begin, *self._encode(text)]

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        """The text; `<think>` and `</think>` stay, because they carry meaning for the reader."""
        shown = [i for i in ids if i not in self._hidden] if skip_special_tokens else list(ids)
        return str(self._backend.decode(shown, skip_special_tokens=False))

    def render_chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        add_generation_prompt: bool = True,
        tools: Sequence[Mapping[str, Any]] | None = None,
        **variables: Any,
    ) -> str:
        """The conversation as text. variables: for the template, such as enable_thinking=True.

        Raises CheckpointError (TOKENIZER) without a template, ConfigError for messages it refuses.
        """
        shadowed = sorted(set(variables) & {"messages", *self.special_tokens})
        if shadowed:
            raise ConfigError("chat template variables", found=", ".join(shadowed), allowed="other names")
        given = {**self.special_tokens, **variables, "add_generation_prompt": add_generation_prompt}
        return self._template.render(messages, tools=tools, variables=given)

    def encode_chat(self, messages: Sequence[Mapping[str, Any]], **options: Any) -> list[int]:
        """Ids of `render_chat`, which takes the same options."""
        return self._encode(self.render_chat(messages, **options))

    def detokenizer(self, *, stop: Sequence[str] = (), min_tokens: int = 0) -> Detokenizer:
        """For one request; see `Detokenizer`."""
        return Detokenizer(decoder_for(self._backend), self._hidden, stop=stop, min_tokens=min_tokens)

    @cached_property
    def _template(self) -> ChatTemplate:
        from rlt_hw.runtime.chat_template import ChatTemplate

        return ChatTemplate.from_folder(self._folder, self._settings)

    def _encode(self, text: str) -> list[int]:
        return list(self._backend.encode(text, add_special_tokens=False).ids)

    def _beginning(self) -> list[int]:
        declared = self.special_tokens.get("bos_token") if self._settings.get("add_bos_token") else None
        text = declared if self._begin_text is None else self._begin_text
        token = self._backend.token_to_id(text) if text else None
        if not text or token is None:
            return []
        self.special_tokens["bos_token"] = text
        return [token]

    def _hidden_ids(self) -> frozenset[int]:
        added = self._backend.get_added_tokens_decoder()
        return frozenset(
            token for token, entry in added.items() if entry.special and entry.content not in (OPEN, CLOSE)
        )


def stop_token_ids(folder: Path, spec: ModelSpec) -> tuple[int, ...]:
    """What ends a generation as far as it is known without a tokenizer, sorted.

    The family's ids and the eos of `generation_config.json`, as far as the vocabulary has them.
    """
    eos = _json(folder / "generation_config.json").get("eos_token_id")
    listed = eos if isinstance(eos, list) else [] if eos is None else [eos]
    if not all(isinstance(token, int) for token in listed):
        _fail(str(folder / "generation_config.json"), f"eos_token_id {eos!r}", "a token id or a list of them")
    return tuple(sorted(token for token in {*spec.stop_token_ids, *listed} if 0 <= token < spec.vocab_size))


def _special_tokens(settings: Mapping[str, Any]) -> dict[str, str]:
    found = {name: settings.get(name) for name in _SPECIAL_NAMES}
    texts = {
        name: value.get("content") if isinstance(value, dict) else value for name, value in found.items()
    }
    return {name: text for name, text in texts.items() if isinstance(text, str)}


def _json(path: Path) -> dict[str, Any]:
    """A file's JSON object, empty where there is no file."""
    if not path.is_file():
        return {}
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        _fail(str(path), str(error), "readable JSON")
    if not isinstance(data, dict):
        _fail(str(path), type(data).__name__, "a JSON object")
    return data


def _fail(subject: str, found: str, allowed: str) -> NoReturn:
    raise CheckpointError(
        subject, found=found, allowed=allowed, remedy="Download the file again.", code=Code.TOKENIZER
    )


def _missing(folder: Path) -> NoReturn:
    others = ", ".join(sorted(path.name for path in folder.glob("*.model")))
    raise CheckpointError(
        f"tokenizer of {folder}",
        found=others or "no tokenizer.json",
        allowed="a tokenizer.json",
        remedy="Download the checkpoint's tokenizer files, or pass prompts as token ids.",
        code=Code.TOKENIZER,
    )
