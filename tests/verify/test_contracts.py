"""Level 1: the adapters' calls fit what the vendors published, and no changed call does."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest

import rlt_hw
from rlt_hw.backends.catalog import in_tree
from rlt_hw.backends.evidence import levels
from rlt_hw.verify.contracts import signature
from rlt_hw.verify.contracts.__main__ import write_records
from rlt_hw.verify.contracts.calls import VENDORS, calls_in
from rlt_hw.verify.contracts.check import Checked, calls_of, check, check_call, faults
from rlt_hw.verify.contracts.published import published

PACKAGE = Path(rlt_hw.__file__).parent
CHECKED = list(check())
SPECS = {spec.name: spec for spec in in_tree()}
BACKENDS = sorted({row.backend for row in CHECKED})


def test_every_call_fits_every_published_version():
    assert not [(str(row.call), str(row.version), row.faults) for row in CHECKED if row.faults]


def test_every_backend_with_a_vendor_package_has_calls_to_check():
    attention = {
        spec.name
        for spec in in_tree()
        if any(row.module.partition(".")[0] in VENDORS for row in spec.requirements)
        and spec.kind.value == "attention"
    }
    assert attention <= set(BACKENDS)


def test_versions_name_their_source():
    assert len(published()) >= 6
    assert all(row.source and row.version for row in published())


# Mutations: every call of every adapter, changed in each of these ways, must be refused.


def mutations(call: ast.Call):
    """(what was changed, the call changed): a keyword's name, the order, a type, the number."""
    for at, keyword in enumerate(call.keywords):
        if keyword.arg is not None:
            changed = copy(call)
            changed.keywords[at].arg = f"{keyword.arg}_"
            yield f"{keyword.arg} renamed", changed
            changed = copy(call)
            changed.keywords[at].value = wrong_type(keyword.value)
            yield f"{keyword.arg} of another type", changed
    for at in range(len(call.args)):
        if not isinstance(call.args[at], ast.Starred):
            changed = copy(call)
            changed.args[at] = wrong_type(call.args[at])
            yield f"argument {at} of another type", changed
        if at and not isinstance(call.args[at], ast.Starred):
            changed = copy(call)
            changed.args[at - 1 : at + 1] = reversed(changed.args[at - 1 : at + 1])
            yield f"arguments {at - 1} and {at} changed places", changed
    changed = copy(call)
    changed.keywords.append(ast.keyword("one_too_many", ast.Constant(0)))
    yield "one more", changed


def wrong_type(value: ast.expr) -> ast.expr:
    """No vendor takes bytes."""
    return ast.Constant(b"0")


def copy(call: ast.Call) -> ast.Call:
    return ast.parse(ast.unparse(call), mode="eval").body


class Replace(ast.NodeTransformer):
    def __init__(self, line: int, text: str, new: ast.Call) -> None:
        self.line, self.text, self.new = line, text, new

    def visit_Call(self, node):
        if node.lineno == self.line and ast.unparse(node) == self.text:
            return self.new
        return self.generic_visit(node)


def mutants(name: str):
    """(backend's call, what was changed, the calls of the changed source)."""
    for call in calls_of(SPECS[name]):
        source = (PACKAGE / call.file).read_text(encoding="utf-8")
        nodes = [
            node
            for node in ast.walk(ast.parse(source))
            if isinstance(node, ast.Call) and node.lineno == call.line
        ]
        nodes = [row for row in nodes if bool(row.args or row.keywords) == bool(call.arguments)]
        (node,) = [row for row in nodes if is_call(row, source, call)]
        for what, changed in mutations(node):
            tree = Replace(call.line, ast.unparse(node), changed).visit(ast.parse(source))
            yield call, what, list(calls_in(ast.unparse(ast.fix_missing_locations(tree)), call.file))


def is_call(node: ast.Call, source: str, call) -> bool:
    """Whether the node is the vendor call of that line, and not one inside its arguments."""
    texts = [argument.text for argument in call.arguments if argument.keyword is None]
    return [ast.unparse(row) for row in node.args if not isinstance(row, ast.Starred)] == texts[
        : sum(not isinstance(row, ast.Starred) for row in node.args)
    ] and {row.arg for row in node.keywords if row.arg} <= {row.keyword for row in call.arguments}


@pytest.mark.parametrize("name", BACKENDS)
def test_a_changed_name_order_type_or_number_is_refused(name):
    tried, missed = 0, []
    for call, what, changed in mutants(name):
        tried += 1
        rows = [row for other in changed for row in check_call(SPECS[name], other)]
        if not any(row.faults for row in rows):
            missed.append((str(call), what))
    assert tried > 5
    assert not missed


