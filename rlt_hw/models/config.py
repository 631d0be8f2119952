"""Reads a checkpoint's config.json into a `ModelSpec`. Needs neither torch nor the weights.

Every value is checked, and features that no published checkpoint uses are refused by name
(MODEL_FEATURE): a configuration is honoured or refused, never ignored.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from rlt_hw.errors import CheckpointError, ConfigError, UnsupportedError
from rlt_hw.models.spec import ModelSpec, Rope
from rlt_hw.reasons import Code

PUBLISHED = Path(__file__).parent / "published"
DEMO = Path(__file__).parent / "demo"
DTYPES = ("float32", "bfloat16", "float16")


def published_names() -> tuple[str, ...]:
    """Checkpoints that `plan` knows without a download."""
    return tuple(sorted(path.stem for path in PUBLISHED.glob("*.json")))


def demo_names() -> tuple[str, ...]:
    """Small trained checkpoints that ship with the package."""
    return tuple(sorted(f"demo:{path.parent.name}" for path in DEMO.glob("*/config.json")))


def model_path(model: str | Path) -> Path:
    """The folder of a checkpoint: a local folder, or `demo:NAME` from the package.

    Raises CheckpointError when it is neither, naming what exists.
    """
    text = str(model)
    folder = DEMO / text[len("demo:") :] if text.startswith("demo:") else Path(text).expanduser()
    if (folder / "config.json").is_file():
        return folder
    raise CheckpointError(
        f"model {text!r}",
        found="a folder without config.json" if folder.is_dir() else "no such folder",
        allowed=f"a checkpoint folder, or one of {', '.join(demo_names())}",
        remedy="Pass the folder that holds config.json and the safetensors files.",
    )


def read_spec(model: str | Path) -> ModelSpec:
    """The spec of a checkpoint folder, `demo:NAME`, or a published name (case-insensitive).

    A published name may carry its organisation ("ByteDance/Ouro-1.4B").
    """
    text = str(model)
    short = text.rsplit("/", 1)[-1].lower()
    names = {name.lower(): name for name in published_names()}
    if short in names and not Path(text).exists():
        path = PUBLISHED / f"{names[short]}.json"
        return parse_config(_read_json(path), name=names[short])
    try:
        folder = model_path(model)
    except CheckpointError as error:
        error.allowed += f", or a published name: {', '.join(published_names())}"
        error.args = (error._render(),)
        raise
    name = text if text.startswith("demo:") else folder.resolve().name
    return parse_config(_read_json(folder / "config.json"), name=name)


def parse_config(config: Mapping[str, Any], *, name: str = "") -> ModelSpec:
    """The spec for a config.json's content; raises ConfigError or UnsupportedError."""
    family = config.get("model_type")
    if family not in _FAMILIES:
        raise UnsupportedError(
            "model_type",
            found=repr(family),
            allowed=", ".join(_FAMILIES),
            remedy="rlt-hw runs the looped families Ouro, Nanbeige4.2 and Huginn.",
            code=Code.MODEL_FEATURE,
        )
    return _FAMILIES[family](_Fields(config, name))


class _Fields:
    """Typed access to a config mapping: absent, malformed and out-of-range values are errors."""

    def __init__(self, config: Mapping[str, Any], name: str) -> None:
        self.config = config
        self.name = name

    def get(self, key: str, default: Any = None) -> Any:
        return self.config.get(key, default)

    def integer(self, *keys: str, default: int | None = None, low: int = 1) -> int:
        value = self._first(keys, default)
        whole = isinstance(value, int) and not isinstance(value, bool)
        if not whole or value < low:
            raise self._error(keys[0], value, f"a whole number of at least {low}")
        return int(value)

    def number(self, *keys: str, default: float | None = None, positive: bool = True) -> float:
        value = self._first(keys, default)
        real = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not real or not math.isfinite(value) or (positive and value <= 0):
            raise self._error(keys[0], value, "a finite number above 0" if positive else "a finite number")
        return float(value)

    def boolean(self, *keys: str, default: bool) -> bool:
        value = self._first(keys, default)
        if not isinstance(value, bool):
            raise self._error(keys[0], value, "true or false")
        return value

    def optional_id(self, key: str) -> int | None:
        return None if self.get(key) is None else self.integer(key, low=0)

    def dtype(self) -> str:
        value = str(self.get("torch_dtype") or self.get("dtype") or "float32").removeprefix("torch.")
        if value not in DTYPES:
            raise self._error("torch_dtype", value, ", ".join(DTYPES))
        return value

    def refuse(self, key: str, allowed: Any, *, unless: bool) -> None:
        """Refuse a feature by name unless the condition holds."""
        if not unless:
            raise UnsupportedError(
                f"config field {key}",
                found=repr(self.get(key)),
                allowed=str(allowed),
                remedy="No published checkpoint uses this feature; rlt-hw does not run it.",
                code=Code.MODEL_FEATURE,
            )

    def only(self, key: str, *allowed: Any) -> None:
        """Refuse every value of a field but these (an absent field passes)."""
        if key in self.config:
            names = " or ".join(json.dumps(value) for value in allowed)
            self.refuse(key, names, unless=any(_same(self.get(key), value) for value in allowed))

    def _first(self, keys: tuple[str, ...], default: Any) -> Any:
        for key in keys:
            if self.config.get(key) is not None:
                return self.config[key]
        if default is None:
            raise self._error(keys[0], None, "a value: the field is missing")
        return default

    def _error(self, key: str, found: Any, allowed: str) -> ConfigError:
        return ConfigError(
            f"config field {key} of {self.name or 'the model'}",
            found=repr(found),
            allowed=allowed,
            remedy="Restore config.json from the published checkpoint.",
        )


