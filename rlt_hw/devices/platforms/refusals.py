"""Refusals that more than one platform gives."""

from __future__ import annotations

from rlt_hw.reasons import Code, Rejection


def torch_missing() -> Rejection | None:
    """Why torch does not import here, or None when it does."""
    try:
        import torch  # noqa: F401
    except ModuleNotFoundError as error:
        return Rejection(Code.PKG_MISSING, "torch", str(error), "torch >= 2.8", "`pip install 'torch>=2.8'`")
    except (ImportError, OSError, RuntimeError) as error:
        return Rejection(Code.PKG_BROKEN, "torch", str(error), "a torch that imports", "See `rlt-hw doctor`.")
    return None


def no_device(name: str, found: str) -> Rejection:
    return Rejection(
        Code.VISIBILITY, name, found, "at least one device that torch sees", "See `rlt-hw doctor`."
    )
