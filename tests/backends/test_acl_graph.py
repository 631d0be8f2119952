"""When ACL graphs are refused, before a capture and by it. Captures themselves: tests/emulated."""

from __future__ import annotations

import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest

from rlt_hw.backends.catalog import load_registry
from rlt_hw.backends.graphs.acl_graph import AclGraph
from rlt_hw.devices.target import Target
from rlt_hw.errors import UnsupportedError
from rlt_hw.reasons import Code
from rlt_hw.registry import assess_jointly
from tests.registry.machines import machine, need

A2 = Target.parse("ascend:910b")


def decide(environment, **fields):
    return assess_jointly(A2, need(**fields), environment, load_registry(points=()))


def test_eager_goes_first_and_a_graph_is_there_for_the_asking():
    assert decide(machine(A2)).graph.chosen.name == "eager"
    asked = decide(machine(A2), graph="full")
    assert (asked.graph.chosen.name, asked.decode.chosen.name) == ("acl_graph", "npu_fia")


def test_blocking_launches_and_graphs_do_not_go_together():
    environment = replace(machine(A2), variables={"ASCEND_LAUNCH_BLOCKING": "1"})
    decision = decide(environment, graph="full")
    assert not decision.supported
    (row,) = next(row for row in decision.graph.candidates if row.name == "acl_graph").rejections
    assert (row.code, row.remedy) == (Code.GRAPH, "`unset ASCEND_LAUNCH_BLOCKING`")


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ("alloc sq cq fail", "HDK"),
        ("the resources of streams are insufficient", "max_num_seqs"),
        ("something else", "graph='none'"),
    ],
)
def test_a_capture_that_fails_says_what_to_do(monkeypatch, text, remedy):
    def refuse(**_):
        raise RuntimeError(text)

    npu = SimpleNamespace(NPUGraph=object, graph=refuse)
    monkeypatch.setitem(sys.modules, "torch_npu", SimpleNamespace(npu=npu))
    ran = []
    with pytest.raises(UnsupportedError, match=text) as error:
        AclGraph(None).capture(lambda: ran.append(1), lambda: [1])
    assert error.value.code == Code.GRAPH
    assert remedy in str(error.value)
    assert ran == [1]
