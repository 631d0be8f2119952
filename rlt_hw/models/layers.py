"""The pieces that the families share, as functions of tensors. Formulas: RMSNorm
(arXiv:1910.07467), rotary embedding (arXiv:2104.09864), SwiGLU (arXiv:2002.05202)."""

from __future__ import annotations

import torch
import torch.nn.functional as F


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


def split_heads(
    qkv: torch.Tensor, heads: int, kv_heads: int, head_dim: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Views of a fused projection [tokens, (heads + 2 * kv_heads) * head_dim]."""
    packed = qkv.view(qkv.shape[0], heads + 2 * kv_heads, head_dim)
    query, key, value = packed.split((heads, kv_heads, kv_heads), dim=1)
    return query, key, value
