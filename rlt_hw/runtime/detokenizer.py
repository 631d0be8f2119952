"""Text of one request as its tokens arrive: whole characters only, cut at the first stop string.

What a token adds is decoded once: the cost of a token does not grow with the text before it.
"""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from typing import Protocol

import tokenizers

REPLACEMENT = "\ufffd"


class IncrementalDecoder(Protocol):
    """Token ids to text, holding back what may still change."""

    def add(self, token: int) -> str: ...

    def finish(self) -> str: ...


class Detokenizer:
    """Grows a request's text token by token.

    hidden: ids that leave no text. stop: strings that end the text; the first to appear cuts it,
    wherever token borders fall. min_tokens: stop strings count only after so many tokens.
    """

    def __init__(
        self,
        decoder: IncrementalDecoder,
        hidden: frozenset[int] = frozenset(),
        *,
        stop: Sequence[str] = (),
        min_tokens: int = 0,
    ) -> None:
        self._decoder, self._hidden = decoder, hidden
        self._stop, self._min_tokens = tuple(stop), min_tokens
        self._parts: list[str] = []
        self._held = ""
        self._count = 0
        self._finished = False
        self.stopped_by: str | None = None

    @property
    def text(self) -> str:
        """Everything that was emitted so far."""
        if len(self._parts) > 1:
            self._parts = ["".join(self._parts)]
        return self._parts[0] if self._parts else ""

    def add(self, token: int) -> str:
        """The text that became certain with this token; nothing more after a stop string."""
        if self._finished:
            return ""
        self._count += 1
        new = "" if token in self._hidden else self._decoder.add(token)
        return self._emit(new, hold=True)

    def finish(self) -> str:
        """What was held back; call it when the request has ended for another reason."""
        if self._finished:
            return ""
        out = self._emit(self._decoder.finish(), hold=False)
        self._finished = True
        return out

    def _emit(self, new: str, *, hold: bool) -> str:
        text, self._held = self._held + new, ""
        if self._stop and self._count > self._min_tokens:
            found = [(at, stop) for stop in self._stop if (at := text.find(stop)) >= 0]
            if found:
                at, self.stopped_by = min(found)
                self._finished = True
                text = text[:at]
            elif hold:
                keep = len(text) - self._possible_stop(text)
                text, self._held = text[:keep], text[keep:]
        if text:
            self._parts.append(text)
        return text

    def _possible_stop(self, text: str) -> int:
        """Length of the longest end of `text` that a stop string begins with."""
        longest = max(map(len, self._stop)) - 1
        lengths = range(min(longest, len(text)), 0, -1)
        return next((n for n in lengths if any(stop.startswith(text[-n:]) for stop in self._stop)), 0)


def decoder_for(backend: tokenizers.Tokenizer) -> IncrementalDecoder:
    """An exact byte decoder for byte-level tokenizers, a window over the library's for others."""
    byte_level = isinstance(backend.decoder, tokenizers.decoders.ByteLevel)
    return ByteLevelDecoder(backend) if byte_level else WindowDecoder(backend)


class ByteLevelDecoder:
    """Every token is bytes; the characters they form come out of an incremental UTF-8 decoder."""

    def __init__(self, backend: tokenizers.Tokenizer) -> None:
        self._backend = backend
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")

    def add(self, token: int) -> str:
        return self._utf8.decode(_token_bytes(self._backend.id_to_token(token) or ""))

    def finish(self) -> str:
        return self._utf8.decode(b"", final=True)


class WindowDecoder:
    """Decodes the newest tokens behind those of the last clean border, and takes the difference."""

    _PATIENCE = 8
    """Tokens after which an unfinished character is taken for a wrong one."""

    def __init__(self, backend: tokenizers.Tokenizer) -> None:
        self._backend = backend
        self._context: list[int] = []
        self._pending: list[int] = []

    def add(self, token: int) -> str:
        self._pending.append(token)
        new = self._new()
        open_ended = not new or new.endswith(REPLACEMENT)
        return "" if open_ended and len(self._pending) < self._PATIENCE else self._advance(new)

    def finish(self) -> str:
        return self._advance(self._new())

    def _new(self) -> str:
        before = self._decode(self._context)
        return self._decode(self._context + self._pending)[len(before) :]

    def _advance(self, new: str) -> str:
        self._context, self._pending = self._pending, []
        return new

    def _decode(self, ids: list[int]) -> str:
        return str(self._backend.decode(ids, skip_special_tokens=False)) if ids else ""


def _byte_of_character() -> dict[str, int]:
    """The alphabet of byte-level BPE: printable bytes stand for themselves, the others for
    characters from U+0100 on, in order."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + i): byte for i, byte in enumerate(others)}


_BYTES = _byte_of_character()


def _token_bytes(token: str) -> bytes:
    try:
        return bytes([_BYTES[character] for character in token])
    except KeyError:
        return token.encode()
