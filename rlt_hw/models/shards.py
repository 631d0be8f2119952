"""What tensors a checkpoint folder stores, read from the safetensors headers alone.

Every file is checked here before a byte of a weight is read: sizes, index, names, number types.
Pickled weights are never opened, because opening one runs its code. Needs no torch.
"""

from __future__ import annotations

import json
import math
import struct
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, NoReturn

from rlt_hw.errors import CheckpointError

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
ITEMSIZE = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2}
"""Bytes of an element, for the number types that weights may be stored in."""

_MAX_HEADER = 100_000_000
_OTHER_FORMATS = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl", "*.gguf", "*.msgpack", "*.h5")
_SHOWN = 8


@dataclass(frozen=True)
class StoredTensor:
    """Where a tensor is and what the header says of it. nbytes: in the file."""

    path: Path
    dtype: str
    shape: tuple[int, ...]
    nbytes: int


def stored_tensors(folder: Path) -> dict[str, StoredTensor]:
    """Every tensor of `model.safetensors`, or of the shards that the index names.

    Raises CheckpointError that says which file is wrong and how.
    """
    single, index = folder / SINGLE, folder / INDEX
    try:
        if single.is_file() and index.is_file():
            fail(str(folder), f"{SINGLE} and {INDEX}", "one of the two", "Delete the one that is not in use.")
        if single.is_file():
            return read_header(single)
        if index.is_file():
            return _read_shards(folder, _weight_map(index))
        _no_weights(folder)
    except OSError as error:
        raise io_error(folder, error) from error


def read_header(path: Path) -> dict[str, StoredTensor]:
    """The tensors of one file, after checking that the file is whole."""
    size = path.stat().st_size
    with path.open("rb") as file:
        prefix = file.read(8)
        length = struct.unpack("<Q", prefix)[0] if len(prefix) == 8 else 0
        if len(prefix) < 8 or (length <= _MAX_HEADER and length > size - 8):
            _truncated(path, size, f"at least {8 + length} bytes (its header)")
        if not 2 <= length <= _MAX_HEADER:
            _no_safetensors(path, f"a header length of {length} bytes")
        entries = _header_entries(path, file.read(length))
    tensors = {name: _tensor(path, name, entry) for name, entry in entries.items()}
    data = max((entry["data_offsets"][1] for entry in entries.values()), default=0)
    expected = 8 + length + data
    if size < expected:
        _truncated(path, size, f"{expected} bytes")
    if size > expected or sum(tensor.nbytes for tensor in tensors.values()) != data:
        fail(str(path), f"{size} bytes", f"{expected} bytes without gaps, as its header says", _AGAIN)
    return tensors


def fail(subject: str, found: str, allowed: str, remedy: str = "") -> NoReturn:
    raise CheckpointError(subject, found=found, allowed=allowed, remedy=remedy)


def io_error(path: Path, error: OSError) -> CheckpointError:
    """An operating-system error (disk full, no permission, a vanished mount) as our own."""
    return CheckpointError(
        str(error.filename or path),
        found=error.strerror or str(error),
        allowed="a readable file on a disk that is not full",
        remedy="Check free space and permissions with `df -h` and `ls -l`.",
    )


def shorten(names: Iterable[str]) -> str:
    """The first names of a list and how many more there are."""
    listed = list(names)
    rest = f" and {len(listed) - _SHOWN} more" if len(listed) > _SHOWN else ""
    return ", ".join(listed[:_SHOWN]) + rest


_AGAIN = "Download the file again."


def _truncated(path: Path, size: int, expected: str) -> NoReturn:
    fail(str(path), f"{size} bytes: the file is truncated", expected, _AGAIN)


def _no_safetensors(path: Path, found: str) -> NoReturn:
    fail(str(path), found, "a safetensors file", _AGAIN)


