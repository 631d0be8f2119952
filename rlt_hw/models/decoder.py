"""What Ouro and Nanbeige have in common: the whole stack loops, from embedding to head, and the
checkpoints name their tensors alike."""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence
from typing import ClassVar

import torch
import torch.nn.functional as F

from rlt_hw.backends.operators.interface import Operators
from rlt_hw.models.interface import Attend, State, Tokens
from rlt_hw.models.layers import Layers, rotary_angles
from rlt_hw.models.spec import ModelSpec

Weights = MutableMapping[str, torch.Tensor]


class LoopedDecoder:
    """Embedding, angles and head of a model whose only stage is the recurrent one."""

    embedding_name = "model.embed_tokens.weight"
    ignored_weights: ClassVar[tuple[str, ...]] = ()

    def __init__(self, spec: ModelSpec, weights: Weights, operators: Operators) -> None:
        self.spec = spec
        self.operators, self.sublayers = operators, Layers(operators, spec.norm_eps)
        self.embedding = weights.pop(self.embedding_name)
        self.unembedding = self.embedding if spec.tie_embeddings else weights.pop("lm_head.weight")
        self.norm = weights.pop("model.norm.weight")

    def angles(self, positions: torch.Tensor) -> State:
        return rotary_angles(positions, self.spec.head_dim, self.spec.rope.theta, self.embedding.dtype)

    def prelude(self, tokens: Tokens, attend: Attend) -> State:
        return (F.embedding(tokens.ids, self.embedding),)

    def head(self, hidden: torch.Tensor, wanted: torch.Tensor | None = None) -> torch.Tensor:
        return self.operators.logits(hidden, self.unembedding, wanted)

    def latent(self, state: State) -> torch.Tensor:
        return state[0]


def decoder_shapes(spec: ModelSpec, norms: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """Tensor names and shapes; `norms` are the names of a layer's norms over the hidden size."""
    hidden, inner, vocab = spec.hidden_size, spec.intermediate_size, spec.vocab_size
    query, kv = spec.num_heads * spec.head_dim, spec.num_kv_heads * spec.head_dim
    layer: dict[str, tuple[int, ...]] = dict.fromkeys(norms, (hidden,))
    layer |= {
        "self_attn.q_proj": (query, hidden),
        "self_attn.k_proj": (kv, hidden),
        "self_attn.v_proj": (kv, hidden),
        "self_attn.o_proj": (hidden, query),
        "mlp.gate_proj": (inner, hidden),
        "mlp.up_proj": (inner, hidden),
        "mlp.down_proj": (hidden, inner),
    }
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (vocab, hidden),
        "model.norm.weight": (hidden,),
    }
    if not spec.tie_embeddings:
        shapes["lm_head.weight"] = (vocab, hidden)
    for i in range(spec.recurrent_layers):
        shapes |= {f"model.layers.{i}.{name}.weight": shape for name, shape in layer.items()}
    return shapes


def take(weights: Weights, layer: int, *names: str) -> torch.Tensor:
    """Remove tensors of a layer from the mapping, stacked along their rows."""
    parts = [weights.pop(f"model.layers.{layer}.{name}.weight") for name in names]
    return parts[0] if len(parts) == 1 else torch.cat(parts)