@pytest.mark.parametrize(
    ("written", "changed", "says"),
    [
        (
            "cu_seqlens_q=batch.query_start",
            "cu_seqlens_q=batch.seq_lens",
            "'batch.seq_lens' goes to cu_seqlens_q",
        ),
        ("max_seqlen_k=batch.max_seq", "max_seqlen_k=batch.seq_lens", "goes to max_seqlen_k"),
        ("block_table=", "block_tables=", "unexpected keyword argument 'block_tables'"),
        (
            "            keys,\n            values,",
            "            values,\n            keys,",
            "'values' goes to k",
        ),
        ("causal=True", "causal=1.0", "is of type float; causal takes bool"),
        ("            max_seqlen_k=batch.max_seq,\n", "", "missing a required argument: 'max_seqlen_k'"),
    ],
)
def test_what_a_fault_says(written, changed, says):
    source = (PACKAGE / "backends/attention/flash_attn.py").read_text(encoding="utf-8")
    assert source.count(written) == 1
    (call,) = calls_in(source.replace(written, changed))
    (row,) = check_call(SPECS["flash_attn"], call)
    assert says in "; ".join(row.faults)


@pytest.mark.parametrize(
    ("name", "call", "says"),
    [
        ("npu_scatter_pa_kv_cache", "key, value, kc, vc, slot_mapping=s, cache_mode='Norm'", ""),
        ("npu_scatter_pa_kv_cache", "key, value, kc, vc, s, 'Norm'", "too many positional"),
        ("npu_fused_infer_attention_score", "q, k, v, actual_seq_lengths=[1], input_layout='TND'", ""),
        ("npu_fused_infer_attention_score", "q, k, v, actual_seq_qlen=[1]", "actual_seq_qlen"),
        ("npu_fused_infer_attention_score_v2", "q, k, v, actual_seq_qlen=[1]", ""),
        ("npu_fused_infer_attention_score", "q, k, v, actual_seq_lengths=torch.zeros(3)", "list[int]"),
        ("npu_fused_infer_attention_score.out", "q, k, v, workspace=w, attention_out=o, softmax_lse=l", ""),
    ],
)  # fmt: skip
def test_schemas_of_torch_npu(name, call, says):
    (written,) = calls_in(f"def f(self):\n    import torch, torch_npu\n    torch_npu.{name}({call})")
    (version,) = (row for row in published() if row.distribution == "torch-npu")
    found = "; ".join(
        fault
        for fault in faults(written.arguments, version.calls[f"torch_npu.{name}"])
        if "by position" not in fault
    )
    assert says in found
    assert bool(says) == bool(found)


def test_operators_are_the_same_by_either_path():
    source = (
        "def f():\n    import torch\n    torch.ops.npu.npu_swiglu(x)\n    torch.npu.graph_task_group_end(s)"
    )
    assert [call.names for call in calls_in(source)] == [
        ("torch_npu.npu_swiglu",),
        ("torch_npu.npu.graph_task_group_end",),
    ]


def test_a_function_that_moved_is_found_under_either_name():
    source = (
        "def entry():\n"
        "    try:\n        from aiter.new import attend\n"
        "    except ImportError:\n        from aiter.old import attend\n"
        "    return attend\n"
        "class A:\n"
        "    def __init__(self):\n        self._attend = entry()\n"
        "    def run(self, query):\n        self._attend(query)\n"
    )
    (call,) = calls_in(source)
    assert call.names == ("aiter.new.attend", "aiter.old.attend")


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ("op(Tensor self, int dim=-1) -> Tensor", "(self: Tensor, dim: int = -1)"),
        (
            "op(Tensor a, *, SymInt[]? n=None, str? mode='x, y', Tensor(a!) out) -> ()",
            "(a: Tensor, *, n: list[int] | None = None, mode: str | None = 'x, y', out: Tensor)",
        ),
    ],
)
def test_schemas_become_signatures(schema, text):
    assert signature.of_schema(schema) == ("op", text)
    assert signature.parse(text).parameters.keys() >= {"out"} or "dim" in text


def test_types_of_a_function_without_annotations_come_from_its_documentation():
    (function,) = ast.parse(
        "def f(q, n, w=(-1, -1), s=None, x=None):\n"
        '    """q: (rows, dim)\n    n: int. how many\n    s: float."""'
    ).body
    assert (
        signature.of_function(function)
        == "(q: Tensor, n: int, w: tuple = (-1, -1), s: float = None, x = None)"
    )


def test_records_leave_out_a_backend_with_a_fault(tmp_path):
    rows = [
        Checked(row.backend, row.call, row.version, ("wrong",) if row.backend == "flashinfer" else ())
        for row in CHECKED
    ]
    write_records(rows, tmp_path, "abc")
    found = levels(tmp_path)
    assert found["flash_attn", "nvidia:sm80"] == 1
    assert ("flashinfer", "nvidia:sm80") not in found
    record = json.loads((tmp_path / "contract-nvidia-sm90.json").read_text())
    assert record["commit"] == "abc"
    assert {"backend": "flash_attn", "published": ["flash-attn 2.8.3"]} in record["rows"]
