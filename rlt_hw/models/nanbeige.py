"""Nanbeige4.2: a fixed number of loops over the whole layer stack; plain pre-norm blocks, grouped
query attention whose width differs from the hidden size, no early exit."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from rlt_hw.backends.operators.interface import Operators, Stream
from rlt_hw.errors import UnsupportedError
from rlt_hw.models.decoder import LoopedDecoder, Weights, decoder_shapes, take
from rlt_hw.models.interface import Attend, ExitRule, State
from rlt_hw.models.layers import AttentionWeights, rotary
from rlt_hw.models.spec import ModelSpec
from rlt_hw.reasons import Code


@dataclass(frozen=True)
class Layer:
    """One decoder layer's weights; gate and up rows are fused."""

    attention_norm: torch.Tensor
    mlp_norm: torch.Tensor
    attention: AttentionWeights
    gate_up: torch.Tensor
    down: torch.Tensor


class Nanbeige(LoopedDecoder):
    """See `rlt_hw.models.interface.LoopedModel`. Consumes the mapping `weights`."""

    ignored_weights = (r"model\.layers\.\d+\.self_attn\.rotary_emb\.inv_freq",)

    def __init__(self, spec: ModelSpec, weights: Weights, operators: Operators) -> None:
        super().__init__(spec, weights, operators)
        self.layers = [_layer(spec, weights, i) for i in range(spec.recurrent_layers)]

    @classmethod
    def weight_shapes(cls, spec: ModelSpec) -> dict[str, tuple[int, ...]]:
        shapes = decoder_shapes(spec, ("input_layernorm", "post_attention_layernorm"))
        if spec.qk_norm:
            for i in range(spec.recurrent_layers):
                for name in ("q_layernorm", "k_layernorm"):
                    shapes[f"model.layers.{i}.self_attn.{name}.weight"] = (spec.head_dim,)
        return shapes

    def recurrent(self, state: State, angles: State, attend: Attend) -> State:
        stream, eps = Stream(state[0]), self.spec.norm_eps
        for index, layer in enumerate(self.layers):
            stream, branch = self.sublayers.attention(
                stream, layer.attention_norm, index, layer.attention, angles, attend
            )
            stream = stream.plus(branch)
            stream, branch = self.sublayers.gated_mlp(stream, layer.mlp_norm, layer.gate_up, layer.down)
            stream = stream.plus(branch)
        return (self.operators.settle(stream, eps, self.norm if self.spec.norm_every_loop else None),)

    def coda(self, state: State, angles: State, attend: Attend) -> torch.Tensor:
        (hidden,) = state
        if self.spec.norm_every_loop:
            return hidden
        return self.operators.settle(Stream(hidden), self.spec.norm_eps, self.norm)

    def exit_rule(self, name: str) -> ExitRule:
        raise UnsupportedError(
            "exit rule",
            found=repr(name),
            allowed="none: Nanbeige runs a fixed number of loops",
            code=Code.MODEL_FEATURE,
        )


def _layer(spec: ModelSpec, weights: Weights, i: int) -> Layer:
    return Layer(
        attention_norm=take(weights, i, "input_layernorm"),
        mlp_norm=take(weights, i, "post_attention_layernorm"),
        attention=AttentionWeights(
            qkv=take(weights, i, "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
            out=take(weights, i, "self_attn.o_proj"),
            rotary=rotary(
                spec,
                query_norm=take(weights, i, "self_attn.q_layernorm") if spec.qk_norm else None,
                key_norm=take(weights, i, "self_attn.k_layernorm") if spec.qk_norm else None,
            ),
        ),
        gate_up=take(weights, i, "mlp.gate_proj", "mlp.up_proj"),
        down=take(weights, i, "mlp.down_proj"),
    )
