"""The reference cases: tiny random models and what their authors' own code computes for them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from rlt_hw.backends.operators.interface import OperatorOptions
from rlt_hw.backends.operators.torch_native import TorchOperators
from rlt_hw.models.config import read_spec
from rlt_hw.models.interface import LoopedModel
from rlt_hw.models.loading import load_model

ROOT = Path(__file__).parent.parent / "golden"
OPERATORS = TorchOperators(OperatorOptions(torch.device("cpu"), torch.float32))
ATOL = 5e-4
PROBABILITY_ATOL = 1e-4


@dataclass(frozen=True)
class Case:
    name: str
    folder: Path
    tensors: dict[str, torch.Tensor]
    facts: dict[str, Any]
    model: LoopedModel

    def __getitem__(self, name: str) -> torch.Tensor:
        return self.tensors[name]

    def prompts(self) -> dict[str, list[int]]:
        """Prompt ids by tensor prefix: the main prompt and the extra ones."""
        names = [name for name in self.tensors if name.endswith("input_ids")]
        return {name.removesuffix("input_ids"): self.tensors[name][0].tolist() for name in names}


@lru_cache
def case(name: str) -> Case:
    folder = ROOT / name
    spec = read_spec(folder)
    model = load_model(spec, folder, dtype=torch.float32, device=torch.device("cpu"), operators=OPERATORS)
    facts = json.loads((folder / "golden.json").read_text())
    return Case(name, folder, load_file(folder / "golden.safetensors"), facts, model)


def assert_close(found: torch.Tensor, expected: torch.Tensor, atol: float = ATOL) -> None:
    assert found.shape == expected.shape, (found.shape, expected.shape)
    error = (found - expected).abs().max().item() if expected.numel() else 0.0
    assert error <= atol, f"largest difference {error:.2e}, tolerance {atol:.0e}"
