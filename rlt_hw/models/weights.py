"""Reads a checkpoint's weights strictly, or makes random ones of the same shapes.

Names and shapes are compared with what the model expects before anything is read, and every
difference is one error. A tensor is read from the mapped file, cast and placed before the next.
"""

from __future__ import annotations

import re
import sys
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open

from rlt_hw.errors import CapacityError, CheckpointError
from rlt_hw.models.shards import StoredTensor, fail, io_error, shorten, stored_tensors
from rlt_hw.reasons import Code

DUMMY_STD = 0.02


def load_weights(
    folder: Path,
    expected: Mapping[str, tuple[int, ...]],
    *,
    dtype: torch.dtype,
    device: torch.device,
    ignore: Sequence[str] = (),
    keep_dtype: Sequence[str] = (),
    tied: Mapping[str, str] | None = None,
    progress: bool = False,
) -> dict[str, torch.Tensor]:
    """The expected tensors, in `dtype` on `device`.

    ignore: patterns (whole name) of stored tensors that are left out. keep_dtype: patterns of
    tensors that keep the stored number type. tied: stored name to the expected tensor it repeats;
    it may be absent or stand in for that tensor, and where both are stored they must be equal.
    progress: show a bar with bytes and rate, where stderr is a terminal.

    Raises CheckpointError: one error lists all missing, unexpected and misshapen tensors.
    Raises CapacityError (MEMORY) when the device has no room.
    """
    stored = stored_tensors(folder)
    source = _match(folder, stored, expected, ignore, tied or {})
    loaded: dict[str, torch.Tensor] = {}
    with _bar(sum(stored[name].nbytes for name in source.values()), progress) as advance:
        for name, tensor in _read(stored, source):
            wanted = tensor.dtype if _matches(keep_dtype, name) else dtype
            loaded[name] = _place(tensor, wanted, device, name)
            advance(stored[source[name]].nbytes)
    repeats = {name: of for name, of in (tied or {}).items() if name in stored and source[of] != name}
    for name, tensor in _read(stored, {name: name for name in repeats}):
        of = repeats[name]
        if not torch.equal(loaded[of], tensor.to(device, loaded[of].dtype)):
            fail(f"{name} in {folder}", f"values that differ from {of}", "equal values: the two are tied")
    return loaded


def dummy_weights(
    expected: Mapping[str, tuple[int, ...]], *, dtype: torch.dtype, device: torch.device, seed: int = 0
) -> dict[str, torch.Tensor]:
    """Random weights: biases 0, other vectors (norms) 1, the rest normal with std 0.02.

    A tensor depends on the seed, its name, its shape, the dtype and the kind of device.
    """
    weights = {}
    for name, shape in expected.items():
        tensor = torch.empty(shape, dtype=dtype, device=device)
        if len(shape) == 1:
            weights[name] = tensor.fill_(0.0 if name.endswith(".bias") else 1.0)
            continue
        # 32 bits: torch's CPU generator ignores the others.
        generator = torch.Generator(device).manual_seed(zlib.crc32(f"{seed} {name}".encode()))
        weights[name] = tensor.normal_(0.0, DUMMY_STD, generator=generator)
    return weights


def _match(
    folder: Path,
    stored: Mapping[str, StoredTensor],
    expected: Mapping[str, tuple[int, ...]],
    ignore: Sequence[str],
    tied: Mapping[str, str],
) -> dict[str, str]:
    """Expected name to stored name, or one error that lists every difference."""
    stand_in = {of: name for name, of in tied.items() if name in stored}
    source = {name: name if name in stored else stand_in.get(name, name) for name in expected}
    missing = [name for name in expected if source[name] not in stored]
    unexpected = [
        name for name in stored if name not in expected and name not in tied and not _matches(ignore, name)
    ]
    wanted = dict(expected) | {name: expected[of] for name, of in tied.items()}
    misshapen = [
        f"{name} {list(stored[name].shape)} for {list(shape)}"
        for name, shape in wanted.items()
        if name in stored and stored[name].shape != tuple(shape)
    ]
    kinds = {"missing": missing, "unexpected": unexpected, "misshapen": misshapen}
    found = "; ".join(f"{len(names)} {kind}: {shorten(names)}" for kind, names in kinds.items() if names)
    if found:
        fail(
            f"weights in {folder}",
            found,
            f"exactly the {len(expected)} tensors that config.json describes",
            "Check that config.json and the weights are of the same checkpoint.",
        )
    return source


def _read(
    stored: Mapping[str, StoredTensor], source: Mapping[str, str]
) -> Iterator[tuple[str, torch.Tensor]]:
    """(expected name, mapped tensor) of each source, file by file; a file is open while it is read."""
    by_path: dict[Path, list[str]] = {}
    for name, at in source.items():
        by_path.setdefault(stored[at].path, []).append(name)
    for path, names in by_path.items():
        with _reading(path), safe_open(path, framework="pt", device="cpu") as file:
            for name in names:
                yield name, file.get_tensor(source[name])


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise io_error(path, error) from error
    except SafetensorError as error:
        raise CheckpointError(
            str(path), found=str(error), allowed="a safetensors file", remedy="Download the file again."
        ) from error


def _place(tensor: torch.Tensor, dtype: torch.dtype, device: torch.device, name: str) -> torch.Tensor:
    """A copy of its own: a result must not depend on the mapped file."""
    try:
        return torch.empty(tensor.shape, dtype=dtype, device=device).copy_(tensor)
    except (torch.OutOfMemoryError, MemoryError) as error:
        raise CapacityError(
            f"weights on {device}",
            found=f"no room for {name}, {tensor.numel() * dtype.itemsize} bytes",
            allowed="a model whose weights fit",
            remedy="Run `rlt-hw plan` to see what fits; bfloat16 halves float32.",
            code=Code.MEMORY,
        ) from error


def _matches(patterns: Sequence[str], name: str) -> bool:
    return any(re.fullmatch(pattern, name) for pattern in patterns)


@contextmanager
def _bar(total: int, wanted: bool) -> Iterator[Callable[[int], None]]:
    """A function to be told of bytes that were read."""
    if not wanted or not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    columns = (TextColumn("weights"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("weights", total=total)
        yield lambda count: bar.advance(task, count)
