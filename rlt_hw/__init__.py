"""Looped transformers on the accelerator that is here, with a reason for every choice.

    from rlt_hw import Engine, SamplingParams

    with Engine("demo:ouro") as engine:
        print(engine.generate("Q: ...", SamplingParams(exit_threshold=0.5))[0].text)

Names are loaded when they are first used: importing rlt_hw imports neither torch nor numpy.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rlt_hw.errors import (
        CapacityError,
        CheckpointError,
        ConfigError,
        PluginError,
        RltHwError,
        UnsupportedError,
    )
    from rlt_hw.runtime.async_engine import AsyncEngine
    from rlt_hw.runtime.engine import Engine
    from rlt_hw.runtime.outputs import RequestOutput
    from rlt_hw.runtime.planning import plan
    from rlt_hw.runtime.probing import probe
    from rlt_hw.runtime.sampling_params import SamplingParams

__version__ = "0.1.0.dev0"

__all__ = [
    "AsyncEngine",
    "CapacityError",
    "CheckpointError",
    "ConfigError",
    "Engine",
    "PluginError",
    "RequestOutput",
    "RltHwError",
    "SamplingParams",
    "UnsupportedError",
    "__version__",
    "plan",
    "probe",
]

_MODULES = {
    "AsyncEngine": "rlt_hw.runtime.async_engine",
    "Engine": "rlt_hw.runtime.engine",
    "RequestOutput": "rlt_hw.runtime.outputs",
    "SamplingParams": "rlt_hw.runtime.sampling_params",
    "plan": "rlt_hw.runtime.planning",
    "probe": "rlt_hw.runtime.probing",
}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'rlt_hw' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_MODULES.get(name, "rlt_hw.errors")), name)
    return value


def __dir__() -> list[str]:
    return __all__
