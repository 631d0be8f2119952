"""The pieces that the families share. Formulas: rotary embedding (arXiv:2104.09864), SwiGLU
(arXiv:2002.05202)."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from rlt_hw.backends.operators.interface import Operators, Projected, Rotary, Stream
from rlt_hw.models.interface import Attend, State
from rlt_hw.models.spec import ModelSpec


def rotary_angles(
    positions: torch.Tensor, head_dim: int, theta: float, dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor]:
    """cos and sin of position * theta^(-2j / head_dim), computed in float32, cast to `dtype`.

    positions: int64 [tokens]. Returns two tensors [tokens, head_dim / 2].
    """
    exponents = torch.arange(0, head_dim, 2, dtype=torch.float32, device=positions.device) / head_dim
    frequencies = 1.0 / torch.pow(theta, exponents)
    angles = positions.to(torch.float32)[:, None] * frequencies
    return angles.cos().to(dtype), angles.sin().to(dtype)


@dataclass(frozen=True)
class AttentionWeights:
    """qkv: [(heads + 2 * kv_heads) * head_dim, hidden], query rows first. out: [hidden, heads * head_dim]."""

    qkv: torch.Tensor
    out: torch.Tensor
    rotary: Rotary


def rotary(spec: ModelSpec, **weights: torch.Tensor | None) -> Rotary:
    """What a spec says of the rotation; weights: biases and norms, see `Rotary`."""
    return Rotary(
        spec.num_heads, spec.num_kv_heads, spec.head_dim, spec.rope.interleaved, spec.norm_eps, **weights
    )


class Layers:
    """The two sublayers on a residual stream. index: the layer's number within its stage."""

    def __init__(self, operators: Operators, eps: float) -> None:
        self._operators, self._eps = operators, eps

    def attention(
        self,
        stream: Stream,
        norm: torch.Tensor,
        index: int,
        weights: AttentionWeights,
        angles: State,
        attend: Attend,
    ) -> tuple[Stream, torch.Tensor]:
        """The settled stream, and the branch out(attention(qkv(norm(stream))))."""
        stream, qkv = self._operators.project(stream, norm, weights.qkv, self._eps)
        out = attend(index, Projected(qkv, weights.rotary, *angles))
        return stream, self._operators.branch(out.flatten(1), weights.out)

    def gated_mlp(
        self, stream: Stream, norm: torch.Tensor, gate_up: torch.Tensor, down: torch.Tensor
    ) -> tuple[Stream, torch.Tensor]:
        """The settled stream, and the branch down(silu(gate(x)) * up(x)) of x = norm(stream).

        gate_up: [2 * intermediate, hidden], gate rows first.
        """
        stream, inner = self._operators.project_gated(stream, norm, gate_up, self._eps)
        return stream, self._operators.branch(inner, down)
