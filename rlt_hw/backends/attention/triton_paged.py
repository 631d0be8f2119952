"""Paged attention in Triton, for NVIDIA and AMD: split-KV decode and causal prefill over pages."""

from __future__ import annotations

from rlt_hw.registry import BackendSpec, Kind, Rank, Requirement, Sizes, Toolkit

SPEC = BackendSpec(
    kind=Kind.ATTENTION,
    name="triton_paged",
    adapter="rlt_hw.backends.attention.triton_paged:TritonPaged",
    summary="paged decode and prefill in Triton",
    # Not nvidia:sm110: Triton 3.6 cannot target it.
    targets=(
        "nvidia:sm80",
        "nvidia:sm86",
        "nvidia:sm87",
        "nvidia:sm89",
        "nvidia:sm90",
        "nvidia:sm100",
        "nvidia:sm103",
        "nvidia:sm120",
        "nvidia:sm121",
        "amd:gfx90a",
        "amd:gfx942",
        "amd:gfx950",
        "amd:gfx1100",
        "amd:gfx1101",
        "amd:gfx1151",
        "amd:gfx1200",
        "amd:gfx1201",
    ),
    head_dims=Sizes(multiple=16, high=256),
    page_sizes=Sizes(values=(1,), multiple=16),
    preferred_page=16,
    graph_levels=("none", "piecewise", "full"),
    requirements=(
        Requirement("triton", ">=3.4", "triton", also=("triton-rocm", "pytorch-triton-rocm")),
    ),
    toolkits=(Toolkit("cxx"),),
    ranks=(
        Rank("nvidia:sm90", 90, "fastest paged decode on an H200 in 7 of 10 cases (torch 2.11, triton 3.6)",
             phases=("decode",)),
        Rank("nvidia:sm90", 60, "185 to 258 TFLOP/s of varlen prefill on an H200", phases=("prefill",)),
        Rank("nvidia:*", 90, "as on nvidia:sm90; not measured here", phases=("decode",)),
        Rank("nvidia:*", 60, "as on nvidia:sm90; not measured here", phases=("prefill",)),
        Rank("amd:*", 60, "not measured"),
    ),
)  # fmt: skip
