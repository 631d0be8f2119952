"""Huginn-0125: prelude, a core that loops from a random state with the prelude's output injected
each time, and a coda (arXiv:2502.05171). The norms act on the residual stream itself."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F

from rlt_hw import philox_torch
from rlt_hw.backends.operators.interface import Add, Operators, Stream
from rlt_hw.errors import ConfigError
from rlt_hw.models.decoder import Weights
from rlt_hw.models.huginn_exits import RULES
from rlt_hw.models.interface import Attend, DeviceStart, ExitRule, State, Tokens
from rlt_hw.models.layers import AttentionWeights, Layers, rotary, rotary_angles
from rlt_hw.models.spec import ModelSpec
from rlt_hw.philox import uniform_block

STATE_STREAM = 1
CUT = 3.0


@dataclass(frozen=True)
class Block:
    """One sandwich block: x = norm_2(attention(norm_1(x)) + x); x = norm_4(mlp(norm_3(x)) + x)."""

    norms: tuple[torch.Tensor, ...]
    attention: AttentionWeights
    gate_up: torch.Tensor
    down: torch.Tensor


class Huginn:
    """See `rlt_hw.models.interface.LoopedModel`. Consumes the mapping `weights`.

    The state is (x, e): the recurrent state and the injected prelude output.
    """

    embedding_name = "transformer.wte.weight"
    ignored_weights = ("freqs_cis",)

    def __init__(self, spec: ModelSpec, weights: Weights, operators: Operators) -> None:
        self.spec = spec
        self.operators, self.sublayers = operators, Layers(operators, spec.norm_eps)
        self.embedding = weights.pop(self.embedding_name)
        self.unembedding = self.embedding if spec.tie_embeddings else weights.pop("lm_head.weight")
        self.norm = weights.pop("transformer.ln_f.weight")
        self.adapter = weights.pop("transformer.adapter.weight")
        self.prelude_blocks, self.core_blocks, self.coda_blocks = (
            [_block(spec, weights, f"transformer.{name}.{i}.") for i in range(count)]
            for name, count in _block_counts(spec)
        )

    @classmethod
    def weight_shapes(cls, spec: ModelSpec) -> dict[str, tuple[int, ...]]:
        hidden, inner = spec.hidden_size, spec.intermediate_size
        block: dict[str, tuple[int, ...]] = {f"norm_{i}.weight": (hidden,) for i in range(1, 5)}
        block |= {
            "attn.Wqkv.weight": (3 * hidden, hidden),
            "attn.proj.weight": (hidden, hidden),
            "mlp.fc.weight": (2 * inner, hidden),
            "mlp.proj.weight": (hidden, inner),
        }
        if spec.qk_bias:
            block["attn.qk_bias"] = (2, 1, spec.num_heads, spec.head_dim)
        shapes: dict[str, tuple[int, ...]] = {
            "transformer.wte.weight": (spec.vocab_size, hidden),
            "transformer.adapter.weight": (hidden, 2 * hidden),
            "transformer.ln_f.weight": (hidden,),
        }
        if not spec.tie_embeddings:
            shapes["lm_head.weight"] = (spec.vocab_size, hidden)
        for name, count in _block_counts(spec):
            for i in range(count):
                shapes |= {f"transformer.{name}.{i}.{part}": shape for part, shape in block.items()}
        return shapes

    def angles(self, positions: torch.Tensor) -> State:
        return rotary_angles(positions, self.spec.head_dim, self.spec.rope.theta, torch.float32)

    def prelude(self, tokens: Tokens, attend: Attend) -> State:
        x = F.embedding(tokens.ids, self.embedding) * self.spec.hidden_size**0.5
        injected = self._blocks(self.prelude_blocks, x, tokens.angles, attend)
        return self._start(tokens).to(injected.dtype), injected

    def recurrent(self, state: State, angles: State, attend: Attend) -> State:
        x, injected = state
        x = self.operators.product(torch.cat((x, injected), dim=-1), self.adapter)
        return self._blocks(self.core_blocks, x, angles, attend), injected

    def coda(self, state: State, angles: State, attend: Attend) -> torch.Tensor:
        x = self._blocks(self.coda_blocks, self.latent(state), angles, attend)
        return self.operators.settle(Stream(x), self.spec.norm_eps, self.norm)

    def head(self, hidden: torch.Tensor, wanted: torch.Tensor | None = None) -> torch.Tensor:
        return self.operators.logits(hidden, self.unembedding, wanted)

    def latent(self, state: State) -> torch.Tensor:
        return self.operators.settle(Stream(state[0]), self.spec.norm_eps, self.norm)

    def exit_rule(self, name: str) -> ExitRule:
        if name not in RULES:
            raise ConfigError("exit rule", found=repr(name), allowed=", ".join(RULES))
        return RULES[name](self.spec.vocab_size)

    def _blocks(self, blocks: list[Block], x: torch.Tensor, angles: State, attend: Attend) -> torch.Tensor:
        stream = Stream(x)
        for index, block in enumerate(blocks):
            norm_1, norm_2, norm_3, norm_4 = block.norms
            stream, branch = self.sublayers.attention(stream, norm_1, index, block.attention, angles, attend)
            stream = stream.plus(branch, norm_2, Add.AROUND)
            stream, branch = self.sublayers.gated_mlp(stream, norm_3, block.gate_up, block.down)
            stream = stream.plus(branch, norm_4, Add.AROUND)
        return self.operators.settle(stream, self.spec.norm_eps)

    def _start(self, tokens: Tokens) -> torch.Tensor:
        """Start states, float32 [tokens, hidden]."""
        start, device = tokens.start, self.embedding.device
        if isinstance(start, DeviceStart):
            draws = philox_torch.uniform_block(
                start.seeds, tokens.positions, self.spec.hidden_size, STATE_STREAM
            )
            return _truncated_normal(draws).masked_fill(start.zero[:, None], 0.0)
        state = torch.zeros(len(tokens.ids), self.spec.hidden_size, device=device)
        drawn = np.flatnonzero(~(start.zero | start.given))
        if len(drawn):
            states = random_states(start.seeds[drawn], start.positions[drawn], self.spec.hidden_size)
            state[torch.from_numpy(drawn).to(device)] = states.to(device)
        if start.states is not None:
            given = torch.from_numpy(start.given).to(device)
            state = torch.where(given[:, None], start.states, state)
        return state


def random_states(seeds: np.ndarray, positions: np.ndarray, hidden: int) -> torch.Tensor:
    """sqrt(hidden) * truncated_normal(std sqrt(2 / (5 hidden)), cut at 3 std), float32 [n, hidden].

    seeds: uint64 [n]; positions: int64 [n]. A state depends on its seed and position alone.
    """
    return _truncated_normal(torch.from_numpy(uniform_block(seeds, positions, hidden, STATE_STREAM)))


def _truncated_normal(draws: torch.Tensor) -> torch.Tensor:
    """float32, from uniform float64 draws of the same shape, scaled as `random_states` says."""
    normal = 2**0.5 * torch.erfinv((2 * draws - 1) * math.erf(CUT / 2**0.5))
    return (normal * (2 / 5) ** 0.5).float()


def _block_counts(spec: ModelSpec) -> tuple[tuple[str, int], ...]:
    return (
        ("prelude", spec.prelude_layers),
        ("core_block", spec.recurrent_layers),
        ("coda", spec.coda_layers),
    )


def _block(spec: ModelSpec, weights: Weights, prefix: str) -> Block:
    bias = weights.pop(f"{prefix}attn.qk_bias").squeeze(1) if spec.qk_bias else None
    return Block(
        norms=tuple(weights.pop(f"{prefix}norm_{i}.weight") for i in range(1, 5)),
        attention=AttentionWeights(
            qkv=weights.pop(f"{prefix}attn.Wqkv.weight"),
            out=weights.pop(f"{prefix}attn.proj.weight"),
            rotary=rotary(
                spec,
                query_bias=None if bias is None else bias[0],
                key_bias=None if bias is None else bias[1],
            ),
        ),
        gate_up=weights.pop(f"{prefix}mlp.fc.weight"),
        down=weights.pop(f"{prefix}mlp.proj.weight"),
    )
