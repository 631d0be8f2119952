"""What every backend with Triton kernels needs: the package, and a compiler for its launchers."""

from __future__ import annotations

from rlt_hw.registry import Requirement, Toolkit

REQUIREMENT = Requirement("triton", ">=3.4", "triton", also=("triton-rocm", "pytorch-triton-rocm"))
TOOLKIT = Toolkit("cxx")
