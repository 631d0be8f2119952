"""Declarations from outside: whatever they hold, a backend or a row with PLUGIN, and selection goes on."""

from __future__ import annotations

import sys
from dataclasses import replace
from importlib.metadata import EntryPoint
from types import ModuleType

import pytest

from rlt_hw.backends.catalog import GROUP, in_tree, load_registry
from rlt_hw.devices.target import Target
from rlt_hw.errors import UnsupportedError
from rlt_hw.reasons import Code
from rlt_hw.registry import BackendSpec, Kind, Rank, Sizes, resolve
from tests.registry.machines import machine, need

GOOD = BackendSpec(Kind.ATTENTION, "toy", "toy.module:Toy", ("cpu",), ranks=(Rank("*", 1000, "a test"),))
CPU = Target.parse("cpu")
WRONG = {
    "not a spec": object(),
    "another contract": replace(GOOD, contract=2),
    "no kind": replace(GOOD, kind="attention!"),
    "a taken name": replace(GOOD, name="torch_sdpa"),
    "the name auto": replace(GOOD, name="auto"),
    "a name with spaces": replace(GOOD, name="toy attention"),
    "no class": replace(GOOD, adapter="toy.module"),
    "no targets": replace(GOOD, targets=None),
    "targets as text": replace(GOOD, targets="cpu"),
    "an empty list of dtypes": replace(GOOD, dtypes=()),
    "an unknown vendor": replace(GOOD, targets=("nvdia:sm90",)),
    "a number for sizes": replace(GOOD, head_dims=128),
    "an unknown phase": replace(GOOD, phases=("decoding",)),
    "an unknown graph level": replace(GOOD, graph_levels=("everything",)),
    "ranks as a dict": replace(GOOD, ranks={"cpu": 1}),
    "a predicate that is no function": replace(GOOD, predicate="no"),
}


@pytest.fixture
def point(monkeypatch):
    """An entry point to a module that holds a spec, or to one that does something else."""

    def install(spec: object, module: ModuleType | None = None) -> EntryPoint:
        module = module or ModuleType("toy_plugin")
        module.SPEC = spec
        monkeypatch.setitem(sys.modules, "toy_plugin", module)
        return EntryPoint("toy", "toy_plugin", GROUP)

    return install


def test_every_backend_of_ours_keeps_the_contract(point):
    for spec in in_tree():
        assert not load_registry(points=(point(replace(spec, name="toy_" + spec.name)),)).broken


def test_a_good_one_is_chosen_by_its_rank_and_shows_where_it_is_from(point):
    registry = load_registry(points=(point(GOOD),))
    chosen = resolve(CPU, need(), machine(CPU), registry).decode.chosen
    assert (chosen.name, chosen.source) == ("toy", "toy_plugin")


@pytest.mark.parametrize("spec", WRONG.values(), ids=WRONG)
def test_a_wrong_one_is_a_row(point, spec):
    registry = load_registry(points=(point(spec),))
    (broken,) = registry.broken
    assert broken.rejection.code is Code.PLUGIN
    decision = resolve(CPU, need(), machine(CPU), registry)
    assert decision.decode.chosen.name == "torch_sdpa"
    assert "PLUGIN" in decision.table()
    with pytest.raises(UnsupportedError) as refused:
        resolve(CPU, need(attention="toy"), machine(CPU), registry)
    assert refused.value.code == "PLUGIN"


@pytest.mark.parametrize(
    "error", [SystemExit(3), OSError("no libvendor.so"), ZeroDivisionError(), Warning("x")]
)
def test_whatever_it_raises_is_a_row(monkeypatch, error):
    class Raises:
        def find_spec(self, name, path=None, target=None):
            if name == "toy_raises":
                raise error

    monkeypatch.setattr(sys, "meta_path", [Raises(), *sys.meta_path])
    registry = load_registry(points=(EntryPoint("toy", "toy_raises", GROUP),))
    assert type(error).__name__ in registry.broken[0].rejection.found


def test_an_interrupt_is_not_swallowed(monkeypatch):
    class Interrupts:
        def find_spec(self, name, path=None, target=None):
            if name == "toy_raises":
                raise KeyboardInterrupt

    monkeypatch.setattr(sys, "meta_path", [Interrupts(), *sys.meta_path])
    with pytest.raises(KeyboardInterrupt):
        load_registry(points=(EntryPoint("toy", "toy_raises", GROUP),))


def test_two_of_one_name_leave_the_first(point):
    entry = point(replace(GOOD, head_dims=Sizes((128,))))
    registry = load_registry(points=(entry, entry))
    assert [row.rejection.found for row in registry.broken] == ["the name 'toy', which is taken"]
    assert sum(spec.name == "toy" for spec in registry.specs) == 1