def _header_entries(path: Path, header: bytes) -> dict[str, Any]:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        twice = [name for name, count in Counter(name for name, _ in pairs).items() if count > 1]
        if twice:
            fail(str(path), f"tensors stored twice: {shorten(twice)}", "one tensor a name", _AGAIN)
        return dict(pairs)

    try:
        entries = json.loads(header, object_pairs_hook=unique)
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        _no_safetensors(path, f"a header that is not JSON ({error})")
    if not isinstance(entries, dict):
        _no_safetensors(path, "a header that is not a JSON object")
    entries.pop("__metadata__", None)
    return entries


def _tensor(path: Path, name: str, entry: Any) -> StoredTensor:
    try:
        dtype, shape = entry["dtype"], tuple(entry["shape"])
        start, end = entry["data_offsets"]
        whole = all(type(number) is int and number >= 0 for number in (*shape, start, end))
    except (TypeError, KeyError, ValueError):
        whole = False
    if not whole:
        _no_safetensors(path, f"a malformed header entry for {name}")
    if dtype not in ITEMSIZE:
        remedy = "Quantised checkpoints are not read; use the original one."
        fail(f"{name} in {path}", f"number type {dtype}", ", ".join(ITEMSIZE), remedy)
    nbytes = math.prod(shape) * ITEMSIZE[dtype]
    if end - start != nbytes:
        fail(f"{name} in {path}", f"{end - start} bytes", f"{nbytes} bytes for {dtype} {list(shape)}", _AGAIN)
    return StoredTensor(path, dtype, shape, nbytes)


def _weight_map(index: Path) -> Mapping[str, str]:
    try:
        mapping = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
        valid = isinstance(mapping, dict) and all(isinstance(file, str) for file in mapping.values())
    except (UnicodeDecodeError, json.JSONDecodeError, TypeError, KeyError):
        valid = False
    if not valid:
        fail(str(index), "no weight_map", "a weight_map of tensor to file name", _AGAIN)
    return mapping


def _read_shards(folder: Path, weight_map: Mapping[str, str]) -> dict[str, StoredTensor]:
    names = sorted(set(weight_map.values()))
    paths = {name: _shard_path(folder, name) for name in names}
    missing = shorten(name for name, path in paths.items() if not path.is_file())
    if missing:
        fail(str(folder), f"missing shards: {missing}", f"the {len(names)} files {INDEX} names", _AGAIN)
    tensors: dict[str, StoredTensor] = {}
    wrong: list[str] = []
    for shard, path in paths.items():
        held = read_header(path)
        wrong += [f"{name} in both {tensors[name].path.name} and {shard}" for name in held if name in tensors]
        wrong += [f"{name} in {shard} but not in the index" for name in held if name not in weight_map]
        lost = [name for name, at in weight_map.items() if at == shard and name not in held]
        wrong += [f"{name} not in {shard}" for name in lost]
        tensors |= held
    if wrong:
        fail(str(folder / INDEX), shorten(wrong), "an index that agrees with its shards", _AGAIN)
    return tensors


def _shard_path(folder: Path, name: str) -> Path:
    """The file of an index entry, which must lie in the folder.

    A link may lead to the `blobs` folder of the hub cache that the folder is a snapshot of.
    """
    path = folder / name
    roots = [folder.resolve()]
    if folder.parent.name == "snapshots":
        roots.append((folder.parent.parent / "blobs").resolve())
    plain = PurePosixPath(name).name == name and "\\" not in name and name not in ("", ".", "..")
    if not plain or not any(path.resolve().is_relative_to(root) for root in roots):
        fail(
            str(folder / INDEX), f"shard {name!r}, outside the folder", "file names inside the folder", _AGAIN
        )
    if path.suffix != ".safetensors":
        fail(str(folder / INDEX), f"shard {name!r}", "safetensors files", "Use a safetensors checkpoint.")
    return path


def _no_weights(folder: Path) -> NoReturn:
    others = sorted(path.name for pattern in _OTHER_FORMATS for path in folder.glob(pattern))
    fail(
        str(folder),
        shorten(others) if others else "no weights",
        f"{SINGLE}, or shards with {INDEX}",
        "Pickled and converted weights are not read; use the safetensors files of the checkpoint."
        if others
        else "Download the checkpoint's safetensors files, or use load_format='dummy'.",
    )
