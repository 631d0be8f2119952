"""Turns logits into tokens for a whole batch. A row's token depends on its own logits,
parameters, seed and position, on nothing else."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from rlt_hw.philox import uniform
from rlt_hw.runtime.step import SamplingRows


@dataclass(frozen=True)
class Samples:
    """token: int64 [rows], host. bad: bool [rows], host, rows whose logits are not finite.

    logprobs: for each row None, or (of the chosen token, top ids, their values).
    """

    token: np.ndarray
    bad: np.ndarray
    logprobs: list[tuple[float, np.ndarray, np.ndarray] | None] | None

    def by_row(self, rows: np.ndarray) -> dict[int, tuple[float, np.ndarray, np.ndarray]] | None:
        """The log-probabilities that were asked for, by the row numbers given."""
        if self.logprobs is None:
            return None
        pairs = zip(rows.tolist(), self.logprobs, strict=True)
        return {row: found for row, found in pairs if found is not None}


class Sampler:
    """Greedy at temperature 0; otherwise temperature, then top-k, then top-p, then one draw.

    stop_ids: the ids that `suppress_stop` rows must not produce.
    """

    def __init__(self, stop_ids: frozenset[int], device: torch.device) -> None:
        self._stop = torch.tensor(sorted(stop_ids), dtype=torch.int64, device=device)

    def __call__(self, logits: torch.Tensor, rows: SamplingRows) -> Samples:
        """logits: float32 [rows, vocab]."""
        if rows.suppress_stop.any():
            logits = self._without_stop(logits, rows.suppress_stop)
        best, token = logits.max(dim=-1)
        bad = ~torch.isfinite(best)
        drawn = np.flatnonzero(rows.temperature > 0)
        if len(drawn):
            picked = torch.from_numpy(drawn).to(logits.device)
            token = token.index_copy(0, picked, _draw(logits[picked], rows, drawn))
        return Samples(token.cpu().numpy(), bad.cpu().numpy(), _logprobs(logits, token, rows.logprobs))

    def _without_stop(self, logits: torch.Tensor, suppress: np.ndarray) -> torch.Tensor:
        affected = torch.from_numpy(np.flatnonzero(suppress)).to(logits.device)
        logits = logits.clone()
        logits[affected[:, None], self._stop[None]] = float("-inf")
        return logits


def _draw(logits: torch.Tensor, rows: SamplingRows, drawn: np.ndarray) -> torch.Tensor:
    """Inverse-CDF sampling in descending order of probability; ties keep the order of ids."""
    device, vocab = logits.device, logits.shape[-1]

    def column(values: np.ndarray, dtype: torch.dtype) -> torch.Tensor:
        return torch.from_numpy(values[drawn].copy()).to(device, dtype)[:, None]

    ordered, ids = torch.sort(logits / column(rows.temperature, torch.float32), descending=True, stable=True)
    top_k = column(rows.top_k, torch.int64)
    ranks = torch.arange(vocab, device=device)
    ordered = ordered.masked_fill((top_k > 0) & (ranks >= top_k), float("-inf"))
    probabilities = torch.softmax(ordered, dim=-1)
    mass_before = probabilities.cumsum(-1) - probabilities
    kept = (mass_before < column(rows.top_p, torch.float32)) | (ranks == 0)
    cumulative = (probabilities * kept).cumsum(-1)
    draw = torch.from_numpy(uniform(rows.seed[drawn], rows.position[drawn]).astype(np.float32)).to(device)
    rank = (cumulative <= draw[:, None] * cumulative[:, -1:]).sum(-1, keepdim=True)
    last = (kept & (probabilities > 0)).sum(-1, keepdim=True) - 1
    return ids.gather(1, torch.minimum(rank, last)).squeeze(1)


def _logprobs(
    logits: torch.Tensor, token: torch.Tensor, counts: np.ndarray
) -> list[tuple[float, np.ndarray, np.ndarray] | None] | None:
    """Log-probabilities under the unmodified distribution (temperature 1, nothing cut)."""
    if counts.max(initial=-1) < 0:
        return None
    scores = torch.log_softmax(logits, dim=-1)
    chosen = scores.gather(1, token[:, None]).squeeze(1).cpu().numpy()
    values, ids = scores.topk(min(max(int(counts.max()), 1), scores.shape[-1]), dim=-1)
    top_values, top_ids = values.cpu().numpy(), ids.cpu().numpy()
    return [
        (float(chosen[row]), top_ids[row, :count], top_values[row, :count]) if count >= 0 else None
        for row, count in enumerate(counts.tolist())
    ]
