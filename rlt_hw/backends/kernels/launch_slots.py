"""Launch of the slot copy on torch tensors."""

from __future__ import annotations

import torch

from rlt_hw.backends.kernels.slots import copy_slots_kernel


def copy_slots(cache: torch.Tensor, source: torch.Tensor, target: torch.Tensor) -> None:
    """See `rlt_hw.backends.operators.interface.Operators.copy_slots`."""
    layers, _, _, kv_heads, head_dim = cache.shape
    if target.numel():
        copy_slots_kernel[(target.numel(), layers)](
            cache,
            source,
            target,
            cache.stride(0),
            target.shape[1],
            WIDTH=kv_heads * head_dim,
            BLOCK=1024,
            num_warps=4,
        )
