"""Which class computes which family. Importing this module imports no torch."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from rlt_hw.errors import UnsupportedError
from rlt_hw.models.spec import ModelSpec
from rlt_hw.reasons import Code

if TYPE_CHECKING:
    from rlt_hw.models.interface import LoopedModel

_CLASSES = {
    "ouro": "rlt_hw.models.ouro:Ouro",
    "nanbeige": "rlt_hw.models.nanbeige:Nanbeige",
    "huginn": "rlt_hw.models.huginn:Huginn",
}


def model_class(spec: ModelSpec) -> type[LoopedModel]:
    """The model class of a spec's family; UnsupportedError while the family has none."""
    if spec.family not in _CLASSES:
        raise UnsupportedError(
            f"model family {spec.family}",
            found=spec.name or spec.family,
            allowed=", ".join(_CLASSES),
            remedy="This family can be planned for, but not run yet.",
            code=Code.MODEL_FEATURE,
        )
    module, _, name = _CLASSES[spec.family].partition(":")
    cls: type[LoopedModel] = getattr(import_module(module), name)
    return cls
