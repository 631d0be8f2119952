"""Calls beyond the documented limits of torch_npu's operators."""

from __future__ import annotations

from types import ModuleType

import torch


def refused(torch_npu: ModuleType) -> list[str]:
    """Of calls that the vendor's own checks let through, those that the emulated operators refuse."""
    half = {"dtype": torch.float16, "device": "npu"}
    page_table = torch.zeros(1, 1, dtype=torch.int32, device="npu")
    right = {
        "query": torch.zeros(1, 16, 128, **half), "key": torch.zeros(1, 16, 2048, **half),
        "value": torch.zeros(1, 16, 2048, **half), "num_heads": 16, "num_key_value_heads": 16, "scale": 1.0,
        "input_layout": "TND", "block_size": 16, "block_table": page_table, "actual_seq_lengths": [1],
        "actual_seq_lengths_kv": [1],
    }  # fmt: skip
    narrow = torch.zeros(1, 16, 16 * 96, **half)
    wrong = {
        "num_heads": {"num_heads": 7},
        "key heads": {"num_key_value_heads": 7},
        "block_size": {"block_size": 17},
        "head size": {"query": torch.zeros(1, 16, 96, **half), "key": narrow, "value": narrow},
        "float32": {"query": right["query"].float()},
        "small mask": {"sparse_mode": 3, "atten_mask": torch.zeros(64, 64, dtype=torch.int8, device="npu")},
        "int64 table": {"block_table": page_table.long()},
        "tensor of lengths": {"actual_seq_lengths_kv": torch.ones(1, dtype=torch.int64)},
        "page that is not there": {"block_table": page_table + 1},
    }
    new, cache = torch.zeros(2, 16, 128, **half), torch.zeros(1, 16, 16, 128, **half)
    slots = {"twice": [3, 3], "negative": [-1, 0], "too far": [0, 16]}
    calls = {
        name: (torch_npu.npu_fused_infer_attention_score, {**right, **row}) for name, row in wrong.items()
    }
    for name, row in slots.items():
        calls[name] = (torch_npu.npu_scatter_pa_kv_cache, {
            "key": new, "value": new, "key_cache": cache, "value_cache": cache, "cache_mode": "Norm",
            "slot_mapping": torch.tensor(row, device="npu"),
        })  # fmt: skip
    torch_npu.npu_fused_infer_attention_score(**right)
    return [name for name, (operator, given) in calls.items() if _raises(operator, given)]


def _raises(operator, given) -> bool:
    try:
        operator(**given)
    except AssertionError:
        return True
    return False
