"""Which conformance cases are about which feature of a backend. No torch: the support matrix reads it too."""

from __future__ import annotations

FEATURES = {
    "prefill, page edges": "prefill",
    "prefill, long context": "prefill",
    "decode, page edges": "decode",
    "decode, long context": "decode",
    "decode, many rows": "decode",
    "graph replay after growth": "graph",
    "the same to the bit in any batch": "batch_invariant",
}
"""The others are about no feature, but must not fail."""
