"""Ascend chips. They have neither waves nor shared memory of a block: a kernel is tiled by its compiler."""

from __future__ import annotations

from rlt_hw.devices.facts.record import Bandwidth, TargetFacts
from rlt_hw.devices.target import Target

_GUIDE = "CANN product support tables; torch_npu SoC ids (220-225, 250-255, 200-205, 260)"


def _ascend(
    arch: str,
    products: tuple[str, ...],
    aliases: tuple[str, ...],
    bandwidth: Bandwidth | None = None,
    bfloat16: bool = True,
    fp8: str | None = None,
    graph: str = "acl_graph",
) -> TargetFacts:
    return TargetFacts(
        Target("ascend", arch),
        products,
        _GUIDE,
        aliases,
        bandwidth=bandwidth,
        bfloat16=bfloat16,
        fp8=fp8,
        graph=graph,
        communication="hccl",
        torch_device="npu",
    )


TARGETS = (
    _ascend("910b", ("Atlas 800T A2", "Atlas 800I A2"), ("910b", "ascend910b", "atlas800ia2", "atlas800ta2")),
    _ascend("910_93", ("Atlas 800T A3", "Atlas 900 A3 SuperPoD"),
            ("910c", "ascend910c", "91093", "atlas800ia3", "atlas800ta3"),
            Bandwidth(1600, "Ascend 910C, one die", "Huawei CloudMatrix384 paper, arXiv:2506.12708")),
    _ascend("310p", ("Atlas 300I Duo", "Atlas 300I Pro"), ("310p", "ascend310p", "atlas300iduo"),
            Bandwidth(204.8, "Atlas 300I Pro", "Huawei Atlas 300I Pro data sheet"),
            bfloat16=False, graph="none"),
    _ascend("950", ("Ascend 950PR", "Ascend 950DT"), ("950", "ascend950", "ascend950pr", "ascend950dt"),
            Bandwidth(1600, "Ascend 950PR", "Huawei Connect 2025 keynote, Ascend roadmap"), fp8="e4m3fn"),
)  # fmt: skip

UNSUPPORTED = {
    "310": "Ascend 310 (Atlas 200/300)",
    "310b": "Ascend 310B (Atlas 200I A2)",
    "910": "the first-generation Ascend 910",
    "910a": "the first-generation Ascend 910A",
    "910proa": "the first-generation Ascend 910 ProA",
    "910prob": "the first-generation Ascend 910 ProB",
    "910premiuma": "the first-generation Ascend 910 PremiumA",
}
