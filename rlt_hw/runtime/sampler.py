"""Turns logits into tokens for a whole batch. A row's token depends on its own logits,
parameters, seed and position, on nothing else."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from rlt_hw.backends.operators.interface import Operators
from rlt_hw.backends.operators.rows import DecodeRows
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

    stop_ids: the ids that rows must not produce before their min_tokens.
    """

    def __init__(self, stop_ids: frozenset[int], device: torch.device) -> None:
        self._stop = torch.tensor(sorted(stop_ids), dtype=torch.int64, device=device)

    def __call__(self, logits: torch.Tensor, rows: SamplingRows) -> Samples:
        """logits: float32 [rows, vocab]."""
        if rows.suppress_stop.any():
            logits = self._without_stop(logits, torch.from_numpy(rows.suppress_stop).to(logits.device))
        best, token = logits.max(dim=-1)
        bad = ~torch.isfinite(best)
        drawn = np.flatnonzero(rows.temperature > 0)
        if len(drawn):
            picked = torch.from_numpy(drawn).to(logits.device)
            token = token.index_copy(
                0, picked, _draw(logits[picked], *_parameters(rows, drawn, logits.device))
            )
        host = torch.stack((token, bad.to(token.dtype))).cpu().numpy()
        return Samples(host[0], host[1] != 0, _logprobs(logits, token, rows.logprobs))

    def on_device(
        self, logits: torch.Tensor, rows: DecodeRows, operators: Operators, *, sampled: bool
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """(token int64 [rows], bad bool [rows]) without a look at the host. logits: float32 [rows, vocab].

        sampled: whether a row may be other than greedy and free to stop.
        """
        if sampled:
            logits = self._without_stop(logits, rows.position + 1 < rows.stop_from)
        token, bad = operators.best(logits)
        if sampled:
            greedy = rows.temperature <= 0
            draws = operators.uniform(rows)
            temperature = torch.where(greedy, 1.0, rows.temperature)
            token = torch.where(greedy, token, _draw(logits, temperature, rows.top_k, rows.top_p, draws))
        return token, bad

    def _without_stop(self, logits: torch.Tensor, suppress: torch.Tensor) -> torch.Tensor:
        """Rows where `suppress` (bool [rows]) without the stop set."""
        stops = logits.index_select(1, self._stop).masked_fill(suppress[:, None], float("-inf"))
        return logits.index_copy(1, self._stop, stops)


def _parameters(
    rows: SamplingRows, drawn: np.ndarray, device: torch.device
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Temperature, top-k, top-p and a uniform draw of some rows."""

    def column(values: np.ndarray, dtype: torch.dtype) -> torch.Tensor:
        return torch.from_numpy(values[drawn].copy()).to(device, dtype)

    draws = uniform(rows.seed[drawn], rows.position[drawn]).astype(np.float32)
    return (
        column(rows.temperature, torch.float32),
        column(rows.top_k, torch.int64),
        column(rows.top_p, torch.float32),
        torch.from_numpy(draws).to(device),
    )


def _draw(
    logits: torch.Tensor,
    temperature: torch.Tensor,
    top_k: torch.Tensor,
    top_p: torch.Tensor,
    draws: torch.Tensor,
) -> torch.Tensor:
    """Inverse-CDF sampling in descending order of probability; ties keep the order of ids.

    temperature, top_p, draws: float32 [rows]; top_k: int64 [rows], 0 for all. Returns int64 [rows].
    """
    temperature, top_k, top_p, draws = temperature[:, None], top_k[:, None], top_p[:, None], draws[:, None]
    ordered, ids = torch.sort(logits / temperature, descending=True, stable=True)
    ranks = torch.arange(logits.shape[-1], device=logits.device)
    ordered = ordered.masked_fill((top_k > 0) & (ranks >= top_k), float("-inf"))
    probabilities = torch.softmax(ordered, dim=-1)
    mass_before = probabilities.cumsum(-1) - probabilities
    kept = (mass_before < top_p) | (ranks == 0)
    cumulative = (probabilities * kept).cumsum(-1)
    rank = (cumulative <= draws * cumulative[:, -1:]).sum(-1, keepdim=True)
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
