"""What our words may be passed as: the names that vendors give to the same thing.

An argument whose word is listed goes to no other parameter. An argument passed by position must have a
word that is listed, or be a literal: otherwise nothing would show that two of them changed places.
"""

from __future__ import annotations

_LENGTHS = ("seq_lens", "seqused_k", "context_lens", "cache_seqlens")
_STARTS = ("cu_seqlens_q", "qo_indptr", "cu_query_lens")
_WORKSPACE = ("float_workspace_buffer", "workspace_buffer", "workspace")

WORDS: dict[str, tuple[str, ...]] = {
    "query": ("q", "query"),
    "keys": ("k", "key", "k_cache", "key_cache"),
    "values": ("v", "value", "v_cache", "value_cache"),
    "keys, values": ("paged_kv_cache", "kv_cache"),
    "out": ("out", "output"),
    "key": ("key", "k"),
    "value": ("value", "v"),
    "slots": ("slot_mapping", "slot_indices"),
    "mask": ("atten_mask",),
    "ends": ("actual_seq_lengths", "actual_seq_qlen"),
    "lengths": ("actual_seq_lengths_kv", "actual_seq_kvlen", "context_lens"),
    "hidden": ("self", "x1"),
    "branch": ("x2",),
    "x": ("self",),
    "both": ("self",),
    "weight": ("gamma",),
    "cos": ("r1", "cos"),
    "sin": ("r2", "sin"),
    "graph": ("npu_graph",),
    "page_table": ("block_table", "block_tables", "page_table"),
    "seq_lens": _LENGTHS,
    "query_start": _STARTS,
    "starts": _STARTS,
    "key_start": ("cu_seqlens_k",),
    "max_query": ("max_seqlen_q",),
    "max_seq": ("max_seqlen_k", "max_seq_len", "max_context_len"),
    "scale": ("softmax_scale", "sm_scale", "scale", "bmm1_scale", "scale_value"),
    "num_heads": ("num_qo_heads", "num_heads", "num_query_heads", "head_num"),
    "num_kv_heads": ("num_kv_heads", "num_key_value_heads"),
    "head_dim": ("head_dim", "head_dim_qk", "head_size"),
    "page_size": ("page_size", "block_size"),
    "indptr": ("indptr", "paged_kv_indptr", "kv_indptr"),
    "indices": ("indices", "paged_kv_indices", "kv_page_indices"),
    "last_page_len": ("last_page_len", "paged_kv_last_page_len"),
    "work": _WORKSPACE,
    "workspace": _WORKSPACE,
    "dtype": ("q_data_type", "kv_data_type", "data_type"),
}

UNTYPED = {
    **dict.fromkeys(
        ("q", "k", "v", "out", "cu_seqlens_q", "cu_seqlens_k", "seqused_k", "block_table", "page_table"),
        "Tensor",
    ),
    **dict.fromkeys(("q_descale", "k_descale", "v_descale"), "Tensor | None"),
    **dict.fromkeys(("max_seqlen_q", "max_seqlen_k"), "int"),
    **dict.fromkeys(("softmax_scale", "softcap"), "float"),
    "causal": "bool",
    "window_size": "tuple",
    "cpu_update_input": "list",
    **dict.fromkeys(("npu_graph", "pool"), "object"),
}
"""Types of parameters that a vendor leaves without annotation, documentation and telling default; "object"
is one of the vendor's own, which no literal is."""
