"""Ouro: the whole layer stack loops; sandwich norms inside the residual branches, the final norm
after every loop, a learned exit gate (arXiv:2510.25741)."""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F

from rlt_hw.errors import ConfigError
from rlt_hw.models.interface import Attend, ExitRule, State, Tokens
from rlt_hw.models.layers import AttentionWeights, gated_mlp, rms_norm, rotary_angles, self_attention
from rlt_hw.models.spec import ModelSpec, Stage


@dataclass(frozen=True)
class Layer:
    """One decoder layer's weights; gate and up rows are fused."""

    attention_norm: torch.Tensor
    attention_out_norm: torch.Tensor
    mlp_norm: torch.Tensor
    mlp_out_norm: torch.Tensor
    attention: AttentionWeights
    gate_up: torch.Tensor
    down: torch.Tensor


class Ouro:
    """See `rlt_hw.models.interface.LoopedModel`. Consumes the mapping `weights`."""

    def __init__(self, spec: ModelSpec, weights: MutableMapping[str, torch.Tensor]) -> None:
        self.spec = spec
        self.embedding = weights.pop("model.embed_tokens.weight")
        self.unembedding = self.embedding if spec.tie_embeddings else weights.pop("lm_head.weight")
        self.norm = weights.pop("model.norm.weight")
        self.gate_weight = weights.pop("model.early_exit_gate.weight").float()
        self.gate_bias = weights.pop("model.early_exit_gate.bias").float()
        self.layers = [_layer(weights, f"model.layers.{i}.") for i in range(spec.recurrent_layers)]

    @classmethod
    def weight_shapes(cls, spec: ModelSpec) -> dict[str, tuple[int, ...]]:
        hidden, inner, vocab = spec.hidden_size, spec.intermediate_size, spec.vocab_size
        query, kv = spec.num_heads * spec.head_dim, spec.num_kv_heads * spec.head_dim
        layer = {
            "input_layernorm.weight": (hidden,),
            "input_layernorm_2.weight": (hidden,),
            "post_attention_layernorm.weight": (hidden,),
            "post_attention_layernorm_2.weight": (hidden,),
            "self_attn.q_proj.weight": (query, hidden),
            "self_attn.k_proj.weight": (kv, hidden),
            "self_attn.v_proj.weight": (kv, hidden),
            "self_attn.o_proj.weight": (hidden, query),
            "mlp.gate_proj.weight": (inner, hidden),
            "mlp.up_proj.weight": (inner, hidden),
            "mlp.down_proj.weight": (hidden, inner),
        }
        shapes = {
            "model.embed_tokens.weight": (vocab, hidden),
            "model.norm.weight": (hidden,),
            "model.early_exit_gate.weight": (1, hidden),
            "model.early_exit_gate.bias": (1,),
        }
        if not spec.tie_embeddings:
            shapes["lm_head.weight"] = (vocab, hidden)
        for i in range(spec.recurrent_layers):
            shapes.update({f"model.layers.{i}.{name}": shape for name, shape in layer.items()})
        return shapes

    def stages(self) -> Sequence[Stage]:
        return (Stage.RECURRENT,)

    def angles(self, positions: torch.Tensor) -> State:
        rope = self.spec.rope
        return rotary_angles(positions, self.spec.head_dim, rope.theta, self.embedding.dtype)

    def prelude(self, tokens: Tokens, attend: Attend) -> State:
        return (F.embedding(tokens.ids, self.embedding),)

    def recurrent(self, state: State, angles: State, attend: Attend) -> State:
        (hidden,) = state
        eps = self.spec.norm_eps
        for index, layer in enumerate(self.layers):
            normed = rms_norm(hidden, layer.attention_norm, eps)
            branch = self_attention(normed, index, layer.attention, self.spec, angles, attend)
            hidden = hidden + rms_norm(branch, layer.attention_out_norm, eps)
            branch = gated_mlp(rms_norm(hidden, layer.mlp_norm, eps), layer.gate_up, layer.down)
            hidden = hidden + rms_norm(branch, layer.mlp_out_norm, eps)
        return (rms_norm(hidden, self.norm, eps),)

    def coda(self, state: State, angles: State, attend: Attend) -> torch.Tensor:
        return state[0]

    def head(self, hidden: torch.Tensor) -> torch.Tensor:
        return F.linear(hidden, self.unembedding).float()

    def gate(self, hidden: torch.Tensor) -> torch.Tensor:
        """Exit-gate logits before the sigmoid, float32 [tokens]."""
        return F.linear(hidden.float(), self.gate_weight, self.gate_bias).squeeze(-1)

    def exit_rule(self, name: str) -> ExitRule:
        if name != "gate":
            raise ConfigError("exit rule", found=repr(name), allowed="'gate'")
        return GateRule(self)


class GateRule:
    """Exit when the cumulative exit probability reaches the threshold, in float32.

    The probability of having left by loop t is 1 - prod(1 - sigmoid(gate)) over the loops so far.
    """

    def __init__(self, model: Ouro) -> None:
        self._gate = model.gate

    def begin(self, states: State) -> State:
        return (states[0].new_ones(states[0].shape[0], dtype=torch.float32),)

    def update(
        self, memory: State, states: State, thresholds: torch.Tensor
    ) -> tuple[torch.Tensor, State]:
        survival = memory[0] * torch.sigmoid(-self._gate(states[0]))
        return 1.0 - survival >= thresholds, (survival,)


def _layer(weights: MutableMapping[str, torch.Tensor], prefix: str) -> Layer:
    def take(*names: str) -> torch.Tensor:
        parts = [weights.pop(f"{prefix}{name}.weight") for name in names]
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    return Layer(
        attention_norm=take("input_layernorm"),
        attention_out_norm=take("input_layernorm_2"),
        mlp_norm=take("post_attention_layernorm"),
        mlp_out_norm=take("post_attention_layernorm_2"),
        attention=AttentionWeights(
            qkv=take("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
            out=take("self_attn.o_proj"),
        ),
        gate_up=take("mlp.gate_proj", "mlp.up_proj"),
        down=take("mlp.down_proj"),
    )
