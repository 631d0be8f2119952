"""Whether an operator reads pages as its adapter says, asked of the device itself with a few tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlt_hw.backends.attention.interface import Attention, AttentionBatch, AttentionGeometry
from rlt_hw.reasons import Code, Rejection

if TYPE_CHECKING:
    import torch

ROWS = ((1, 20), (5, 37))
"""(new tokens, context with them): a decode row and a later chunk of a prompt."""
HEADS, KV_HEADS, HEAD_DIM, PAGE, PAGES = 4, 2, 128, 16, 8
TOLERANCE = 1e-2
"""Of float16 results around 1."""


def reads_pages(adapter: type[Attention], backend: str) -> Rejection | None:
    """PKG_VERSION where a batch of grouped heads over pages raises or is not what torch gives."""
    import torch

    from rlt_hw.backends.attention.torch_reference import TorchReference

    try:
        found = _attend(adapter, torch.device("npu"))
    except RuntimeError as error:
        return _refused(backend, str(error))
    apart = float((found - _attend(TorchReference, torch.device("cpu"))).abs().nan_to_num(torch.inf).max())
    return _refused(backend, f"numbers that are {apart:.1e} apart") if apart > TOLERANCE else None


def _attend(adapter: type[Attention], device: torch.device) -> torch.Tensor:
    """float32 on the CPU, the same inputs each time."""
    import numpy as np
    import torch

    generator = torch.Generator().manual_seed(0)
    starts = np.cumsum([0, *(new for new, _ in ROWS)]).astype(np.int32)
    lengths = np.array([context for _, context in ROWS], np.int32)
    table = torch.arange(PAGES - 1, -1, -1, dtype=torch.int32).view(len(ROWS), -1)
    batch = AttentionBatch(
        query_start=torch.from_numpy(starts).to(device),
        seq_lens=torch.from_numpy(lengths).to(device),
        page_table=table.to(device),
        query_start_host=starts,
        seq_lens_host=lengths,
        max_query=max(new for new, _ in ROWS),
        max_seq=int(lengths.max()),
    )
    query, keys, values = (
        torch.randn(shape, generator=generator).half().to(device)
        for shape in ((int(starts[-1]), HEADS, HEAD_DIM), *[(PAGES, PAGE, KV_HEADS, HEAD_DIM)] * 2)
    )
    attention = adapter(
        AttentionGeometry(
            HEADS, KV_HEADS, HEAD_DIM, PAGE, HEAD_DIM**-0.5, torch.float16, device,
            max_rows=len(ROWS), max_tokens=int(starts[-1]), max_pages_per_row=table.shape[1],
        )
    )  # fmt: skip
    out = torch.full_like(query, torch.nan)
    attention.prepare(batch)
    attention.attend(query, keys, values, out)
    return out.cpu().float()


def _refused(backend: str, found: str) -> Rejection:
    return Rejection(
        Code.PKG_VERSION,
        backend,
        f"packed rows over pages give {found}",
        "a CANN whose fused attention reads pages in the layout TND (vllm-ascend uses it with 9.1.0)",
        "Update CANN, or leave attention at auto.",
    )
