"""Selection: which backend serves a need on a target, and why not the others.

Pure functions over data. `Registry` holds the specs, `select` decides one kind, `resolve` the four kinds
together; the machine is an argument. Nothing here imports torch, a vendor package or a backend.
"""

from rlt_hw.registry.decision import LEVELS, Candidate, Decision, Derived, JointDecision
from rlt_hw.registry.need import AUTO, Need
from rlt_hw.registry.resolve import assess_jointly, first_rejection, resolve
from rlt_hw.registry.select import BrokenPlugin, Registry, assess, select, unsupported
from rlt_hw.registry.spec import (
    ANY_SIZE,
    CONTRACT_VERSION,
    GRAPH_LEVELS,
    IN_TREE,
    PHASES,
    BackendSpec,
    Kind,
    Rank,
    Requirement,
    Sizes,
    Toolkit,
)

__all__ = [
    "ANY_SIZE",
    "AUTO",
    "CONTRACT_VERSION",
    "GRAPH_LEVELS",
    "IN_TREE",
    "LEVELS",
    "PHASES",
    "BackendSpec",
    "BrokenPlugin",
    "Candidate",
    "Decision",
    "Derived",
    "JointDecision",
    "Kind",
    "Need",
    "Rank",
    "Registry",
    "Requirement",
    "Sizes",
    "Toolkit",
    "assess",
    "assess_jointly",
    "first_rejection",
    "resolve",
    "select",
    "unsupported",
]
