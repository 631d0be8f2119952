"""Plain torch: works on every device, and is what the other sets are compared with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlt_hw.backends.operators.interface import Add, OperatorOptions, Projected, Stream
from rlt_hw.backends.operators.rows import TorchRows
from rlt_hw.registry import BackendSpec, Kind, Rank

if TYPE_CHECKING:
    import torch

SPEC = BackendSpec(
    kind=Kind.OPERATORS,
    name="torch_native",
    adapter="rlt_hw.backends.operators.torch_native:TorchOperators",
    summary="plain torch on every device",
    targets=("*",),
    features=("batch_invariant",),
    graph_levels=("none",),  # its slot copy reads a mask on the host
    ranks=(Rank("*", 10, "what the others are compared with"),),
)


class TorchOperators(TorchRows):
    """See `rlt_hw.backends.operators.interface.Operators`. What every other set is compared with.

    RMSNorm as in arXiv:1910.07467, rotary embedding as in arXiv:2104.09864, SwiGLU as in arXiv:2002.05202;
    norms in float32, cast to the stream's dtype before they are multiplied with their weight. Where results
    must not depend on the batch, products run token by token: a library chooses its order by their number.
    """

    def __init__(self, options: OperatorOptions) -> None:
        self._invariant = options.batch_invariant

    def settle(self, stream: Stream, eps: float, norm: torch.Tensor | None = None) -> torch.Tensor:
        value = stream.hidden
        if stream.branch is not None:
            weight = stream.branch_norm
            if stream.add is Add.INSIDE:
                value = value + rms_norm(stream.branch, _some(weight), eps)
            else:
                value = value + stream.branch
            if stream.add is Add.AROUND:
                value = rms_norm(value, _some(weight), eps)
        return value if norm is None else rms_norm(value, norm, eps)

    def project(
        self, stream: Stream, norm: torch.Tensor, weight: torch.Tensor, eps: float
    ) -> tuple[Stream, torch.Tensor]:
        hidden = self.settle(stream, eps)
        return Stream(hidden), self.product(rms_norm(hidden, norm, eps), weight)

    def project_gated(
        self, stream: Stream, norm: torch.Tensor, gate_up: torch.Tensor, eps: float
    ) -> tuple[Stream, torch.Tensor]:
        import torch.nn.functional as F

        settled, both = self.project(stream, norm, gate_up, eps)
        gate, up = both.chunk(2, dim=-1)
        return settled, F.silu(gate) * up

    def product(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        import torch
        import torch.nn.functional as F

        if self._invariant and len(x) > 1:
            return torch.cat([F.linear(token[None], weight) for token in x.unbind()])
        return F.linear(x, weight)

    def branch(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return self.product(x, weight)

    def logits(
        self,
        x: torch.Tensor,
        weight: torch.Tensor,
        wanted: torch.Tensor | None = None,
    ) -> torch.Tensor:
        return self.product(x, weight).float()

    def rotate(
        self, projected: Projected, keys: torch.Tensor, values: torch.Tensor, slots: torch.Tensor
    ) -> torch.Tensor:
        query, key, value = rotated(projected)
        for cache, new in ((keys, key), (values, value)):
            cache.flatten(0, 1).index_copy_(0, slots, new.to(cache.dtype))
        return query


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """x / rms(x) in float32, cast to x's dtype, then times weight in that dtype.

    x: [..., features]; weight: [features], used as it is (not 1 + weight).
    """
    import torch
    import torch.nn.functional as F

    if x.dtype is torch.float32:
        return F.rms_norm(x, weight.shape, weight, eps)
    return F.rms_norm(x.float(), weight.shape, None, eps).to(x.dtype) * weight


def rotated(projected: Projected) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Query, key and value, each [tokens, heads, head_dim], after bias, norm and rotation."""
    rotary, heads, kv_heads = projected.rotary, projected.rotary.heads, projected.rotary.kv_heads
    assert projected.shares == 1, "only fused operators leave a product in shares"
    qkv = projected.qkv.view(-1, heads + 2 * kv_heads, rotary.head_dim)
    query, key, value = qkv[:, :heads], qkv[:, heads : heads + kv_heads], qkv[:, heads + kv_heads :]
    if rotary.query_bias is not None and rotary.key_bias is not None:
        query, key = query + rotary.query_bias, key + rotary.key_bias
    if rotary.query_norm is not None and rotary.key_norm is not None:
        query = rms_norm(query, rotary.query_norm, rotary.eps)
        key = rms_norm(key, rotary.key_norm, rotary.eps)
    turn = _rotate_pairs if rotary.interleaved else _rotate_halves
    cos, sin = projected.cos[:, None], projected.sin[:, None]
    return turn(query, cos, sin), turn(key, cos, sin), value


def _rotate_halves(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Rotates (x[j], x[j + head_dim / 2]). x: [tokens, heads, dim]; cos, sin: [tokens, 1, dim / 2]."""
    import torch

    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


def _rotate_pairs(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Rotates (x[2j], x[2j + 1]) in the dtype of cos, back to x's dtype. Shapes as in `_rotate_halves`."""
    import torch

    even, odd = x[..., 0::2].to(cos.dtype), x[..., 1::2].to(cos.dtype)
    rotated = torch.stack((even * cos - odd * sin, odd * cos + even * sin), dim=-1)
    return rotated.flatten(-2).to(x.dtype)


def _some(weight: torch.Tensor | None) -> torch.Tensor:
    assert weight is not None, "this placement of a branch has a norm"
    return weight
