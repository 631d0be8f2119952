"""What a layer computes besides attention, in units that a backend can fuse.

The residual stream is a value of its own: a branch that was computed is not added until somebody needs
the sum, so that addition, norms and the next product can be one kernel. `project` and `project_gated` are
where that happens; `settle` is for the places without a product. Every operator works on packed tokens
and allocates its results.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import torch

    from rlt_hw.backends.operators.rows import DecodeRows, LoopPlanes


class Add(IntEnum):
    """How a pending branch joins the stream; see `Stream`."""

    ALONE = 0
    PLAIN = 1
    INSIDE = 2
    AROUND = 3


@dataclass(frozen=True)
class Stream:
    """hidden: [tokens, hidden]. branch: what `Operators.branch` gave, not yet added, or None.

    The settled stream is, with norm(x) = x / rms(x) * branch_norm:
    ALONE hidden; PLAIN hidden + branch; INSIDE hidden + norm(branch); AROUND norm(hidden + branch).
    """

    hidden: torch.Tensor
    branch: torch.Tensor | None = None
    branch_norm: torch.Tensor | None = None
    add: Add = Add.ALONE

    def plus(self, branch: torch.Tensor, norm: torch.Tensor | None = None, add: Add = Add.PLAIN) -> Stream:
        """With a branch pending. The stream itself must be settled."""
        assert self.branch is None, "a stream holds one pending branch"
        return Stream(self.hidden, branch, norm, add)


@dataclass(frozen=True)
class Rotary:
    """What happens to queries and keys between the projection and attention.

    query_bias: [heads, head_dim], key_bias: [kv_heads, head_dim], added first. query_norm, key_norm:
    [head_dim], weights of an RMS norm over each head, applied next. Then the rotation: `interleaved`
    turns the pairs (x[2j], x[2j + 1]), otherwise (x[j], x[j + head_dim / 2]).
    """

    heads: int
    kv_heads: int
    head_dim: int
    interleaved: bool
    eps: float
    query_bias: torch.Tensor | None = None
    key_bias: torch.Tensor | None = None
    query_norm: torch.Tensor | None = None
    key_norm: torch.Tensor | None = None


@dataclass(frozen=True)
class Projected:
    """A layer's query, key and value of new tokens, as the projection gave them.

    qkv: [tokens, (heads + 2 * kv_heads) * head_dim], query heads first, or float32 [shares, tokens, ..] whose
    sum is meant. cos, sin: [tokens, head_dim / 2].
    """

    qkv: torch.Tensor
    rotary: Rotary
    cos: torch.Tensor
    sin: torch.Tensor

    @property
    def tokens(self) -> int:
        return self.qkv.shape[-2]

    @property
    def shares(self) -> int:
        return self.qkv.shape[0] if self.qkv.ndim == 3 else 1


@dataclass(frozen=True)
class OperatorOptions:
    """What an engine asks of its operators. max_rows: rows of a decode step at most.

    batch_invariant: a token's result must not depend on how many others are computed with it.
    """

    device: torch.device
    dtype: torch.dtype
    max_rows: int = 64
    batch_invariant: bool = False


class Operators(Protocol):
    """One set of operators, built once per engine. eps is the norms' epsilon.

    Norms and products: x: [tokens, K], weight: [N, K], results in x's dtype.
    """

    def __init__(self, options: OperatorOptions) -> None: ...

    def settle(self, stream: Stream, eps: float, norm: torch.Tensor | None = None) -> torch.Tensor:
        """The settled stream, with the RMS norm of weight `norm` applied where there is one."""

    def project(
        self, stream: Stream, norm: torch.Tensor, weight: torch.Tensor, eps: float
    ) -> tuple[Stream, torch.Tensor]:
        """The settled stream, and norm(stream) @ weight.T for `Projected`."""

    def project_gated(
        self, stream: Stream, norm: torch.Tensor, gate_up: torch.Tensor, eps: float
    ) -> tuple[Stream, torch.Tensor]:
        """The settled stream, and silu(x @ gate.T) * (x @ up.T) of x = norm(stream).

        gate_up: [2 N, K], gate rows first. The result: [tokens, N].
        """

    def product(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        """x @ weight.T."""

    def branch(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        """x @ weight.T for `Stream.plus`: [tokens, N], or float32 [shares, tokens, N] whose sum is meant."""

    def logits(
        self, x: torch.Tensor, weight: torch.Tensor, wanted: torch.Tensor | None = None
    ) -> torch.Tensor:
        """x @ weight.T in float32. wanted: int64 [tokens], 0 for tokens whose result is not used and may be
        anything."""

    def rotate(
        self, projected: Projected, keys: torch.Tensor, values: torch.Tensor, slots: torch.Tensor
    ) -> torch.Tensor:
        """Queries [tokens, heads, head_dim] after bias, norm and rotation; keys and values of the
        tokens are written to a layer's cache at flat slots (int64 [tokens]).

        keys, values: [pages, page_size, kv_heads, head_dim].
        """

    def board(self, rows: DecodeRows, planes: LoopPlanes) -> tuple[torch.Tensor, torch.Tensor]:
        """Of the loop that comes next: positions each row attends to, 0 for rows that have ended, and the
        plane it writes; both int32 [rows]."""

    def leave(self, rows: DecodeRows, by_rule: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
        """After a loop: 1 for rows that leave, else 0, and the loops each has run now; both int64 [rows].

        A row leaves at its limit, or by its exit rule (by_rule: bool [rows]) where the rule applies.
        """

    def best(self, logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The id of each row's largest logit, the first of equals (int64 [rows]), and whether that logit is
        not finite (bool [rows]). logits: float32 [rows, vocab]."""

    def uniform(self, rows: DecodeRows) -> torch.Tensor:
        """`rlt_hw.philox.uniform` of each row's seed and next position: float32 [rows]."""

    def fill(
        self,
        keys: torch.Tensor,
        values: torch.Tensor,
        rows: DecodeRows,
        planes: LoopPlanes,
        exited: torch.Tensor,
        ran: torch.Tensor,
    ) -> None:
        """Give the planes of rows that leave, which deeper loops will read and no loop wrote, what the loop
        that ran last wrote at the row's position.

        keys, values: [layers, planes * num_pages, page_size, kv_heads, head_dim].
        """

    def advance(
        self,
        rows: DecodeRows,
        token: torch.Tensor,
        bad: torch.Tensor,
        exited: torch.Tensor,
        ran: torch.Tensor,
    ) -> None:
        """Note results, and where each row goes on. A row at its last token becomes inactive."""
