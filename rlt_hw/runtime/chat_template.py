"""A checkpoint's chat template, rendered in a sandbox as its authors' library renders it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from rlt_hw.errors import CheckpointError, ConfigError
from rlt_hw.reasons import Code

FILE = "chat_template.jinja"


class ChatTemplate:
    """Templates by name; "tool_use" serves calls with tools where there is one."""

    def __init__(self, sources: Mapping[str, str], origin: str) -> None:
        environment = _environment()
        try:
            self._templates = {name: environment.from_string(text) for name, text in sources.items()}
        except jinja2.TemplateSyntaxError as error:
            raise CheckpointError(
                f"chat template of {origin}",
                found=f"line {error.lineno}: {error.message}",
                allowed="a valid Jinja template",
                remedy="Download the tokenizer files again.",
                code=Code.TOKENIZER,
            ) from error

    @classmethod
    def from_folder(cls, folder: Path, settings: Mapping[str, Any]) -> ChatTemplate:
        """From `chat_template.jinja`, else from tokenizer_config.json (`settings`)."""
        path = folder / FILE
        source = path.read_text(encoding="utf-8") if path.is_file() else settings.get("chat_template")
        if isinstance(source, list):
            source = {entry["name"]: entry["template"] for entry in source}
        if not source:
            raise CheckpointError(
                f"chat template of {folder}",
                found="none",
                allowed=f"{FILE}, or chat_template in tokenizer_config.json",
                remedy="Pass a plain prompt instead of chat messages.",
                code=Code.TOKENIZER,
            )
        return cls(source if isinstance(source, dict) else {"default": source}, str(folder))

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None,
        variables: Mapping[str, Any],
    ) -> str:
        """Raises ConfigError for messages that the template refuses or cannot read."""
        _check(messages)
        name = "tool_use" if tools and "tool_use" in self._templates else "default"
        if name not in self._templates:
            raise ConfigError("chat template", found=", ".join(self._templates), allowed="one named default")
        try:
            return self._templates[name].render(messages=messages, tools=tools, **variables)
        except (jinja2.TemplateError, TypeError, ValueError, LookupError) as error:
            raise ConfigError(
                "chat messages",
                found=f"the chat template says: {error}",
                allowed="messages that the checkpoint's template accepts",
            ) from error


class Generation(Extension):
    """`{% generation %}…{% endgeneration %}` marks what an assistant wrote; here it only renders."""

    tags = {"generation"}  # noqa: RUF012 - as the base class declares it

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, "jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = _tojson
    environment.globals["raise_exception"] = _raise
    environment.globals["strftime_now"] = lambda pattern: datetime.now().strftime(pattern)
    return environment


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Jinja's own filter escapes HTML, which a prompt must not."""
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _raise(message: str) -> None:
    raise jinja2.TemplateError(message)


def _check(messages: Any) -> None:
    listed = isinstance(messages, Sequence) and not isinstance(messages, (str, bytes)) and len(messages) > 0
    if not listed or not all(isinstance(message, Mapping) and "role" in message for message in messages):
        raise ConfigError(
            "chat messages", found=repr(messages)[:200], allowed="a non-empty list of {role, content} objects"
        )
