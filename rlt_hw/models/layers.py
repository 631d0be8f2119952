"""The pieces that the families share, as functions of tensors. Formulas: RMSNorm
(arXiv:1910.07467), rotary embedding (arXiv:2104.09864), SwiGLU (arXiv:2002.05202)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F

from rlt_hw.models.interface import Attend, State
from rlt_hw.models.spec import ModelSpec


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """x / rms(x) in float32, cast to x's dtype, then times weight in that dtype.

    x: [..., features]; weight: [features], used as it is (not 1 + weight).
    """
    if x.dtype is torch.float32:
        return F.rms_norm(x, weight.shape, weight, eps)
    return F.rms_norm(x.float(), weight.shape, None, eps).to(x.dtype) * weight


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


def rotate_half(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Rotate the pairs (x[j], x[j + head_dim / 2]). x: [tokens, heads, head_dim]."""
    first, second = x.chunk(2, dim=-1)
    cos, sin = cos[:, None], sin[:, None]
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


def rotate_pairs(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Rotate the pairs (x[2j], x[2j + 1]) in the dtype of cos, back to x's dtype.

    x: [tokens, heads, head_dim].
    """
    even, odd = x[..., 0::2].to(cos.dtype), x[..., 1::2].to(cos.dtype)
    cos, sin = cos[:, None], sin[:, None]
    rotated = torch.stack((even * cos - odd * sin, odd * cos + even * sin), dim=-1)
    return rotated.flatten(-2).to(x.dtype)


def gated_mlp(x: torch.Tensor, gate_up: torch.Tensor, down: torch.Tensor) -> torch.Tensor:
    """down(silu(gate(x)) * up(x)). gate_up: [2 * intermediate, hidden], gate rows first."""
    gate, up = F.linear(x, gate_up).chunk(2, dim=-1)
    return F.linear(F.silu(gate) * up, down)


@dataclass(frozen=True)
class AttentionWeights:
    """qkv: [(heads + 2 * kv_heads) * head_dim, hidden], query rows first. out: [hidden, heads * head_dim].

    query_bias, key_bias: [heads, head_dim], added before the rotation. query_norm, key_norm:
    [head_dim], RMS norm over each head before the rotation.
    """

    qkv: torch.Tensor
    out: torch.Tensor
    query_bias: torch.Tensor | None = None
    key_bias: torch.Tensor | None = None
    query_norm: torch.Tensor | None = None
    key_norm: torch.Tensor | None = None


def self_attention(
    x: torch.Tensor, index: int, weights: AttentionWeights, spec: ModelSpec, angles: State, attend: Attend
) -> torch.Tensor:
    """Projection, bias, norm, rotation, attention over the cache, output projection.

    x and the result: [tokens, hidden]. index: the layer's number within its stage.
    """
    heads, kv_heads = spec.num_heads, spec.num_kv_heads
    qkv = F.linear(x, weights.qkv).view(x.shape[0], heads + 2 * kv_heads, spec.head_dim)
    query, key, value = qkv[:, :heads], qkv[:, heads : heads + kv_heads], qkv[:, heads + kv_heads :]
    if weights.query_bias is not None and weights.key_bias is not None:
        query, key = query + weights.query_bias, key + weights.key_bias
    if weights.query_norm is not None and weights.key_norm is not None:
        query = rms_norm(query, weights.query_norm, spec.norm_eps)
        key = rms_norm(key, weights.key_norm, spec.norm_eps)
    rotate = rotate_pairs if spec.rope.interleaved else rotate_half
    out = attend(index, rotate(query, *angles), rotate(key, *angles), value)
    return F.linear(out.flatten(1), weights.out)
