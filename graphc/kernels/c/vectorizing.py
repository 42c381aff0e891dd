"""Values of a kernel for the CPU, in forms of which compilers make vectors.

Functions without branches stand in for those of math.h; the largest or smallest of many numbers is found by stretches, as
`lanes.py` says.
"""

from __future__ import annotations

import numpy as np

from graphc.ir.types import F32, F64, FLOATS
from graphc.kernels.c.emit import Block, Emitter
from graphc.kernels.c.functions import stand_in
from graphc.kernels.c.language import ORDER, SUM
from graphc.kernels.lanes import STRETCH, is_by_stretches, variables_of
from graphc.kernels.linear import is_positive
from graphc.kernels.nest import extent, name
from graphc.kernels.scalar import Scalar, variable


class VectorizingEmitter(Emitter):
    """See above."""

    def template(self, template: str, dtype: np.dtype) -> str:
        """A template of `Kernel.call` for numbers of a type."""
        return stand_in(template) if dtype in FLOATS and dtype != F64 else template

    def accumulate(self, node: Scalar, block: Block, total: str, lanes: Block | None = None) -> None:
        """The loops of a reduction, by stretches if it can be."""
        if lanes is not None or not is_by_stretches(node):
            super().accumulate(node, block, total, lanes)
            return
        (axis,) = variables_of(node)
        base, count = self.fresh("base"), self.dim(extent(axis), block).within(ORDER)
        header = f"for (int64_t {base} = 0; {base} < {count}; {base} += {STRETCH})"
        stretches = Block(block, header, [variable(base, extent(axis))], barrier=not is_positive(extent(axis)))
        stretches.lines.append(f"const int64_t stop = {base} + {STRETCH} < {count} ? {base} + {STRETCH} : {count};")
        function = {"max": "graphc_largest", "min": "graphc_smallest"}[str(node.data[0])]  # type: ignore[index]
        numbers = self._stretch(node.args[0], axis, base, stretches)
        stretches.lines.append(f"{total} = {function}({total}, {numbers}, stop - {base});")
        stretches.close()

    def _stretch(self, number: Scalar, axis: Scalar, base: str, stretches: Block) -> str:
        """Where the numbers of a stretch lie: in the tensor that has them, or an array into which they are computed."""
        index = name(axis)
        if number.kind == "element" and number.dtype == F32:
            stretches.lines.append(f"const int64_t {index} = {base};")
            stretches.variables |= {axis}
            return f"x{number.data} + {self.value(number.args[0], stretches).within(SUM + 1)}"
        part = self.fresh("part")
        stretches.lines.append(f"float {part}[{STRETCH}];")
        header = f"for (int64_t {index} = {base}; {index} < stop; {index}++)"
        loop = Block(stretches, header, [axis], barrier=stretches.barrier)
        loop.lines.append(f"{part}[{index} - {base}] = {self.value(number, loop).text};")
        loop.close()
        return part
