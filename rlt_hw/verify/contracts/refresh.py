"""Write `published/` again from wheels and source archives, which are read and never imported.

pip download --no-deps --pre amd-aiter torch-npu==2.13.0 flashinfer-python flash-attn-4 -d DIR
FLASH_ATTENTION_SKIP_CUDA_BUILD=TRUE pip download --no-deps --no-build-isolation flash-attn -d DIR
python -m rlt_hw.verify.contracts.refresh DIR/*
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import re
import sys
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from rlt_hw.verify.contracts import signature
from rlt_hw.verify.contracts.published import FOLDER

_SCHEMAS = "torch_npu/csrc/aten/npu_native_functions_by_codegen.yaml"
_OPERATORS = (
    "npu_add_rms_norm", "npu_apply_rotary_pos_emb", "npu_format_cast", "npu_fused_infer_attention_score",
    "npu_fused_infer_attention_score_v2", "npu_fusion_attention", "npu_mrope", "npu_rms_norm",
    "npu_rotary_mul", "npu_scatter_pa_kv_cache", "npu_swiglu",
    "_npu_fused_infer_attention_score_get_max_workspace",
    "_npu_fused_infer_attention_score_v2_get_max_workspace",
)  # fmt: skip


@dataclass(frozen=True)
class Package:
    """One archive: what its file name begins with, and where its functions are defined.

    functions: name our adapters use -> "file:function" or "file:Class.method".
    """

    prefix: str
    distribution: str
    functions: dict[str, str]
    schemas: str = ""


_DECODE, _PREFILL = "flashinfer/decode.py", "flashinfer/prefill.py"
_WRAPPERS = {
    "flashinfer.BatchDecodeWithPagedKVCacheWrapper": (_DECODE, "_plan_impl"),
    "flashinfer.BatchPrefillWithPagedKVCacheWrapper": (_PREFILL, "plan"),
}
_FLASHINFER = {
    f"{name}{attribute}": f"{file}:{name.rpartition('.')[2]}.{method}"
    for name, (file, plan) in _WRAPPERS.items()
    for attribute, method in (("", "__init__"), (".plan", plan), (".run", "run"))
}
PACKAGES = (
    Package("amd_aiter-", "amd-aiter", {
        "aiter.flash_attn_varlen_func": "aiter/ops/mha.py:flash_attn_varlen_func",
        "aiter.mha_batch_prefill_func": "aiter/ops/mha.py:mha_batch_prefill_func",
        "aiter.paged_attention_v1": "aiter/ops/attention.py:paged_attention_v1",
        "aiter.paged_attention_rocm": "aiter/ops/attention.py:paged_attention_rocm",
        "aiter.pa_fwd_asm": "aiter/ops/attention.py:pa_fwd_asm",
        "aiter.reshape_and_cache": "aiter/ops/cache.py:reshape_and_cache",
        "aiter.reshape_and_cache_flash": "aiter/ops/cache.py:reshape_and_cache_flash",
        "aiter.ops.triton.unified_attention.unified_attention":
            "aiter/ops/triton/unified_attention.py:unified_attention",
    }),
    Package("torch_npu-", "torch-npu", {
        "torch_npu.npu.graph_task_group_begin": "torch_npu/npu/graphs.py:graph_task_group_begin",
        "torch_npu.npu.graph_task_group_end": "torch_npu/npu/graphs.py:graph_task_group_end",
        "torch_npu.npu.graph_task_update_begin": "torch_npu/npu/graphs.py:graph_task_update_begin",
        "torch_npu.npu.graph_task_update_end": "torch_npu/npu/graphs.py:graph_task_update_end",
        "torch_npu.npu.is_current_stream_capturing":
            "torch_npu/npu/graphs.py:is_current_stream_capturing",
        "torch_npu.npu.graph": "torch_npu/npu/graphs.py:graph.__init__",
        "torch_npu.npu.NPUGraph": "torch_npu/npu/graphs.py:NPUGraph.__init__",
        "torch_npu.npu.NPUGraph.capture_begin": "torch_npu/npu/graphs.py:NPUGraph.capture_begin",
        "torch_npu.npu.NPUGraph.capture_end": "torch_npu/npu/graphs.py:NPUGraph.capture_end",
        "torch_npu.npu.NPUGraph.replay": "torch_npu/npu/graphs.py:NPUGraph.replay",
        "torch_npu.npu.NPUGraph.reset": "torch_npu/npu/graphs.py:NPUGraph.reset",
        "torch_npu.npu.NPUGraph.pool": "torch_npu/npu/graphs.py:NPUGraph.pool",
        "torch_npu.npu.NPUGraph.update": "torch_npu/npu/graphs.py:NPUGraph.update",
    }, schemas=_SCHEMAS),
    Package("flashinfer_python-", "flashinfer-python", {
        **_FLASHINFER,
        "flashinfer.decode.xqa_batch_decode_with_kv_cache": f"{_DECODE}:xqa_batch_decode_with_kv_cache",
    }),
    Package("flash_attn_4-", "flash-attn-4", {
        "flash_attn.cute.flash_attn_varlen_func": "flash_attn/cute/interface.py:flash_attn_varlen_func",
    }),
    Package("flash_attn-", "flash-attn", {
        "flash_attn.flash_attn_varlen_func": "flash_attn/flash_attn_interface.py:flash_attn_varlen_func",
        "flash_attn.flash_attn_with_kvcache": "flash_attn/flash_attn_interface.py:flash_attn_with_kvcache",
    }),
    Package("flash_attn-", "flash-attn-3", {
        "flash_attn_interface.flash_attn_varlen_func":
            "hopper/flash_attn_interface.py:flash_attn_varlen_func",
        "flash_attn_interface.flash_attn_with_kvcache":
            "hopper/flash_attn_interface.py:flash_attn_with_kvcache",
    }),
)  # fmt: skip


def extract(package: Package, archive: Path) -> dict[str, object]:
    """The record of one archive. Raises KeyError where a file or function is gone."""
    read = _reader(archive)
    calls = {name: _signature(read, place) for name, place in package.functions.items()}
    if package.schemas:
        calls |= {f"torch_npu.{name}": text for name, text in _schemas(read(package.schemas))}
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    return {
        "distribution": package.distribution,
        "version": _version(package, archive, read),
        "source": f"package index, {archive.name}, sha256 {digest}",
        "calls": dict(sorted(calls.items())),
    }


def _version(package: Package, archive: Path, read: Callable[[str], str]) -> str:
    if package.distribution == "flash-attn-3":  # travels in the archive of 2
        found = re.search(r"__version__ = \"(.+)\"", read("hopper/__init__.py"))
        assert found
        return found[1]
    version = archive.name.removeprefix(package.prefix).removesuffix(".tar.gz")
    return version.partition("-")[0]


def _reader(archive: Path) -> Callable[[str], str]:
    """Reads a file by its path inside the package; an archive of sources has a folder around it."""
    if archive.suffix == ".whl":
        files = zipfile.ZipFile(archive)
        return lambda path: files.read(path).decode()
    sources = tarfile.open(archive)  # noqa: SIM115 - lives as long as the reader
    folder = archive.name.removesuffix(".tar.gz")

    def read(path: str) -> str:
        member = sources.extractfile(f"{folder}/{path}")
        assert member
        return member.read().decode()

    return read


def _signature(read: Callable[[str], str], place: str) -> str:
    path, _, name = place.partition(":")
    owner, _, method = name.rpartition(".")
    body: list[ast.stmt] = ast.parse(read(path)).body
    if owner:
        body = next(node for node in body if isinstance(node, ast.ClassDef) and node.name == owner).body
    named = [node for node in body if isinstance(node, ast.FunctionDef) and node.name == method]
    if not named:
        raise KeyError(place)
    return signature.of_function(named[-1], method=bool(owner))  # the last one: overloads come before it


def _schemas(text: str) -> Iterator[tuple[str, str]]:
    for schema in re.findall(r"^[\s-]*func: (.+)$", text, re.MULTILINE):
        name, _, overload = schema.partition("(")[0].strip().partition(".")
        if name in _OPERATORS and overload in ("", "out"):
            yield signature.of_schema(schema)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("archives", nargs="+", type=Path)
    for archive in parser.parse_args().archives:
        for package in PACKAGES:
            if archive.name.startswith(package.prefix):
                record = extract(package, archive)
                path = FOLDER / f"{package.distribution}-{record['version']}.json"
                path.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
                print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
