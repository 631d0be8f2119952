"""From a checkpoint folder to a model that runs."""

from __future__ import annotations

from pathlib import Path

import torch

from rlt_hw.backends.operators.interface import Operators
from rlt_hw.errors import ConfigError
from rlt_hw.models.families import model_class
from rlt_hw.models.interface import LoopedModel
from rlt_hw.models.spec import ModelSpec
from rlt_hw.models.weights import dummy_weights, load_weights

LOAD_FORMATS = ("auto", "dummy")


def load_model(
    spec: ModelSpec,
    folder: Path | None,
    *,
    dtype: torch.dtype,
    device: torch.device,
    operators: Operators,
    load_format: str = "auto",
    seed: int = 0,
    progress: bool = False,
) -> LoopedModel:
    """Read the weights of `folder`, or with load_format "dummy" draw random ones of its shapes.

    Never holds two copies of the weights, only of the layer being fused.
    """
    if load_format not in LOAD_FORMATS:
        raise ConfigError("load_format", found=repr(load_format), allowed=" or ".join(LOAD_FORMATS))
    cls = model_class(spec)
    shapes = cls.weight_shapes(spec)
    if load_format == "dummy":
        return cls(spec, dummy_weights(shapes, dtype=dtype, device=device, seed=seed), operators)
    if folder is None:
        raise ConfigError(
            f"model {spec.name}",
            found="a published name without weights",
            allowed="a checkpoint folder, or load_format='dummy'",
            remedy="Download the checkpoint and pass its folder.",
        )
    tied = {"lm_head.weight": cls.embedding_name} if spec.tie_embeddings else {}
    weights = load_weights(
        folder,
        shapes,
        dtype=dtype,
        device=device,
        ignore=cls.ignored_weights,
        tied=tied,
        progress=progress,
    )
    return cls(spec, weights, operators)
