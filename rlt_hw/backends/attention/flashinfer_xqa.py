"""FlashInfer's XQA decode kernels: the ones of that package that are right at head_dim 96."""

from __future__ import annotations

from rlt_hw.registry import BackendSpec, Kind, Rank, Requirement, Sizes, Toolkit

SPEC = BackendSpec(
    kind=Kind.ATTENTION,
    name="flashinfer_xqa",
    adapter="rlt_hw.backends.attention.flashinfer_xqa:FlashInferXqa",
    summary="FlashInfer XQA paged decode",
    targets=("nvidia:sm90", "nvidia:sm100", "nvidia:sm103", "nvidia:sm120", "nvidia:sm121"),
    dtypes=("bfloat16", "float16"),
    head_dims=Sizes(values=(96, 128)),
    page_sizes=Sizes(values=(16, 32, 64, 128)),
    preferred_page=16,
    phases=("decode",),
    graph_levels=("none", "piecewise", "full"),
    requirements=(Requirement("flashinfer-python", ">=0.7", "flashinfer"),),
    toolkits=(Toolkit("nvcc"), Toolkit("cxx")),
    ranks=(
        Rank("nvidia:sm90", 70, "6 to 24% behind Triton's paged decode in 8 of 10 cases on an H200 (0.7.4)"),
        Rank("nvidia:*", 70, "as on nvidia:sm90; not measured here"),
    ),
)
