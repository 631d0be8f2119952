"""Runs the Triton attention on the CPU in Triton's interpreter; a process of its own sets it up.

    TRITON_INTERPRET=1 python -m tests.backends.kernels.interpret DIM HEADS KV_HEADS PAGE DTYPE

Prints the largest error against the float64 answer. bfloat16 is left to the compiler: the interpreter's
arithmetic on it is wrong.
"""

from __future__ import annotations

import sys

import torch

from rlt_hw.backends.attention.triton_paged import TritonPaged
from rlt_hw.verify.conformance.batches import MIXED, attend, paged_batch


def main() -> None:
    dim, heads, kv_heads, page = map(int, sys.argv[1:5])
    dtype = getattr(torch, sys.argv[5])
    paged = paged_batch(
        MIXED, heads=heads, kv_heads=kv_heads, head_dim=dim, page_size=page, dtype=dtype, planes=3, seed=dim
    )
    print(float((attend(TritonPaged, paged).double() - paged.expected()).abs().max()))


if __name__ == "__main__":
    main()
