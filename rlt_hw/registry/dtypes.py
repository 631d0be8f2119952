"""Which dtype an engine computes and caches in, and why."""

from __future__ import annotations

from rlt_hw.devices.facts import TargetFacts, facts
from rlt_hw.devices.target import Target
from rlt_hw.registry.decision import Derived
from rlt_hw.registry.need import AUTO, Need


def settle_dtypes(target: Target, need: Need) -> tuple[Derived, Derived]:
    """(dtype, kv_dtype). What the user set is kept as it is, even where it will be refused.

    On accelerators the config's dtype, except for float32, which their matrix units do not run at
    full rate, and for bfloat16 where there is none. On the CPU float32, which is exact and the fast
    type of most of them.
    """
    dtype = Derived(need.dtype, "set by the user") if need.dtype != AUTO else _dtype(target, need.model_dtype)
    if need.kv_dtype != AUTO:
        return dtype, Derived(need.kv_dtype, "set by the user")
    return dtype, Derived(dtype.value, "the same as dtype")


def _dtype(target: Target, config: str) -> Derived:
    known = facts(target)
    if target.vendor in ("cpu", "emulated"):
        return Derived("float32", f"the default on the CPU (the config says {config})")
    fast = "bfloat16" if not isinstance(known, TargetFacts) or known.bfloat16 else "float16"
    if config in {"float16", fast}:
        return Derived(config, "from the model's config")
    why = "is not its fast type" if config == "float32" else "is not available there"
    return Derived(fast, f"the fast type of {target} ({config}, the config's, {why})")
