"""Operators that are wrong in one way each."""

from __future__ import annotations

from dataclasses import replace

import torch

from rlt_hw.backends.operators.interface import Add
from rlt_hw.backends.operators.torch_native import TorchOperators


class AddsOneToNorms(TorchOperators):
    def settle(self, stream, eps, norm=None):
        return super().settle(stream, eps, None if norm is None else norm + 1)


class NormsTheSum(TorchOperators):
    """Takes a branch's own norm for one around the sum."""

    def settle(self, stream, eps, norm=None):
        around = stream.add is Add.INSIDE
        return super().settle(replace(stream, add=Add.AROUND) if around else stream, eps, norm)


class SwapsGateAndUp(TorchOperators):
    def project_gated(self, stream, norm, gate_up, eps):
        return super().project_gated(stream, norm, torch.cat(gate_up.chunk(2)[::-1]), eps)


class TurnsTheOtherWay(TorchOperators):
    def rotate(self, projected, keys, values, slots):
        return super().rotate(replace(projected, sin=-projected.sin), keys, values, slots)


class WritesKeysOnly(TorchOperators):
    def rotate(self, projected, keys, values, slots):
        return super().rotate(projected, keys, values.clone(), slots)


class FillsOnePlaneTooFew(TorchOperators):
    def fill(self, keys, values, rows, planes, exited, ran):
        super().fill(keys, values, replace(rows, depth=rows.depth - 1), planes, exited, ran)


class FillsRowsThatStay(TorchOperators):
    def fill(self, keys, values, rows, planes, exited, ran):
        super().fill(keys, values, rows, planes, torch.ones_like(exited), ran)


class LeavesBeforeItMay(TorchOperators):
    def leave(self, rows, by_rule):
        return super().leave(replace(rows, min_loops=torch.zeros_like(rows.min_loops)), by_rule)


class GoesOnPastTheEnd(TorchOperators):
    def advance(self, rows, token, bad, exited, ran):
        super().advance(replace(rows, last=rows.last + 1), token, bad, exited, ran)


class TakesTheLastOfEquals(TorchOperators):
    def best(self, logits):
        token, bad = super().best(logits.flip(-1))
        return logits.shape[-1] - 1 - token, bad


class DependsOnTheBatch(TorchOperators):
    def product(self, x, weight):
        return super().product(x, weight) * (1 + 1e-7 * len(x))


MUTANTS = (
    AddsOneToNorms,
    NormsTheSum,
    SwapsGateAndUp,
    TurnsTheOtherWay,
    WritesKeysOnly,
    FillsOnePlaneTooFew,
    FillsRowsThatStay,
    LeavesBeforeItMay,
    GoesOnPastTheEnd,
    TakesTheLastOfEquals,
    DependsOnTheBatch,
)
