"""What fits: weights, working memory and KV of one device, by arithmetic. Needs no torch and no device.

Tensor parallelism splits the matrices of the layers and the KV heads; embedding, head and norms are on
every device.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from rlt_hw.models.spec import KVLayout, ModelSpec
from rlt_hw.reasons import Code, Rejection

ITEMSIZE = {"float32": 4, "bfloat16": 2, "float16": 2}
KV_SHARE = {"cpu": 0.4}
DEFAULT_KV_SHARE = 0.85
"""Part of the memory left after weights and working memory that the KV pool may take.
The CPU's memory is shared with everything else on the machine."""


@dataclass(frozen=True)
class MemoryPlan:
    """Bytes on each device, and what they hold.

    total: the device's memory, None where it is not known. checkpoint: the published files, on disk.
    weights, working: in the engine's dtype, for max_batched_tokens in flight.
    kv_per_token: over all planes. page_bytes: one page over all planes. planes: over all layers.
    blocks_per_request: planes times the pages of one request of `context` tokens.
    kv_pool: bytes the pool may take. pages, tokens, sequences: what the pool holds, sequences of
    `context` tokens; all None where `total` is.
    """

    total: int | None
    checkpoint: int
    weights: int
    working: int
    kv_per_token: int
    page_size: int
    page_bytes: int
    planes: int
    context: int
    pages_per_request: int
    blocks_per_request: int
    kv_pool: int | None
    pages: int | None
    tokens: int | None
    sequences: int | None

    @property
    def one_sequence(self) -> int:
        """Bytes that one sequence of `context` tokens needs in all, weights included."""
        return self.weights + self.working + self.pages_per_request * self.page_bytes

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "one_sequence": self.one_sequence}


def plan_memory(
    spec: ModelSpec,
    *,
    layout: KVLayout,
    dtype: str,
    kv_dtype: str,
    page_size: int,
    context: int,
    max_num_seqs: int,
    loops: int | None = None,
    max_batched_tokens: int = 2048,
    tensor_parallel: int = 1,
    total: int | None = None,
    kv_share: float = DEFAULT_KV_SHARE,
) -> MemoryPlan:
    """The plan of one device of `tensor_parallel`. `context` counts prompt and new tokens together.

    The last new token is never read back, so a request of `context` tokens holds context - 1 in the KV.
    """
    groups = spec.kv_groups(layout, loops)
    kv_per_token = spec.kv_bytes_per_token(layout, ITEMSIZE[kv_dtype], loops) // tensor_parallel
    page_bytes = kv_per_token * page_size
    pages_per_request = -(-max(context - 1, 1) // page_size)
    planes = sum(group.layers * group.planes for group in groups)
    weights = weight_bytes(spec, ITEMSIZE[dtype], tensor_parallel)
    working = working_bytes(spec, ITEMSIZE[dtype], max_batched_tokens, max_num_seqs, tensor_parallel)
    pool = None if total is None else max(int((total - weights - working) * kv_share), 0)
    pages = None if pool is None else pool // page_bytes
    return MemoryPlan(
        total=total,
        checkpoint=checkpoint_bytes(spec),
        weights=weights,
        working=working,
        kv_per_token=kv_per_token,
        page_size=page_size,
        page_bytes=page_bytes,
        planes=planes,
        context=context,
        pages_per_request=pages_per_request,
        blocks_per_request=planes * pages_per_request,
        kv_pool=pool,
        pages=pages,
        tokens=None if pages is None else pages * page_size,
        sequences=None if pages is None else pages // pages_per_request,
    )


def weight_bytes(spec: ModelSpec, itemsize: int, tensor_parallel: int = 1) -> int:
    """Weights on one device: every unique parameter once, a tied head with its embedding."""
    everywhere = (1 if spec.tie_embeddings else 2) * spec.vocab_size * spec.hidden_size
    split = spec.parameters - everywhere
    return itemsize * (everywhere + -(-split // tensor_parallel))


def working_bytes(spec: ModelSpec, itemsize: int, tokens: int, rows: int, tensor_parallel: int = 1) -> int:
    """An estimate of activations and logits.

    A token holds its state, the residual, queries with keys and values, attention's output and both
    halves of the gated product; a row holds float32 logits and a copy of them for sampling.
    """
    heads = (2 * spec.num_heads + 2 * spec.num_kv_heads) * spec.head_dim
    per_token = 4 * spec.hidden_size + (heads + 3 * spec.intermediate_size) // tensor_parallel
    return tokens * per_token * itemsize + 2 * rows * spec.vocab_size * 4


def checkpoint_bytes(spec: ModelSpec) -> int:
    """Size of the published tensors."""
    return ITEMSIZE[spec.stored_dtype or spec.dtype] * (spec.stored_parameters or spec.parameters)


def memory_rejection(
    plan: MemoryPlan, spec: ModelSpec, layout: KVLayout, enough_devices: int | None
) -> Rejection | None:
    """MEMORY when one sequence of the context does not fit, with what would; None when it does.

    enough_devices: the smallest tensor parallelism at which it fits, where there is one.
    """
    if plan.total is None or plan.sequences:
        return None
    kv = plan.pages_per_request * plan.page_bytes
    found = (
        f"{_gib(plan.one_sequence)} GiB for one sequence of {plan.context:,} tokens (weights "
        f"{_gib(plan.weights)}, working memory {_gib(plan.working)}, KV {_gib(kv)})"
    )
    allowed = f"{_gib(plan.total)} GiB, of which {_gib(plan.kv_pool or 0)} for KV"
    if plan.tokens:
        ways = [f"a context of {min(plan.tokens + 1, spec.max_context):,} tokens"]
    else:
        ways = ["a device with more memory"]
    if "shared" in spec.kv_layouts and layout != KVLayout.SHARED:
        ways.append("kv_layout='shared', which keeps one plane a layer")
    if enough_devices:
        ways.append(f"tensor_parallel={enough_devices}")
    return Rejection(Code.MEMORY, spec.name or spec.family, found, allowed, f"Use {', or '.join(ways)}.")


def _gib(size: int) -> str:
    return f"{size / 1024**3:.1f}"
