"""Ouro: the whole layer stack loops; sandwich norms inside the residual branches, the final norm
after every loop, a learned exit gate (arXiv:2510.25741)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F

from rlt_hw.backends.operators.interface import Add, Operators, Stream
from rlt_hw.errors import ConfigError
from rlt_hw.models.decoder import LoopedDecoder, Weights, decoder_shapes, take
from rlt_hw.models.interface import Attend, ExitRule, State
from rlt_hw.models.layers import AttentionWeights, rotary
from rlt_hw.models.spec import ModelSpec

NORMS = (
    "input_layernorm",
    "input_layernorm_2",
    "post_attention_layernorm",
    "post_attention_layernorm_2",
)


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


class Ouro(LoopedDecoder):
    """See `rlt_hw.models.interface.LoopedModel`. Consumes the mapping `weights`."""

    def __init__(self, spec: ModelSpec, weights: Weights, operators: Operators) -> None:
        super().__init__(spec, weights, operators)
        self.gate_weight = weights.pop("model.early_exit_gate.weight").float()
        self.gate_bias = weights.pop("model.early_exit_gate.bias").float()
        self.layers = [_layer(spec, weights, i) for i in range(spec.recurrent_layers)]

    @classmethod
    def weight_shapes(cls, spec: ModelSpec) -> dict[str, tuple[int, ...]]:
        gate: dict[str, tuple[int, ...]] = {
            "model.early_exit_gate.weight": (1, spec.hidden_size),
            "model.early_exit_gate.bias": (1,),
        }
        return decoder_shapes(spec, NORMS) | gate

    def recurrent(self, state: State, angles: State, attend: Attend) -> State:
        stream, eps = Stream(state[0]), self.spec.norm_eps
        for index, layer in enumerate(self.layers):
            stream, branch = self.sublayers.attention(
                stream, layer.attention_norm, index, layer.attention, angles, attend
            )
            stream = stream.plus(branch, layer.attention_out_norm, Add.INSIDE)
            stream, branch = self.sublayers.gated_mlp(stream, layer.mlp_norm, layer.gate_up, layer.down)
            stream = stream.plus(branch, layer.mlp_out_norm, Add.INSIDE)
        return (self.operators.settle(stream, eps, self.norm),)

    def coda(self, state: State, angles: State, attend: Attend) -> torch.Tensor:
        return state[0]

    def gate(self, hidden: torch.Tensor) -> torch.Tensor:
        """Exit-gate logits before the sigmoid, float32 [tokens]."""
        return F.linear(hidden.float(), self.gate_weight, self.gate_bias).squeeze(-1)

    def exit_rule(self, name: str) -> ExitRule:
        if name not in RULES:
            raise ConfigError("exit rule", found=repr(name), allowed=", ".join(RULES))
        return RULES[name](self)


class GateRule:
    """Leave when the cumulative exit probability reaches the threshold, in float32.

    The probability of having left by loop t is 1 - prod(1 - sigmoid(gate)) over the loops so far.
    """

    def __init__(self, model: Ouro) -> None:
        self._gate = model.gate

    def begin(self, states: State) -> State:
        return (states[0].new_ones(states[0].shape[0], dtype=torch.float32),)

    def value(
        self, memory: State, states: State, logits: Callable[[], torch.Tensor]
    ) -> tuple[torch.Tensor, State]:
        survival = memory[0] * torch.sigmoid(-self._gate(states[0]))
        return 1.0 - survival, (survival,)

    def leaves(self, value: torch.Tensor, thresholds: torch.Tensor) -> torch.Tensor:
        return value >= thresholds


class DelayedGateRule(GateRule):
    """The same decision, acted on one loop later: what a loop's gate says ends the token after the next
    loop. A device need not wait for its host between loops, at the price of one more loop a token."""

    def begin(self, states: State) -> State:
        (survival,) = super().begin(states)
        return survival, torch.full_like(survival, -1.0)

    def value(
        self, memory: State, states: State, logits: Callable[[], torch.Tensor]
    ) -> tuple[torch.Tensor, State]:
        survival, before = memory
        newest, (survival,) = super().value((survival,), states, logits)
        return before, (survival, newest)


RULES = {"gate": GateRule, "gate-delayed": DelayedGateRule}


def _layer(spec: ModelSpec, weights: Weights, i: int) -> Layer:
    return Layer(
        attention_norm=take(weights, i, "input_layernorm"),
        attention_out_norm=take(weights, i, "input_layernorm_2"),
        mlp_norm=take(weights, i, "post_attention_layernorm"),
        mlp_out_norm=take(weights, i, "post_attention_layernorm_2"),
        attention=AttentionWeights(
            qkv=take(weights, i, "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
            out=take(weights, i, "self_attn.o_proj"),
            rotary=rotary(spec),
        ),
        gate_up=take(weights, i, "mlp.gate_proj", "mlp.up_proj"),
        down=take(weights, i, "mlp.down_proj"),
    )
