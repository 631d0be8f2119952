"""The answer of `plan`, as a value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rlt_hw.devices.target import Target
from rlt_hw.models.spec import ModelSpec
from rlt_hw.registry import JointDecision
from rlt_hw.runtime.memory import MemoryPlan


@dataclass(frozen=True)
class PlanReport:
    """The answer of `plan`. memory is None where nothing was chosen.

    assumed: packages and versions that stand for a machine that is not here; empty when it is.
    memory_source: where the device's memory comes from. notes: what a reader should know besides.
    """

    model: ModelSpec
    target: Target
    decision: JointDecision
    memory: MemoryPlan | None
    memory_source: str
    max_num_seqs: int
    assumed: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        model = self.model
        return {
            "model": {
                "name": model.name,
                "family": model.family,
                "parameters": model.parameters,
                "layers": model.num_layers,
                "loops": model.loops,
                "heads": model.num_heads,
                "kv_heads": model.num_kv_heads,
                "head_dim": model.head_dim,
                "dtype": model.dtype,
            },
            "target": str(self.target),
            "supported": self.decision.supported,
            "decision": self.decision.to_json(),
            "memory": self.memory.to_json() if self.memory else None,
            "memory_source": self.memory_source,
            "max_num_seqs": self.max_num_seqs,
            "assumed": list(self.assumed),
            "notes": list(self.notes),
        }
