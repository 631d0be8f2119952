"""What a looped model is, as data: shapes, stages, loops, KV planes, exit rule.

`ModelSpec` is read from a checkpoint's config.json (`rlt_hw.models.config`) without torch, so
that planning needs neither weights nor a device. The model layer, the KV manager, the memory
plan and selection all take their numbers from here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import ClassVar

from rlt_hw.errors import ConfigError
from rlt_hw.reasons import Code


class Stage(str, Enum):
    """PRELUDE runs once before the loops, RECURRENT once a loop, CODA once after the last loop."""

    PRELUDE = "prelude"
    RECURRENT = "recurrent"
    CODA = "coda"


@dataclass(frozen=True)
class KVLayout:
    """Which version of an earlier token's KV a query at loop d reads.

    full: loop d of the token; every token runs every loop, an exit only selects the output.
    last_exited: loop min(d, e) of a token that left at loop e; skipped loops are not computed.
    shared: one plane a layer that every loop overwrites; the token's last version at any d. Tokens
    run strictly one after another.
    ring:N: loop d shares a plane with every N-th loop; the version written last. anchor:N: the first N
    loops have planes of their own, all later ones share one. In both the prompt runs in one piece.
    """

    rule: str
    count: int = 0

    FULL: ClassVar[KVLayout]
    LAST_EXITED: ClassVar[KVLayout]
    SHARED: ClassVar[KVLayout]

    @classmethod
    def parse(cls, text: str) -> KVLayout:
        """Raises ConfigError (KV_LAYOUT) for what is no layout."""
        rule, _, count = text.partition(":")
        counted = rule in COUNTED and count.isdecimal() and int(count) >= 1
        if counted or (rule in PLAIN and not count):
            return cls(rule, int(count or 0))
        raise ConfigError(
            "kv_layout",
            found=repr(text),
            allowed=", ".join((*PLAIN, *(f"{name}:N with N of at least 1" for name in COUNTED))),
            code=Code.KV_LAYOUT,
        )

    @property
    def whole_prompt(self) -> bool:
        """Whether a result would depend on how a prompt is cut, so that it must not be."""
        return self.rule in COUNTED

    def planes(self, loops: int) -> tuple[int, ...]:
        """The plane that each of `loops` loops writes and reads."""
        if self.rule == "ring":
            return tuple(loop % self.count for loop in range(loops))
        last = {"shared": 0, "anchor": self.count}.get(self.rule, loops)
        return tuple(min(loop, last) for loop in range(loops))

    def __str__(self) -> str:
        return f"{self.rule}:{self.count}" if self.rule in COUNTED else self.rule


PLAIN = ("full", "last_exited", "shared")
COUNTED = ("ring", "anchor")
KVLayout.FULL, KVLayout.LAST_EXITED, KVLayout.SHARED = (KVLayout(rule) for rule in PLAIN)


@dataclass(frozen=True)
class KVGroup:
    """Layers of one stage that share a KV geometry and a rule.

    plane_of_loop[t] is the plane that loop t writes and reads; its length is the number of
    loops the group can hold (1 for prelude and coda). A plane is the KV of one layer at one loop.
    """

    name: str
    stage: Stage
    layers: int
    kv_heads: int
    head_dim: int
    plane_of_loop: tuple[int, ...]

    @property
    def planes(self) -> int:
        """Planes a layer owns."""
        return max(self.plane_of_loop) + 1

    def bytes_per_token(self, itemsize: int) -> int:
        """Keys and values of one token in all planes of the group, in bytes."""
        return 2 * self.layers * self.planes * self.kv_heads * self.head_dim * itemsize


@dataclass(frozen=True)
class Rope:
    """Rotary embedding. `interleaved` rotates adjacent pairs, otherwise the two halves."""

    theta: float
    interleaved: bool = False


@dataclass(frozen=True)
class ModelSpec:
    """One checkpoint's architecture.

    layers: stored layers by stage. loops: the loop count the config asks for.
    exit_rules: names of the adaptive exit rules the family can honour; empty when none.
    kv_layouts: rules of the KV layouts the family can run, the preferred one first.
    random_start: the loops start from a random state, not from the embedding.
    dtype: the dtype the config names ("bfloat16", "float32", "float16").
    parameters: unique parameters, counted from the shapes (Ouro-1.4B: 1,434,652,673).
    exit_defaults: published thresholds by exit rule. fixed_from: a threshold from which on the first
    rule means fixed depth, None where there is no such threshold.
    stop_token_ids: every id that ends a generation; stop_texts: tokens that do, whatever the files list.
    begin_text: the token that begins a plain text, "" for none, None for what the tokenizer's files say.
    stored_parameters, stored_dtype: what the published files hold, where it is not `parameters` in `dtype`.
    """

    family: str
    hidden_size: int
    intermediate_size: int
    vocab_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    prelude_layers: int
    recurrent_layers: int
    coda_layers: int
    loops: int
    max_context: int
    norm_eps: float
    rope: Rope
    tie_embeddings: bool
    dtype: str
    parameters: int
    exit_rules: tuple[str, ...] = ()
    exit_threshold: float | None = None
    exit_defaults: Mapping[str, float] = field(default_factory=dict)
    fixed_from: float | None = None
    kv_layouts: tuple[str, ...] = ("full",)
    random_start: bool = False
    qk_bias: bool = False
    qk_norm: bool = False
    norm_every_loop: bool = True
    stop_token_ids: tuple[int, ...] = ()
    stop_texts: tuple[str, ...] = ()
    begin_text: str | None = None
    stored_parameters: int | None = None
    stored_dtype: str | None = None
    bos_token_id: int | None = None
    pad_token_id: int | None = None
    name: str = ""

    @property
    def num_layers(self) -> int:
        return self.prelude_layers + self.recurrent_layers + self.coda_layers

    def kv_groups(self, layout: KVLayout, loops: int | None = None) -> tuple[KVGroup, ...]:
        """The KV groups for up to `loops` loops (the config's count when None)."""
        core = layout.planes(loops or self.loops)
        stages = (
            (Stage.PRELUDE, self.prelude_layers, (0,)),
            (Stage.RECURRENT, self.recurrent_layers, core),
            (Stage.CODA, self.coda_layers, (0,)),
        )
        return tuple(
            KVGroup(stage.value, stage, layers, self.num_kv_heads, self.head_dim, planes)
            for stage, layers, planes in stages
            if layers
        )

    def kv_bytes_per_token(self, layout: KVLayout, itemsize: int, loops: int | None = None) -> int:
        """KV of one token over all planes, in bytes (Ouro-1.4B, bf16, 4 loops: 786,432)."""
        return sum(group.bytes_per_token(itemsize) for group in self.kv_groups(layout, loops))
