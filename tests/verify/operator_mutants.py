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


class CopiesToTheLastSlot(TorchOperators):
    """Takes a slot below zero for one counted from the end."""

    def copy_slots(self, cache, source, target):
        super().copy_slots(cache, source, target % (cache.shape[1] * cache.shape[2]))


class DependsOnTheBatch(TorchOperators):
    def product(self, x, weight):
        return super().product(x, weight) * (1 + 1e-7 * len(x))


MUTANTS = (
    AddsOneToNorms,
    NormsTheSum,
    SwapsGateAndUp,
    TurnsTheOtherWay,
    WritesKeysOnly,
    CopiesToTheLastSlot,
    DependsOnTheBatch,
)
