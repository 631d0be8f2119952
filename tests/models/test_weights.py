"""Weights are read strictly: each fault of a checkpoint is one clear error before any tensor is used."""

from __future__ import annotations

import errno
import json
import shutil
import struct
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from rlt_hw.errors import CapacityError, CheckpointError
from rlt_hw.models import shards, weights
from rlt_hw.models.shards import INDEX, SINGLE, stored_tensors
from rlt_hw.models.weights import dummy_weights, load_weights

CPU = torch.device("cpu")
GOLDEN = Path(__file__).parent.parent / "golden"
SHAPES = {"embed.weight": (6, 4), "norm.weight": (4,), "head.weight": (6, 4)}


def tensors(**changes):
    made = {
        name: torch.arange(24.0)[: torch.Size(shape).numel()].reshape(shape) for name, shape in SHAPES.items()
    }
    return {name: tensor for name, tensor in (made | changes).items() if tensor is not None}


def single(folder, content=None):
    save_file({name: t.contiguous().clone() for name, t in (content or tensors()).items()}, folder / SINGLE)
    return folder


def sharded(folder, *, index=None, names=("a.safetensors", "b.safetensors")):
    content = tensors()
    parts = [
        {"embed.weight": content["embed.weight"]},
        {n: content[n] for n in ("norm.weight", "head.weight")},
    ]
    for name, part in zip(names, parts, strict=True):
        save_file({key: t.clone() for key, t in part.items()}, folder / name)
    mapping = {key: name for name, part in zip(names, parts, strict=True) for key in part} | (index or {})
    mapping = {key: name for key, name in mapping.items() if name is not None}
    (folder / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": mapping}))
    return folder


def load(folder, shapes=SHAPES, **options):
    return load_weights(folder, shapes, dtype=options.pop("dtype", torch.float32), device=CPU, **options)


def raw(folder, header, data=b"", *, length=None):
    """A hand-made safetensors file."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    (folder / SINGLE).write_bytes(struct.pack("<Q", len(text) if length is None else length) + text + data)
    return folder


def edit(path, change):
    path.write_bytes(change(path.read_bytes()))


@pytest.mark.parametrize("layout", [single, sharded])
def test_values_come_in_the_wanted_dtype(tmp_path, layout):
    found = load(layout(tmp_path), dtype=torch.bfloat16)
    assert set(found) == set(SHAPES)
    for name, tensor in tensors().items():
        assert found[name].dtype == torch.bfloat16
        assert torch.equal(found[name], tensor.bfloat16())


def test_a_loaded_tensor_does_not_depend_on_its_file(tmp_path):
    found = load(single(tmp_path))
    edit(tmp_path / SINGLE, lambda data: bytes(len(data)))
    assert torch.equal(found["embed.weight"], tensors()["embed.weight"])


@pytest.mark.parametrize("case", ["ouro-b", "nanbeige-b", "huginn-a"])
def test_reference_shards_equal_a_plain_read(case):
    stored = stored_tensors(GOLDEN / case)
    plain = {}
    for path in sorted((GOLDEN / case).glob("model-*.safetensors")):
        plain |= load_file(path)
    assert {name: tensor.shape for name, tensor in stored.items()} == {
        n: tuple(t.shape) for n, t in plain.items()
    }
    found = load(GOLDEN / case, {name: tensor.shape for name, tensor in stored.items()})
    assert all(torch.equal(found[name], tensor) for name, tensor in plain.items())


def test_all_differences_are_one_error(tmp_path):
    content = tensors(**{"norm.weight": None, "head.weight": torch.zeros(5, 4), "extra.bias": torch.zeros(1)})
    with pytest.raises(CheckpointError) as caught:
        load(single(tmp_path, content))
    assert caught.value.code == "CHECKPOINT"
    assert caught.value.found == (
        "1 missing: norm.weight; 1 unexpected: extra.bias; 1 misshapen: head.weight [5, 4] for [6, 4]"
    )


def test_the_list_of_differences_is_bounded(tmp_path):
    shapes = {f"layer.{i}.weight": (4,) for i in range(1000)}
    with pytest.raises(CheckpointError, match=r"1000 missing: .* and 992 more") as caught:
        load(single(tmp_path), shapes)
    assert len(str(caught.value)) < 1500


def test_ignored_and_kept_tensors(tmp_path):
    content = tensors(freqs_cis=torch.zeros(2), freqs_cis_2=torch.zeros(2))
    single(tmp_path, content)
    with pytest.raises(CheckpointError, match="1 unexpected: freqs_cis_2"):
        load(tmp_path, ignore=("freqs_cis",))
    found = load(tmp_path, dtype=torch.float16, ignore=("freqs_.*",), keep_dtype=(r"norm\..*",))
    assert found["norm.weight"].dtype == torch.float32
    assert found["embed.weight"].dtype == torch.float16


class TestTied:
    shapes = {name: SHAPES[name] for name in ("embed.weight", "norm.weight")}
    tied = {"head.weight": "embed.weight"}

    def test_the_repeat_may_be_absent(self, tmp_path):
        load(single(tmp_path, tensors(**{"head.weight": None})), self.shapes, tied=self.tied)

    def test_an_equal_repeat_is_dropped(self, tmp_path):
        assert set(load(single(tmp_path), self.shapes, tied=self.tied)) == set(self.shapes)

    def test_the_repeat_may_stand_alone(self, tmp_path):
        content = tensors(**{"embed.weight": None, "head.weight": torch.ones(6, 4)})
        found = load(single(tmp_path, content), self.shapes, tied=self.tied)
        assert torch.equal(found["embed.weight"], torch.ones(6, 4))

    def test_different_values_are_an_error(self, tmp_path):
        content = tensors(**{"head.weight": torch.ones(6, 4)})
        with pytest.raises(CheckpointError, match="values that differ from embed.weight"):
            load(single(tmp_path, content), self.shapes, tied=self.tied)

    def test_a_wrong_shape_is_an_error(self, tmp_path):
        content = tensors(**{"head.weight": torch.ones(5, 4)})
        with pytest.raises(CheckpointError, match="1 misshapen"):
            load(single(tmp_path, content), self.shapes, tied=self.tied)


@pytest.mark.parametrize("keep", [0, 4, 8, 60, -1])
def test_a_truncated_file_says_so(tmp_path, keep):
    single(tmp_path)
    edit(tmp_path / SINGLE, lambda data: data[:keep])
    with pytest.raises(CheckpointError, match="truncated"):
        load(tmp_path)


ENTRY = {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}
BROKEN = {
    "bytes behind the data": ({"w": ENTRY}, b"\0" * 8, "without gaps"),
    "a hole": ({"w": ENTRY, "v": {**ENTRY, "data_offsets": [8, 12]}}, b"\0" * 12, "without gaps"),
    "wrong size": ({"w": {**ENTRY, "shape": [2]}}, b"\0" * 4, "4 bytes; allowed: 8 bytes"),
    "negative shape": ({"w": {**ENTRY, "shape": [-1]}}, b"\0" * 4, "malformed header entry for w"),
    "no offsets": ({"w": {"dtype": "F32", "shape": [1]}}, b"\0" * 4, "malformed header entry for w"),
    "entry is no object": ({"w": 3}, b"", "malformed header entry for w"),
    "quantised": ({"w": {"dtype": "F8_E4M3", "shape": [4], "data_offsets": [0, 4]}}, b"\0" * 4, "F8_E4M3"),
    "header is a list": ([1], b"", "not a JSON object"),
    "header is not JSON": (b"{nonsense}", b"", "not JSON"),
    "stored twice": (b'{"w":%s,"w":%s}' % ((json.dumps(ENTRY).encode(),) * 2), b"\0" * 4, "stored twice: w"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_file_says_how(tmp_path, name):
    header, data, text = BROKEN[name]
    with pytest.raises(CheckpointError, match=text):
        load(raw(tmp_path, header, data), {"w": (1,)})


def test_a_file_of_another_kind_is_named(tmp_path):
    (tmp_path / SINGLE).write_bytes(b"PK\x03\x04" + b"\xff" * 100)
    with pytest.raises(CheckpointError, match="a header length of"):
        load(tmp_path)


def test_pickles_are_refused_by_name(tmp_path):
    (tmp_path / "pytorch_model.bin").write_bytes(b"never opened")
    with pytest.raises(CheckpointError, match="pytorch_model.bin"):
        load(tmp_path)
    with pytest.raises(CheckpointError, match="shard 'b.bin'"):
        load(sharded(tmp_path, index={"norm.weight": "b.bin"}))


def test_an_empty_folder_says_what_it_wants(tmp_path):
    with pytest.raises(CheckpointError, match="no weights; allowed: model.safetensors"):
        load(tmp_path)


def test_two_sets_of_weights_are_ambiguous(tmp_path):
    with pytest.raises(CheckpointError, match="one of the two"):
        load(sharded(single(tmp_path)))


@pytest.mark.parametrize(
    "name", ["../a.safetensors", "/etc/a.safetensors", "sub/a.safetensors", "..", "", "..\\a.safetensors"]
)
def test_an_index_cannot_leave_its_folder(tmp_path, name):
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    single(tmp_path)
    with pytest.raises(CheckpointError, match="outside the folder"):
        load(sharded(folder, index={"norm.weight": name}))


def test_a_link_that_leaves_the_folder_is_refused(tmp_path):
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    sharded(folder)
    (folder / "a.safetensors").rename(tmp_path / "elsewhere.safetensors")
    (folder / "a.safetensors").symlink_to(tmp_path / "elsewhere.safetensors")
    with pytest.raises(CheckpointError, match="outside the folder"):
        load(folder)


def test_links_of_a_hub_cache_are_followed(tmp_path):
    folder, blobs = tmp_path / "snapshots" / "abc", tmp_path / "blobs"
    folder.mkdir(parents=True)
    blobs.mkdir()
    sharded(folder)
    for path in folder.glob("*.safetensors"):
        shutil.move(path, blobs / path.stem)
        path.symlink_to(Path("../../blobs") / path.stem)
    assert set(load(folder)) == set(SHAPES)


def test_a_missing_shard_is_named(tmp_path):
    sharded(tmp_path)
    (tmp_path / "b.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"missing shards: b\.safetensors"):
        load(tmp_path)


DISAGREEMENTS = {
    "norm.weight not in a.safetensors": {"norm.weight": "a.safetensors"},
    "ghost not in a.safetensors": {"ghost": "a.safetensors"},
    "norm.weight in b.safetensors but not in the index": {"norm.weight": None},
}


@pytest.mark.parametrize("text", DISAGREEMENTS)
def test_index_and_shards_must_agree(tmp_path, text):
    with pytest.raises(CheckpointError, match=text):
        load(sharded(tmp_path, index=DISAGREEMENTS[text]))


def test_a_tensor_in_two_shards_is_an_error(tmp_path):
    sharded(tmp_path)
    save_file({"embed.weight": torch.zeros(6, 4)}, tmp_path / "a.safetensors")
    save_file(tensors(), tmp_path / "b.safetensors")
    with pytest.raises(CheckpointError, match=r"embed.weight in both a\.safetensors and b\.safetensors"):
        load(tmp_path)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"weight_map": []}', '{"weight_map": {"a": 1}}'])
def test_a_malformed_index_is_named(tmp_path, text):
    (tmp_path / INDEX).write_text(text)
    with pytest.raises(CheckpointError, match="no weight_map"):
        load(tmp_path)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO, errno.EACCES])
@pytest.mark.parametrize(("module", "function"), [(shards, "read_header"), (weights, "safe_open")])
def test_errors_of_the_disk_are_checkpoint_errors(tmp_path, monkeypatch, module, function, code):
    def broken(*args, **kwargs):
        raise OSError(code, "the disk says no", str(tmp_path / SINGLE))

    single(tmp_path)
    monkeypatch.setattr(module, function, broken)
    with pytest.raises(CheckpointError, match=rf"{SINGLE}: found the disk says no.*df -h"):
        load(tmp_path)


def test_a_full_device_is_a_capacity_error(tmp_path, monkeypatch):
    def full(*args, **kwargs):
        raise torch.OutOfMemoryError("full")

    single(tmp_path)
    monkeypatch.setattr(torch, "empty", full)
    with pytest.raises(CapacityError, match=r"no room for \w+\.weight, \d+ bytes") as caught:
        load(tmp_path)
    assert caught.value.code == "MEMORY"


def test_no_bar_without_a_terminal(tmp_path, capsys):
    load(single(tmp_path), progress=True)
    assert capsys.readouterr() == ("", "")


def test_the_bar_counts_bytes(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    load(single(tmp_path), progress=True)
    assert capsys.readouterr().out == ""


class TestDummy:
    shapes = {"a.weight": (64, 64), "b.weight": (64, 64), "norm.weight": (64,), "gate.bias": (1,)}

    def make(self, shapes=None, seed=0):
        return dummy_weights(shapes or self.shapes, dtype=torch.float32, device=CPU, seed=seed)

    def test_values(self):
        made = self.make()
        assert made["a.weight"].std().item() == pytest.approx(0.02, rel=0.05)
        assert torch.equal(made["norm.weight"], torch.ones(64))
        assert torch.equal(made["gate.bias"], torch.zeros(1))
        assert not torch.equal(made["a.weight"], made["b.weight"])

    def test_a_tensor_depends_on_seed_and_name_alone(self):
        made, turned = self.make(), self.make(dict(reversed(self.shapes.items())))
        assert all(torch.equal(made[name], turned[name]) for name in made)
        assert not torch.equal(made["a.weight"], self.make(seed=1)["a.weight"])

    def test_the_global_generator_is_untouched(self):
        before = torch.random.get_rng_state()
        self.make()
        assert torch.equal(before, torch.random.get_rng_state())
