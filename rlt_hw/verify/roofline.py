"""What a step must read and compute at least, counted from the model's shapes.

A matrix of n weights costs n reads a pass however many rows share it, and 2 n operations a row. Attention
of one query over c positions reads 2 c kv_heads head_dim values and costs 4 c heads head_dim operations.
Activations, norms and writes are not counted: the bound is a lower one.
"""

from __future__ import annotations

from dataclasses import dataclass

from rlt_hw.models.spec import ModelSpec
from rlt_hw.runtime.memory import ITEMSIZE


@dataclass(frozen=True)
class Cost:
    """Bytes that must be read, and floating-point operations."""

    bytes_read: float
    operations: float

    def seconds(self, read_bandwidth: float) -> float:
        """The least time at a bandwidth in bytes a second, where reading is the limit."""
        return self.bytes_read / read_bandwidth


def decode_cost(
    spec: ModelSpec, *, rows: int, context: float, loops: float, dtype: str, kv_dtype: str
) -> Cost:
    """One token of each of `rows` sequences. context: mean positions that a query attends to, itself
    included. loops: mean loops, at equal depths: what rows share they read once."""
    passes = _passes(spec, loops)
    weights = _weights(spec, passes) + _head(spec)
    kv = rows * context * passes * 2 * spec.num_kv_heads * spec.head_dim
    attention = rows * context * passes * 4 * spec.num_heads * spec.head_dim
    return Cost(weights * ITEMSIZE[dtype] + kv * ITEMSIZE[kv_dtype], 2 * rows * weights + attention)


def prefill_operations(spec: ModelSpec, *, tokens: int, loops: int) -> float:
    """Operations of one prompt of `tokens`, causal, whose last position alone runs the head."""
    passes = _passes(spec, loops)
    pairs = tokens * (tokens + 1) / 2
    return 2 * tokens * _weights(spec, passes) + pairs * passes * 4 * spec.num_heads * spec.head_dim


def _passes(spec: ModelSpec, loops: float) -> float:
    """Layers that a token goes through."""
    return spec.prelude_layers + loops * spec.recurrent_layers + spec.coda_layers


def _weights(spec: ModelSpec, passes: float) -> float:
    """Weights that a pass reads, the head apart. What is neither a layer's matrix nor a token table (norms,
    gates, an adapter in front of each loop) is counted once a loop."""
    layer = _layer(spec)
    loops = (passes - spec.prelude_layers - spec.coda_layers) / spec.recurrent_layers
    tables = (1 if spec.tie_embeddings else 2) * _head(spec)
    return passes * layer + loops * (spec.parameters - tables - spec.num_layers * layer)


def _layer(spec: ModelSpec) -> int:
    heads = 2 * (spec.num_heads + spec.num_kv_heads) * spec.head_dim
    return spec.hidden_size * (heads + 3 * spec.intermediate_size)


def _head(spec: ModelSpec) -> int:
    return spec.vocab_size * spec.hidden_size
