"""What the attention adapters for Ascend share: limits of the operator, and its mask.

Limits are those of torch_npu 2.13.0 (`_op_plugin_docs.py`, npu_fused_infer_attention_score and its v2) for
Atlas A2 and A3. The operator checks few of them, and block ids not at all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlt_hw.errors import CapacityError, ConfigError
from rlt_hw.reasons import Code, Rejection
from rlt_hw.registry import Need

if TYPE_CHECKING:
    import torch

    from rlt_hw.backends.attention.interface import AttentionBatch, AttentionGeometry

MAX_WIDTH = 65_535
MAX_HEADS = 256
MAX_ROWS = 4_096
MAX_ELEMENTS = 2**31 - 1
MASK_SIZE = 2_048
RIGHT_ALIGNED = 3
"""The sparse_mode in which the last query sees every key."""


def too_wide(backend: str, need: Need) -> Rejection | None:
    """RESOURCE where a page's row of keys, (blocks, block, heads * head_dim), is too wide."""
    heads = need.num_kv_heads // need.tensor_parallel
    if heads * need.head_dim <= MAX_WIDTH:
        return None
    return _resource(backend, f"{heads} KV heads of {need.head_dim}", f"at most {MAX_WIDTH} values a token")


def too_many_heads(backend: str, need: Need) -> Rejection | None:
    heads = need.num_heads // need.tensor_parallel
    return _resource(backend, f"{heads} heads", f"at most {MAX_HEADS}") if heads > MAX_HEADS else None


def check_rows(geometry: AttentionGeometry) -> None:
    """Raises ConfigError where a batch could have more rows than one call takes."""
    if geometry.max_rows > MAX_ROWS:
        raise ConfigError("max_num_seqs", found=str(geometry.max_rows), allowed=f"at most {MAX_ROWS}")


def check_elements(cache: torch.Tensor) -> None:
    """Raises CapacityError where a layer's keys have more elements than the operator counts."""
    if cache.numel() > MAX_ELEMENTS:
        raise CapacityError(
            "KV cache",
            found=f"{cache.numel():,} elements of a layer's keys",
            allowed=f"at most {MAX_ELEMENTS:,}",
            remedy="Lower kv_cache_bytes or max_loops.",
            code=Code.MEMORY,
        )


def causal_mask(device: torch.device) -> torch.Tensor:
    """int8 [2048, 2048], 1 above the diagonal: what sparse modes 2 to 4 ask for, whatever the lengths."""
    import torch

    return torch.ones(MASK_SIZE, MASK_SIZE, dtype=torch.int8).triu_(1).to(device)


def block_table(batch: AttentionBatch, page_size: int) -> torch.Tensor:
    """int32 [rows, pages], contiguous, with page 0 behind a row's last page: ids are not checked."""
    import torch

    table = batch.page_table
    first = torch.arange(0, table.shape[1] * page_size, page_size, device=table.device)
    return torch.where(first < batch.seq_lens[:, None], table, 0).contiguous()


def _resource(backend: str, found: str, allowed: str) -> Rejection:
    return Rejection(
        Code.RESOURCE, backend, found, allowed, "Raise tensor_parallel, or name another backend."
    )
