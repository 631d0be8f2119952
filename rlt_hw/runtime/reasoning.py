"""Where a Thinking model's reasoning ends and its answer begins."""

from __future__ import annotations

OPEN = "<think>"
CLOSE = "</think>"


def split_reasoning(text: str) -> tuple[str | None, str]:
    """(reasoning, answer) of a generated text; reasoning is None where there is none.

    The opening tag may be missing, because chat templates put it into the prompt. Text that opens
    its reasoning and never closes it is all reasoning.
    """
    before, closed, after = text.partition(CLOSE)
    if closed:
        return before.strip().removeprefix(OPEN).strip(), after.lstrip()
    if text.lstrip().startswith(OPEN):
        return text.lstrip().removeprefix(OPEN).strip(), ""
    return None, text
