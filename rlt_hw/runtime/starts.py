"""Start states of the loops, for the families that have them: by seed, zero, given or warm."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from rlt_hw.errors import ConfigError, UnsupportedError
from rlt_hw.models.interface import Start
from rlt_hw.models.spec import ModelSpec
from rlt_hw.reasons import Code
from rlt_hw.runtime.index import Rows
from rlt_hw.runtime.request import Request
from rlt_hw.runtime.step import StartMode, StepPlan


def start_mode(initial_state: str, *, given: bool) -> StartMode:
    """The mode of a request; `given` says that it brings states of its own."""
    if initial_state == "zero" and given:
        raise ConfigError(
            "initial_state",
            found="'zero' together with initial_states",
            allowed="one of the two",
            code=Code.COMBINATION,
        )
    if initial_state == "warm":
        return StartMode.WARM_GIVEN if given else StartMode.WARM
    return StartMode.ZERO if initial_state == "zero" else StartMode.GIVEN if given else StartMode.RANDOM


def check_states(states: np.ndarray, spec: ModelSpec, request: Request) -> None:
    """Raises UnsupportedError for a family without start states, ConfigError for a wrong shape."""
    if not spec.random_start:
        raise UnsupportedError(
            "initial_states",
            found="states",
            allowed=f"none: {spec.name or spec.family} starts from the embedding",
            code=Code.MODEL_FEATURE,
        )
    warm = request.start_mode == StartMode.WARM_GIVEN
    positions = len(request.prompt) + (0 if warm else request.max_tokens - 1)
    if states.ndim != 2 or states.shape[1] != spec.hidden_size or len(states) < positions:
        raise ConfigError(
            "initial_states",
            found=f"shape {tuple(states.shape)}",
            allowed=f"[positions, {spec.hidden_size}] with at least {positions} positions",
        )


class Starts:
    """Builds `Start` for a step's tokens and keeps the latent that a warm request goes on from.

    A latent belongs to a request by slot and serial number, so a reused slot never sees it.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._latents: dict[int, tuple[int, torch.Tensor]] = {}

    def __call__(self, plan: StepPlan, rows: Rows) -> Start:
        mode = plan.start_mode
        given = (mode == StartMode.GIVEN) | (mode == StartMode.WARM_GIVEN)
        states = {row: self._given(plan, row) for row in plan.given}
        for row in np.flatnonzero((mode >= StartMode.WARM) & (plan.loop == 0)).tolist():
            serial, latent = self._latents.get(int(plan.slot[row]), (-1, None))
            if serial == plan.serial[row] and latent is not None:
                states[row] = latent
        given[list(states)] = True
        packed = self._pack(states, rows) if states else None
        zero = (mode == StartMode.ZERO)[rows.row]
        return Start(plan.sampling.seed[rows.row], rows.position, zero, given[rows.row], packed)

    def keep(self, plan: StepPlan, leaving: np.ndarray, latent: Callable[[], torch.Tensor]) -> None:
        """Remember latent() [leaving, hidden] for the warm requests among the leaving rows."""
        warm = np.flatnonzero(plan.start_mode[leaving] >= StartMode.WARM)
        if not len(warm):
            return
        latents = latent()
        for place in warm.tolist():
            row = leaving[place]
            if plan.start[row] + plan.length[row] >= plan.prompt[row]:
                kept = latents[place : place + 1].clone()
                self._latents[int(plan.slot[row])] = (int(plan.serial[row]), kept)

    def _given(self, plan: StepPlan, row: int) -> torch.Tensor:
        return torch.from_numpy(np.ascontiguousarray(plan.given[row], np.float32)).to(self._device)

    def _pack(self, states: dict[int, torch.Tensor], rows: Rows) -> torch.Tensor:
        """[tokens, hidden] with each given row's states in its place."""
        some = next(iter(states.values()))
        packed = torch.zeros(len(rows.row), some.shape[1], dtype=torch.float32, device=self._device)
        for row, state in states.items():
            packed[rows.starts[row] : rows.starts[row + 1]] = state.float()
        return packed
