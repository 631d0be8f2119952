"""Takes out of a text what names a person or a machine: paths, addresses, device ids, user and host names.

Everything else stays as it is, so that what a report says is wrong can still be read. Serial numbers are
never recorded in the first place.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

from rlt_hw.reasons import Rejection

_ADDRESS = re.compile(r"(?<=://)[^/\s@]+@|\b[\w.+-]+@(?=[A-Za-z])[\w.-]+")
# A file's URL, an absolute path, a home folder, or a Windows drive; not another URL and not a device file.
_PATH = re.compile(
    r"file://\S+"
    r"|(?<![\w/.])(?:~[\w.-]*|/(?!dev/|proc/|sys/)[\w.+-]+|[A-Za-z]:\\[\w.+-]+)(?:[/\\][\w.+@-]+)+"
)
_HEX = "[0-9a-fA-F]"
# As NVIDIA's and AMD's visibility variables name devices, and any other UUID.
_DEVICE = re.compile(
    rf"\b((?:GPU|MIG)-(?:GPU-)?){_HEX}{{6,}}[0-9a-fA-F/-]*|\b()({_HEX}{{8}}(?:-{_HEX}{{4}}){{3}}-{_HEX}{{12}})\b"
)
_NOBODY = {"", "root", "localhost"}


@dataclass(frozen=True)
class Redaction:
    """names: words that stand for a user or a host, to be taken out wherever they are words of their own."""

    names: tuple[str, ...] = ()

    def text(self, text: str) -> str:
        text = _PATH.sub("<path>", _ADDRESS.sub(_address, text))
        text = _DEVICE.sub(lambda found: f"{found[1] or ''}<id>", text)
        for name in self.names:
            text = re.sub(rf"(?<![\w-]){re.escape(name)}(?![\w-])", "<name>", text)
        return text

    def rejection(self, row: Rejection) -> Rejection:
        return Rejection(row.code, *map(self.text, (row.subject, row.found, row.allowed, row.remedy)))


def of_this_process() -> Redaction:
    """With the names of whoever runs this process and of the host that it runs on."""
    return Redaction(tuple(sorted({*_own_names()} - _NOBODY, key=len, reverse=True)))


def _own_names() -> Iterator[str]:
    """A container's user need not have a name, nor a home."""
    import getpass
    import platform
    from pathlib import Path

    with suppress(OSError, KeyError, ImportError):
        yield getpass.getuser()
    with suppress(RuntimeError):
        yield Path.home().name
    host = platform.node()
    yield from (host, host.partition(".")[0])


def _address(found: re.Match[str]) -> str:
    return "<address>@" if found[0].endswith("@") else "<address>"
