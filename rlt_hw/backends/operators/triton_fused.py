"""Fused operators in Triton: few kernels, and products that read weights at the memory's rate.

With one row the stream is settled, normed and multiplied in one kernel; with up to `MAX_PRODUCT_ROWS` rows
settling is a kernel of its own; beyond that products are the vendor library's. Nothing reads device data
on the host, so a sequence of them can be captured.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlt_hw.backends import triton_package
from rlt_hw.backends.operators.interface import Add, OperatorOptions, Projected, Stream
from rlt_hw.backends.targets import AMD, AMPERE_TO_BLACKWELL
from rlt_hw.registry import BackendSpec, Kind, Rank

if TYPE_CHECKING:
    import torch

    from rlt_hw.backends.operators.rows import DecodeRows, LoopPlanes

SPEC = BackendSpec(
    kind=Kind.OPERATORS,
    name="triton_fused",
    adapter="rlt_hw.backends.operators.triton_fused:TritonOperators",
    summary="fused norms, rotation and small-batch products in Triton",
    targets=AMPERE_TO_BLACKWELL + AMD,
    graph_levels=("none", "piecewise", "full"),
    features=("batch_invariant",),
    requirements=(triton_package.REQUIREMENT,),
    toolkits=(triton_package.TOOLKIT,),
    ranks=(
        Rank("nvidia:sm90", 90, "products of one row read 2,770 to 3,670 GB/s on an H200"),
        Rank("nvidia:*", 90, "as on nvidia:sm90; not measured here"),
        Rank("amd:*", 60, "not measured"),
    ),
)  # fmt: skip


class TritonOperators:
    """See `rlt_hw.backends.operators.interface.Operators`."""

    def __init__(self, options: OperatorOptions) -> None:
        from rlt_hw.backends.kernels import launch_rows
        from rlt_hw.backends.kernels.launch_products import Products

        self._products = Products(options)
        self._rows = launch_rows

    def settle(self, stream: Stream, eps: float, norm: torch.Tensor | None = None) -> torch.Tensor:
        if stream.add is Add.ALONE and norm is None:
            return stream.hidden
        settled, normed = self._products.settle(stream, norm, eps, keep=norm is None)
        return settled if normed is None else normed

    def project(
        self, stream: Stream, norm: torch.Tensor, weight: torch.Tensor, eps: float
    ) -> tuple[Stream, torch.Tensor]:
        return self._project(stream, norm, weight, eps, gated=False)

    def project_gated(
        self, stream: Stream, norm: torch.Tensor, gate_up: torch.Tensor, eps: float
    ) -> tuple[Stream, torch.Tensor]:
        return self._project(stream, norm, gate_up, eps, gated=True)

    def product(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return self._products.product(x, weight)

    def branch(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return self._products.product(x, weight, shared=True)

    def logits(
        self, x: torch.Tensor, weight: torch.Tensor, wanted: torch.Tensor | None = None
    ) -> torch.Tensor:
        import torch

        return self._products.product(x, weight, out_dtype=torch.float32, wanted=wanted)

    def rotate(
        self, projected: Projected, keys: torch.Tensor, values: torch.Tensor, slots: torch.Tensor
    ) -> torch.Tensor:
        from rlt_hw.backends.kernels.launch import rotate_write

        return rotate_write(projected, keys, values, slots)

    def board(self, rows: DecodeRows, planes: LoopPlanes) -> tuple[torch.Tensor, torch.Tensor]:
        return self._rows.board(rows, planes)

    def leave(self, rows: DecodeRows, by_rule: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
        return self._rows.leave(rows, by_rule)

    def best(self, logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self._rows.best(logits)

    def uniform(self, rows: DecodeRows) -> torch.Tensor:
        return self._rows.uniform(rows)

    def fill(
        self,
        keys: torch.Tensor,
        values: torch.Tensor,
        rows: DecodeRows,
        planes: LoopPlanes,
        exited: torch.Tensor,
        ran: torch.Tensor,
    ) -> None:
        self._rows.fill(keys, values, rows, planes, exited, ran)

    def advance(
        self,
        rows: DecodeRows,
        token: torch.Tensor,
        bad: torch.Tensor,
        exited: torch.Tensor,
        ran: torch.Tensor,
    ) -> None:
        self._rows.advance(rows, token, bad, exited, ran)

    def _project(
        self, stream: Stream, norm: torch.Tensor, weight: torch.Tensor, eps: float, *, gated: bool
    ) -> tuple[Stream, torch.Tensor]:
        if self._products.settles_in_product(stream.hidden):
            hidden, out = self._products.project(stream, norm, weight, eps, gated=gated)
            return Stream(hidden), out
        hidden, normed = self._products.settle(stream, norm, eps, keep=stream.add is not Add.ALONE)
        assert normed is not None
        return Stream(hidden), self._products.product(normed, weight, gated=gated, shared=not gated)