def _same(found: Any, allowed: Any) -> bool:
    return type(found) is type(allowed) and bool(found == allowed)


def _read_json(path: Path) -> Mapping[str, Any]:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise CheckpointError(
            str(path), found=str(error), allowed="readable JSON", remedy="Download the file again."
        ) from error
    if not isinstance(data, dict):
        raise CheckpointError(str(path), found=type(data).__name__, allowed="a JSON object")
    return data


def _no_rope_scaling(fields: _Fields) -> None:
    scaling = fields.get("rope_scaling")
    kind = scaling.get("rope_type", scaling.get("type")) if isinstance(scaling, dict) else scaling
    fields.refuse("rope_scaling", "null or type default", unless=kind in (None, "default"))


def _heads(fields: _Fields) -> tuple[int, int, int, int]:
    """(hidden, heads, kv_heads, head_dim), checked against each other."""
    hidden = fields.integer("hidden_size")
    heads = fields.integer("num_attention_heads")
    kv_heads = fields.integer("num_key_value_heads", default=heads)
    head_dim = fields.integer("head_dim", "kv_channels", default=hidden // heads or None)
    if heads % kv_heads:
        raise fields._error("num_key_value_heads", kv_heads, f"a divisor of num_attention_heads {heads}")
    if head_dim % 2:
        raise fields._error("head_dim", head_dim, "an even number (rotary pairs)")
    return hidden, heads, kv_heads, head_dim


def _attention_weights(hidden: int, heads: int, kv_heads: int, head_dim: int) -> int:
    return 2 * hidden * heads * head_dim + 2 * hidden * kv_heads * head_dim


def _ouro(fields: _Fields) -> ModelSpec:
    fields.only("hidden_act", "silu")
    fields.only("use_sliding_window", False, None)
    fields.only("attention_bias", False, None)
    _no_rope_scaling(fields)
    kinds = fields.get("layer_types") or ["full_attention"]
    fields.refuse("layer_types", "full_attention only", unless=set(kinds) == {"full_attention"})
    hidden, heads, kv_heads, head_dim = _heads(fields)
    intermediate, vocab = fields.integer("intermediate_size"), fields.integer("vocab_size")
    layers, tied = fields.integer("num_hidden_layers"), fields.boolean("tie_word_embeddings", default=False)
    block = _attention_weights(hidden, heads, kv_heads, head_dim) + 3 * hidden * intermediate + 4 * hidden
    gate = hidden + 1
    return ModelSpec(
        family="ouro",
        name=fields.name,
        hidden_size=hidden,
        intermediate_size=intermediate,
        vocab_size=vocab,
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=head_dim,
        prelude_layers=0,
        recurrent_layers=layers,
        coda_layers=0,
        loops=fields.integer("total_ut_steps"),
        max_context=fields.integer("max_position_embeddings"),
        norm_eps=fields.number("rms_norm_eps"),
        rope=Rope(fields.number("rope_theta")),
        tie_embeddings=tied,
        dtype=fields.dtype(),
        parameters=layers * block + (1 if tied else 2) * vocab * hidden + hidden + gate,
        exit_rules=("gate", "gate-delayed"),
        exit_threshold=fields.number("early_exit_threshold", default=1.0, positive=False),
        kv_layouts=("last_exited", "full", "shared", "ring", "anchor"),
        fixed_from=1.0,
        stop_token_ids=(0, 2),
        stop_texts=("<|endoftext|>", "<|im_end|>"),
        begin_text="",
        bos_token_id=fields.optional_id("bos_token_id"),
        pad_token_id=0,
    )


_NANBEIGE_OFF = (
    "enable_double_loop_split",
    "enable_hyper_connection",
    "enable_mhc",
    "enable_depth_attention",
    "loop_share_kv",
    "ngram_insert_all_layers",
)


def _nanbeige(fields: _Fields) -> ModelSpec:
    fields.only("hidden_act", "silu")
    for key in (*_NANBEIGE_OFF, "attention_bias", "mlp_bias"):
        fields.only(key, False, None)
    for key in ("emb_neighbor_num", "emb_split_num"):
        fields.only(key, None)
    fields.refuse("insert_ngram_layer_idx", "empty", unless=not fields.get("insert_ngram_layer_idx"))
    fields.only("pretraining_tp", 1)
    _no_rope_scaling(fields)
    hidden, heads, kv_heads, head_dim = _heads(fields)
    intermediate, vocab = fields.integer("intermediate_size"), fields.integer("vocab_size")
    layers, tied = fields.integer("num_hidden_layers"), fields.boolean("tie_word_embeddings", default=False)
    qk_norm = fields.boolean("qk_layernorm", default=False)
    loss_weights = fields.get("loop_loss_weights") or []
    block = _attention_weights(hidden, heads, kv_heads, head_dim) + 3 * hidden * intermediate
    block += 2 * hidden + (2 * head_dim if qk_norm else 0)
    eos = fields.optional_id("eos_token_id")
    return ModelSpec(
        family="nanbeige",
        name=fields.name,
        hidden_size=hidden,
        intermediate_size=intermediate,
        vocab_size=vocab,
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=head_dim,
        prelude_layers=0,
        recurrent_layers=layers,
        coda_layers=0,
        loops=len(loss_weights) + 1 if loss_weights else fields.integer("num_loops"),
        max_context=fields.integer("max_position_embeddings"),
        norm_eps=fields.number("rms_norm_eps"),
        rope=Rope(fields.number("rope_theta")),
        tie_embeddings=tied,
        dtype=fields.dtype(),
        parameters=layers * block + (1 if tied else 2) * vocab * hidden + hidden,
        qk_norm=qk_norm,
        norm_every_loop=not fields.boolean("skip_loop_final_norm", default=False),
        stop_token_ids=() if eos is None else (eos,),
        bos_token_id=fields.optional_id("bos_token_id"),
        pad_token_id=fields.optional_id("pad_token_id"),
    )


HUGINN_EXITS = {
    "latent-diff": 0.03,
    "cosine": 1e-3,
    "entropy-diff": 1e-3,
    "kl": 1e-3,
    "minp-kl": 1e-5,
    "argmax-stability": 5.0,
}
"""Huginn's exit criteria with their published thresholds."""


def _huginn(fields: _Fields) -> ModelSpec:
    fields.only("injection_type", "linear")
    fields.only("state_init", "like-init")
    fields.only("nonlin_name", "SiLU")
    fields.only("bias", False)
    fields.only("block_class_name", "SandwichBlock")
    fields.only("norm_class_name", "RMSNorm_llama")
    fields.only("mlp_class_name", "GatedMLP")
    hidden = fields.integer("n_embd", "hidden_size")
    heads = fields.integer("n_heads", "num_attention_heads")
    fields.only("num_key_value_heads", heads, None)
    if hidden % heads or hidden // heads % 2:
        raise fields._error("n_heads", heads, f"a divisor of n_embd {hidden} that leaves an even head size")
    head_dim = hidden // heads
    fields.only("head_dim", head_dim, None)
    intermediate, vocab = (
        fields.integer("intermediate_size"),
        fields.integer("padded_vocab_size", "vocab_size"),
    )
    prelude = fields.integer("n_layers_in_prelude")
    core = fields.integer("n_layers_in_recurrent_block")
    coda = fields.integer("n_layers_in_coda")
    tied, qk_bias = (
        fields.boolean("tie_embeddings", "tie_word_embeddings", default=True),
        fields.boolean("qk_bias", default=True),
    )
    block = _attention_weights(hidden, heads, heads, head_dim) + 3 * hidden * intermediate + 4 * hidden
    block += 2 * heads * head_dim if qk_bias else 0
    parameters = (prelude + core + coda) * block + (1 if tied else 2) * vocab * hidden
    parameters += 2 * hidden * hidden + hidden
    context = fields.integer("block_size", "max_position_embeddings")
    return ModelSpec(
        family="huginn",
        name=fields.name,
        hidden_size=hidden,
        intermediate_size=intermediate,
        vocab_size=vocab,
        num_heads=heads,
        num_kv_heads=heads,
        head_dim=head_dim,
        prelude_layers=prelude,
        recurrent_layers=core,
        coda_layers=coda,
        loops=fields.integer("mean_recurrence"),
        max_context=context,
        norm_eps=fields.number("norm_eps"),
        rope=Rope(fields.number("rope_base"), interleaved=True),
        tie_embeddings=tied,
        dtype=fields.dtype(),
        parameters=parameters,
        qk_bias=qk_bias,
        norm_every_loop=False,
        kv_layouts=("last_exited", "full", "shared", "ring", "anchor"),
        random_start=True,
        exit_rules=tuple(HUGINN_EXITS),
        exit_defaults=HUGINN_EXITS,
        stop_token_ids=(65504, 65505, 65508),
        stop_texts=("<|begin_text|>", "<|end_text|>", "<|end_turn|>"),
        begin_text="<|begin_text|>",
        stored_parameters=parameters + vocab * hidden + context * head_dim,
        stored_dtype="float32",
        bos_token_id=65504,
        pad_token_id=65509,
    )


_FAMILIES: dict[str, Callable[[_Fields], ModelSpec]] = {
    "ouro": _ouro,
    "nanbeige": _nanbeige,
    "huginn_raven": _huginn,
}
