"""A scheduler and a runner over one model, without the engine around them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from rlt_hw.backends.attention.interface import AttentionGeometry
from rlt_hw.backends.attention.torch_reference import TorchReference
from rlt_hw.backends.attention.torch_sdpa import TorchSdpa
from rlt_hw.backends.graphs.eager import Eager
from rlt_hw.backends.kv.interface import KVGeometry
from rlt_hw.backends.kv.paged import PagedKV
from rlt_hw.devices.platforms.cpu import CpuPlatform
from rlt_hw.models.interface import LoopedModel
from rlt_hw.models.spec import KVLayout
from rlt_hw.runtime.attention import PhasedAttention
from rlt_hw.runtime.decoding import Decoding, Ticket
from rlt_hw.runtime.kv_manager import KVManager
from rlt_hw.runtime.request import Request
from rlt_hw.runtime.runner import Runner
from rlt_hw.runtime.sampler import Sampler
from rlt_hw.runtime.scheduler import Scheduler, SchedulerConfig
from tests.models.golden import OPERATORS

CPU = torch.device("cpu")


@dataclass
class Output:
    ids: list[int] = field(default_factory=list)
    depths: list[int] = field(default_factory=list)
    logprobs: list[np.ndarray] = field(default_factory=list)
    reason: str | None = None


@dataclass
class Parts:
    model: LoopedModel
    scheduler: Scheduler
    runner: Runner
    cache: PagedKV

    free_steps: int = 0

    def run(self, requests: list[Request], cancel: dict[int, str] | None = None) -> dict[str, Output]:
        """Run requests to their end; no page may be held afterwards. cancel: a request at a step."""
        outputs = {request.request_id: Output() for request in requests}
        for request in requests:
            self.scheduler.add(request)
        ticket, step = None, 0
        while True:
            step += 1
            if cancel and step in cancel:
                self.scheduler.cancel(cancel[step])
            if ticket is None:
                plan = self.scheduler.plan()
                if plan is None:
                    break
                ticket = self.runner.launch(plan)
            plan, result, ticket = ticket.plan, ticket.result, self._ahead(ticket)
            result = result()
            for emission in self.scheduler.apply(plan, result):
                output = outputs[emission.request.request_id]
                output.ids.append(emission.token)
                output.depths.append(emission.depth)
                output.reason = emission.reason
                if result.logprobs and emission.row in result.logprobs:
                    _, ids, values = result.logprobs[emission.row]
                    output.logprobs.append(values[np.argsort(ids)])
        self.scheduler.kv.check()
        assert self.scheduler.kv.free_pages == self.scheduler.kv.num_pages
        return outputs

    def _ahead(self, ticket: Ticket) -> Ticket | None:
        """The step after a free one, launched before its results are looked at."""
        if not ticket.free:
            return None
        self.free_steps += 1
        following = self.scheduler.plan_ahead(ticket.plan)
        return None if following is None else self.runner.launch(following)


def build(
    model: LoopedModel,
    layout: KVLayout,
    *,
    attention: type = TorchSdpa,
    num_pages: int = 256,
    page_size: int = 4,
    max_num_seqs: int = 8,
    max_batched_tokens: int = 64,
    max_model_len: int = 128,
    loops: int | None = None,
    poison: bool = True,
    split_phases: bool = False,
    free: bool = False,
    stop_ids: frozenset[int] = frozenset(),
    **config: Any,
) -> Parts:
    """`poison` fills the cache with NaN first: whatever reads an unwritten slot shows it.

    free: decode steps run by themselves where they can, as with a captured graph.
    """
    spec = model.spec
    geometry = KVGeometry(spec.kv_groups(layout, loops), num_pages, page_size, torch.float32, CPU)
    cache = PagedKV(geometry)
    if poison:
        for pair in cache._tensors.values():
            for tensor in pair:
                tensor.fill_(float("nan"))

    def backend() -> Any:
        return attention(_geometry(model, page_size, max_num_seqs, max_batched_tokens, max_model_len))

    decode = backend()
    phased = PhasedAttention(backend() if split_phases else decode, decode)
    sampler = Sampler(stop_ids, CPU)
    decoding = Decoding(
        model,
        cache,
        geometry,
        layout,
        TorchReference(_geometry(model, page_size, max_num_seqs, max_batched_tokens, max_model_len)),
        OPERATORS,
        graph=Eager(CPU),
        platform=CpuPlatform(),
        sampler=sampler,
        max_rows=max_num_seqs,
        max_pages=-(-max_model_len // page_size),
        refill=config.get("refill", True),
    )
    runner = Runner(model, cache, geometry, layout, phased, OPERATORS, sampler, decoding if free else None)
    kv = KVManager(
        num_pages=num_pages, page_size=page_size, max_rows=max_num_seqs, max_tokens_per_row=max_model_len
    )
    settings = SchedulerConfig(
        max_num_seqs=max_num_seqs,
        max_batched_tokens=max_batched_tokens,
        max_model_len=max_model_len,
        selects_output=layout == KVLayout.FULL,
        sequential=layout == KVLayout.SHARED,
        whole_prompt=layout.whole_prompt,
        **config,
    )
    return Parts(model, Scheduler(settings, kv, stop_ids=stop_ids), runner, cache)


def _geometry(model: LoopedModel, page_size: int, rows: int, tokens: int, context: int) -> AttentionGeometry:
    spec = model.spec
    return AttentionGeometry(
        num_heads=spec.num_heads,
        num_kv_heads=spec.num_kv_heads,
        head_dim=spec.head_dim,
        page_size=page_size,
        scale=spec.head_dim**-0.5,
        dtype=torch.float32,
        device=CPU,
        max_rows=rows,
        max_tokens=tokens,
        max_pages_per_row=-(-context // page_size),
    )
