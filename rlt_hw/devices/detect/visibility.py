"""What the visibility variables leave of the devices of a machine. Pure functions over text.

CUDA, HIP and CANN all read their list up to the first entry that is no device and silently drop the
rest. That is honoured here, and said.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rlt_hw.reasons import Code, Rejection


@dataclass(frozen=True)
class Visible:
    """Positions in the list of physical devices, in the order the process sees them."""

    order: tuple[int, ...]
    findings: tuple[Rejection, ...] = ()


def visible(
    variable: str,
    value: str | None,
    identifiers: Sequence[str],
    *,
    ascending: bool = False,
) -> Visible:
    """Apply one variable. `identifiers` are the UUIDs of the devices by position ("" where unknown).

    value None: not set, all are visible. An entry is a position, or the start of exactly one identifier.
    `ascending`: the vendor reads positions in rising order only (CANN).
    """
    count = len(identifiers)
    if value is None:
        return Visible(tuple(range(count)))
    if not value.strip() or value.strip() in ("-1", "NoDevFiles"):
        return Visible((), _hides_all(variable, value, count))
    order: list[int] = []
    for entry in value.split(","):
        position = _position(entry, identifiers, spaces=not ascending)
        problem = _problem(position, order, ascending)
        if problem or position is None:
            return Visible(tuple(order), (_malformed(variable, value, entry, problem, order, count),))
        order.append(position)
    return Visible(tuple(order))


def _position(entry: str, identifiers: Sequence[str], spaces: bool) -> int | None:
    entry = entry.strip() if spaces else entry
    if entry.isdecimal():
        return int(entry) if int(entry) < len(identifiers) else None
    named = [at for at, name in enumerate(identifiers) if entry and name.lower().startswith(entry.lower())]
    return named[0] if len(named) == 1 else None


def _problem(position: int | None, order: Sequence[int], ascending: bool) -> str:
    if position is None:
        return "names no device of this machine"
    if position in order:
        return "names a device twice"
    if ascending and order and position < order[-1]:
        return "is out of order"
    return ""


def _hides_all(variable: str, value: str, count: int) -> tuple[Rejection, ...]:
    if not count:
        return ()
    return (
        Rejection(
            Code.VISIBILITY,
            variable,
            f"{variable}={value!r} hides every one of {count} device(s)",
            f"a list of 0 to {count - 1}, or not set",
            f"`unset {variable}`",
        ),
    )


def _malformed(
    variable: str, value: str, entry: str, problem: str, order: Sequence[int], count: int
) -> Rejection:
    kept = ", ".join(map(str, order)) or "no device"
    return Rejection(
        Code.VISIBILITY,
        variable,
        f"{variable}={value!r}: entry {entry!r} {problem}; the vendor's runtime stops there and keeps {kept}",
        f"a list of different positions from 0 to {count - 1}, or identifiers" if count else "not set",
        f"`export {variable}={','.join(map(str, order))}`" if order else f"`unset {variable}`",
    )
