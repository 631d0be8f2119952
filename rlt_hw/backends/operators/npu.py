"""Ascend's own operators for norms, rotation, SwiGLU and the cache write; products are torch's.

Source: torch_npu 2.13.0, `_op_plugin_docs.py`. Norms multiply with their weight before they round, where the
torch set rounds first: at most one unit in the last place. Slots of the cache write must be distinct and not
negative, which every caller keeps to. Nothing reads device data on the host.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlt_hw.backends.npu_package import REQUIREMENT, TARGETS, order
from rlt_hw.backends.operators.interface import Add, Projected, Stream
from rlt_hw.backends.operators.torch_native import TorchOperators
from rlt_hw.registry import BackendSpec, Kind

if TYPE_CHECKING:
    import torch

SPEC = BackendSpec(
    kind=Kind.OPERATORS,
    name="npu",
    adapter="rlt_hw.backends.operators.npu:NpuOperators",
    summary="torch_npu's norms, rotation, SwiGLU and cache write",
    targets=TARGETS,
    dtypes=("bfloat16", "float16"),
    graph_levels=("none", "piecewise", "full"),
    requirements=(REQUIREMENT,),
    ranks=order(60, "vllm-ascend's choice of operators"),
)


class NpuOperators(TorchOperators):
    """See `rlt_hw.backends.operators.interface.Operators`."""

    def settle(self, stream: Stream, eps: float, norm: torch.Tensor | None = None) -> torch.Tensor:
        settled, normed = _settle(stream, eps, norm)
        return settled if normed is None else normed

    def project(
        self, stream: Stream, norm: torch.Tensor, weight: torch.Tensor, eps: float
    ) -> tuple[Stream, torch.Tensor]:
        settled, normed = _settle(stream, eps, norm)
        assert normed is not None
        return Stream(settled), self.product(normed, weight)

    def project_gated(
        self, stream: Stream, norm: torch.Tensor, gate_up: torch.Tensor, eps: float
    ) -> tuple[Stream, torch.Tensor]:
        import torch_npu

        settled, both = self.project(stream, norm, gate_up, eps)
        result: torch.Tensor = torch_npu.npu_swiglu(both, dim=-1)
        return settled, result

    def rotate(
        self, projected: Projected, keys: torch.Tensor, values: torch.Tensor, slots: torch.Tensor
    ) -> torch.Tensor:
        import torch_npu

        query, key, value = rotated(projected)
        torch_npu.npu_scatter_pa_kv_cache(
            key=key.to(keys.dtype).contiguous(),
            value=value.to(values.dtype).contiguous(),
            key_cache=keys,
            value_cache=values,
            slot_mapping=slots,
            cache_mode="Norm",
        )
        return query


def rotated(projected: Projected) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Query, key and value, each [tokens, heads, head_dim], after bias, norm and rotation."""
    import torch

    rotary, heads, kv_heads = projected.rotary, projected.rotary.heads, projected.rotary.kv_heads
    qkv = projected.qkv.view(-1, heads + 2 * kv_heads, rotary.head_dim)
    query, key, value = qkv[:, :heads], qkv[:, heads : heads + kv_heads], qkv[:, heads + kv_heads :]
    if rotary.query_bias is not None and rotary.key_bias is not None:
        query, key = query + rotary.query_bias, key + rotary.key_bias
    if rotary.query_norm is not None and rotary.key_norm is not None:
        query = rms_norm(query, rotary.query_norm, rotary.eps)
        key = rms_norm(key, rotary.key_norm, rotary.eps)
    if rotary.interleaved:
        cos, sin = (half.repeat_interleave(2, -1) for half in (projected.cos, projected.sin))
    else:
        cos, sin = (torch.cat((half, half), -1) for half in (projected.cos, projected.sin))
    mode = "interleave" if rotary.interleaved else "half"
    return _turn(query, cos, sin, mode), _turn(key, cos, sin, mode), value


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """x / rms(x) * weight, in float32 and cast to x's dtype."""
    import torch_npu

    normed: torch.Tensor = torch_npu.npu_rms_norm(x.contiguous(), gamma=weight, epsilon=eps)[0]
    return normed


def _settle(
    stream: Stream, eps: float, norm: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """The settled stream, and where `norm` is given the norm of it."""
    hidden, branch = stream.hidden, stream.branch
    if stream.add is Add.INSIDE:
        assert branch is not None
        assert stream.branch_norm is not None
        branch = rms_norm(branch, stream.branch_norm, eps)
    if stream.add is Add.AROUND:
        assert branch is not None
        assert stream.branch_norm is not None
        hidden, branch = _add_rms_norm(hidden, branch, stream.branch_norm, eps)[1], None
    if norm is None:
        return hidden if branch is None else hidden + branch, None
    if branch is None:
        return hidden, rms_norm(hidden, norm, eps)
    return _add_rms_norm(hidden, branch, norm, eps)


def _add_rms_norm(
    hidden: torch.Tensor, branch: torch.Tensor, weight: torch.Tensor, eps: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """(hidden + branch, its norm)."""
    import torch_npu

    normed, _, total = torch_npu.npu_add_rms_norm(hidden, branch, gamma=weight, epsilon=eps)
    return total, normed


def _turn(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, mode: str) -> torch.Tensor:
    """Rotated in the dtype of cos. x: [tokens, heads, dim]; cos, sin: [tokens, dim]."""
    import torch_npu

    turned: torch.Tensor = torch_npu.npu_rotary_mul(
        x.to(cos.dtype).contiguous().unsqueeze(0),
        r1=cos[None, :, None],
        r2=sin[None, :, None],
        rotary_mode=mode,
    )
    return turned.squeeze(0).to(x.dtype)
