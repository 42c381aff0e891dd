"""What a kernel is generated for: an operator, applied to tensors of certain types."""

from __future__ import annotations

import numpy as np

from graphc.ir.graph import sizes_in
from graphc.records import dataclass
from graphc.shapes import Dim, Expr, symbols


@dataclass(frozen=True, slots=True)
class KernelUse:
    """A generated kernel: the operator, as its one element function says, and the types it is applied to."""

    op: object
    inputs: tuple[tuple[np.dtype, tuple[Dim, ...]], ...]
    dtype: np.dtype
    shape: tuple[Dim, ...]

    def sizes(self) -> set[str]:
        """The names of the size symbols in the operator's settings and in the types."""
        return set(symbols(*self.sizes_read()))

    def sizes_read(self) -> list[Expr]:
        """The sizes in the operator's settings and in the types that are no numbers."""
        return [*sizes_in((tuple(self.op.settings), self.shape, *(shape for _, shape in self.inputs)))]  # type: ignore[attr-defined]
