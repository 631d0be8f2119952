"""FlashInfer's paged decode and prefill (its FA2 kernels), compiled for the device when first used."""

from __future__ import annotations

from rlt_hw.registry import BackendSpec, Kind, Rank, Requirement, Sizes, Toolkit

SPEC = BackendSpec(
    kind=Kind.ATTENTION,
    name="flashinfer",
    adapter="rlt_hw.backends.attention.flashinfer:FlashInfer",
    summary="FlashInfer paged decode and prefill",
    targets=(
        "nvidia:sm80",
        "nvidia:sm86",
        "nvidia:sm89",
        "nvidia:sm90",
        "nvidia:sm100",
        "nvidia:sm103",
        "nvidia:sm120",
        "nvidia:sm121",
    ),
    dtypes=("bfloat16", "float16"),
    # 96 compiles and then faults with an illegal memory access (0.7.4 on an H200).
    head_dims=Sizes(values=(64, 128, 256)),
    preferred_page=16,
    graph_levels=("none", "piecewise", "full"),
    requirements=(Requirement("flashinfer-python", ">=0.7", "flashinfer"),),
    toolkits=(Toolkit("nvcc"), Toolkit("cxx")),
    ranks=(
        Rank("nvidia:sm90", 80, "paged decode within 16% of Triton's on an H200 (0.7.4)", phases=("decode",)),
        Rank("nvidia:sm90", 70, "217 to 310 TFLOP/s of varlen prefill on an H200 (0.7.4, fa2)",
             phases=("prefill",)),
        Rank("nvidia:*", 80, "as on nvidia:sm90; not measured here", phases=("decode",)),
        Rank("nvidia:*", 70, "as on nvidia:sm90; not measured here", phases=("prefill",)),
    ),
)  # fmt: skip
