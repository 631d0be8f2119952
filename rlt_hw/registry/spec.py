"""A backend's declaration: what it can serve, as data. No torch, no vendor package, no decision."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any

from rlt_hw.devices.target import Target

if TYPE_CHECKING:
    from rlt_hw.devices.environment import Environment
    from rlt_hw.reasons import Rejection
    from rlt_hw.registry.need import Need

CONTRACT_VERSION = 1
IN_TREE = "rlt-hw"
PHASES = ("prefill", "decode")
GRAPH_LEVELS = ("none", "piecewise", "full")


class Kind(str, Enum):
    """The five things that have implementations to choose from."""

    ATTENTION = "attention"
    KV = "kv"
    OPERATORS = "operators"
    GRAPH = "graph"
    COMMUNICATION = "communication"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True)
class Sizes:
    """Allowed whole numbers: the listed ones, and the multiples of `multiple` from `low` to `high`."""

    values: tuple[int, ...] = ()
    multiple: int = 0
    low: int = 1
    high: int | None = None

    def __contains__(self, size: int) -> bool:
        if size in self.values:
            return True
        fits = self.multiple > 0 and size % self.multiple == 0
        return fits and size >= self.low and (self.high is None or size <= self.high)

    def __str__(self) -> str:
        parts = [str(value) for value in self.values]
        if self.multiple:
            what = "any" if self.multiple == 1 else f"multiples of {self.multiple}"
            low = f" from {self.low}" if self.low > max(self.multiple, 1) else ""
            parts.append(what + low + (f" up to {self.high}" if self.high else ""))
        return ", ".join(parts)


ANY_SIZE = Sizes(multiple=1)


@dataclass(frozen=True)
class Requirement:
    """A package a backend imports. `also`: other distributions that bring the same module."""

    distribution: str
    specifier: str
    module: str
    also: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.distribution}{self.specifier}"


@dataclass(frozen=True)
class Toolkit:
    """A compiler that a backend runs at start. nvcc must also know the target (see facts)."""

    name: str
    minimum: str = ""


@dataclass(frozen=True)
class Rank:
    """Place in the order on a target: higher comes first. `evidence` names the measurement.

    pattern: an exact target, `VENDOR:*` or `*`; the most specific one counts.
    """

    pattern: str
    value: int
    evidence: str
    phases: tuple[str, ...] = PHASES


UNRANKED = Rank("*", 0, "no measurement")


def matches(pattern: str, target: Target) -> bool:
    """Whether a pattern names this target: exact ids, `cpu` for any CPU, `VENDOR:*`, `*`."""
    vendor, _, arch = pattern.partition(":")
    if pattern == "*" or (vendor == target.vendor and arch == "*"):
        return True
    return pattern == str(target) or (pattern == "cpu" and target.vendor == "cpu")


@dataclass(frozen=True)
class BackendSpec:
    """One backend. `adapter` is "module:Class", imported only when the backend is used.

    targets: exact ids; "cpu" is any CPU, "*" whatever torch runs on. dtypes: of queries and outputs.
    kv_dtypes: of the cache, "same" meaning the dtype itself. tensor_layouts: how a plane lies in memory
    ("NHD": pages, page, kv_heads, head_dim), the preferred one first. kv_layouts: rules of which loop's KV
    is kept (see `KVLayout`). loop_planes: the cache knows loops. graph_levels: what can be
    captured with it. world_sizes: processes it connects. tile_tokens: KV tokens whose keys and values its
    smallest tile holds in shared memory at once. predicate: the one rule that is not data.
    """

    kind: Kind
    name: str
    adapter: str
    targets: tuple[str, ...]
    summary: str = ""
    dtypes: tuple[str, ...] = ("float32", "bfloat16", "float16")
    kv_dtypes: tuple[str, ...] = ("same",)
    head_dims: Sizes = ANY_SIZE
    gqa_ratios: Sizes = ANY_SIZE
    page_sizes: Sizes = ANY_SIZE
    preferred_page: int | None = None
    phases: tuple[str, ...] = PHASES
    kv_layouts: tuple[str, ...] = ("full", "last_exited", "shared", "ring", "anchor")
    tensor_layouts: tuple[str, ...] = ("NHD",)
    loop_planes: bool = True
    graph_levels: tuple[str, ...] = ("none",)
    world_sizes: Sizes = ANY_SIZE
    tile_tokens: int = 0
    requirements: tuple[Requirement, ...] = ()
    toolkits: tuple[Toolkit, ...] = ()
    features: tuple[str, ...] = ()
    ranks: tuple[Rank, ...] = ()
    predicate: Callable[[Target, Need, Environment], Rejection | None] | None = None
    source: str = IN_TREE
    contract: int = field(default=CONTRACT_VERSION)

    def serves(self, target: Target) -> bool:
        return any(matches(pattern, target) for pattern in self.targets)

    def target_list(self) -> str:
        """The targets for people, by vendor: "nvidia sm80 sm90, amd gfx942"."""
        by_vendor: dict[str, list[str]] = {}
        for pattern in self.targets:
            vendor, _, arch = pattern.partition(":")
            by_vendor.setdefault(vendor, []).append(arch)
        return ", ".join(" ".join((vendor, *archs)).strip() for vendor, archs in by_vendor.items())

    def rank(self, target: Target, phase: str | None) -> Rank:
        """The most specific rank for a target; UNRANKED where it declares none or cannot run."""
        if not self.serves(target):
            return UNRANKED
        fitting = [
            rank for rank in self.ranks
            if matches(rank.pattern, target) and (phase is None or phase in rank.phases)
        ]  # fmt: skip
        return max(fitting, key=lambda rank: (rank.pattern != "*", "*" not in rank.pattern), default=UNRANKED)

    def to_json(self) -> dict[str, Any]:
        sizes = ("head_dims", "gqa_ratios", "page_sizes", "world_sizes")
        lists = ("targets", "dtypes", "kv_dtypes", "phases", "kv_layouts", "tensor_layouts", "graph_levels",
                 "features")  # fmt: skip
        return {
            "kind": self.kind.value,
            "name": self.name,
            "adapter": self.adapter,
            "summary": self.summary,
            "source": self.source,
            **{name: list(getattr(self, name)) for name in lists},
            **{name: str(getattr(self, name)) for name in sizes},
            "preferred_page": self.preferred_page,
            "tile_tokens": self.tile_tokens,
            "requirements": [str(requirement) for requirement in self.requirements],
            "toolkits": [f"{toolkit.name} {toolkit.minimum}".strip() for toolkit in self.toolkits],
        }
