"""What a model and an engine configuration ask of the five kinds."""

from __future__ import annotations

from dataclasses import dataclass

from rlt_hw.errors import ConfigError
from rlt_hw.registry.spec import GRAPH_LEVELS, PHASES, Kind

AUTO = "auto"


@dataclass(frozen=True)
class Need:
    """The model's facts, then what the user set. "auto" and None leave a value to selection.

    num_heads, num_kv_heads: of the whole model, before tensor parallelism. model_dtype: the config's.
    allowed_kv_layouts: layouts the family can run, the preferred one first. loops: most loops a request
    may ask for. exit_rules: adaptive exits the family can honour; exit_threshold: one that is asked for.
    graph: a level ("none", "piecewise", "full"). batch_invariant: a
    row's result must not depend on the rows beside it. phases: what attention is asked for.
    attention, prefill, decode, kv, operators, graph_backend, communication: backend names; `attention` names
    both phases, `prefill` and `decode` one each.
    """

    num_heads: int
    num_kv_heads: int
    head_dim: int
    model_dtype: str = "bfloat16"
    allowed_kv_layouts: tuple[str, ...] = ("full",)
    loops: int = 1
    exit_rules: tuple[str, ...] = ()
    exit_threshold: float | None = None
    dtype: str = AUTO
    kv_dtype: str = AUTO
    page_size: int | None = None
    kv_layout: str = AUTO
    graph: str = AUTO
    tensor_parallel: int = 1
    batch_invariant: bool = False
    attention: str = AUTO
    prefill: str = AUTO
    decode: str = AUTO
    kv: str = AUTO
    operators: str = AUTO
    graph_backend: str = AUTO
    communication: str = AUTO
    phases: tuple[str, ...] = PHASES

    def __post_init__(self) -> None:
        for name in ("num_heads", "num_kv_heads", "head_dim", "loops", "tensor_parallel"):
            if getattr(self, name) < 1:
                raise _wrong(name, getattr(self, name), "a whole number of at least 1")
        if self.page_size is not None and self.page_size < 1:
            raise _wrong("page_size", self.page_size, "a whole number of at least 1, or None")
        if self.graph not in (AUTO, *GRAPH_LEVELS):
            raise _wrong("graph", self.graph, ", ".join((AUTO, *GRAPH_LEVELS)))

    @property
    def kv_rule(self) -> str:
        """The KV layout without its number: "ring" of "ring:2"."""
        return self.kv_layout.partition(":")[0]

    def asked(self, kind: Kind, phase: str | None = None) -> str:
        """The backend the user named for a kind (and phase), or "auto"."""
        if kind is Kind.ATTENTION:
            of_phase = {"prefill": self.prefill, "decode": self.decode}.get(phase or "", AUTO)
            return of_phase if of_phase != AUTO else self.attention
        return {
            Kind.KV: self.kv,
            Kind.OPERATORS: self.operators,
            Kind.GRAPH: self.graph_backend,
            Kind.COMMUNICATION: self.communication,
        }[kind]


def _wrong(name: str, found: object, allowed: str) -> ConfigError:
    return ConfigError(name, found=repr(found), allowed=allowed)
