"""Runs operators as ggml programs: many in one graph, so that their kernels are compiled at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from graphc.ir import Graph, TensorType, Value
from graphc.ir.interp import evaluate
from graphc.ops.base import Op
from graphc.ops.movement import Transpose
from graphc.targets.ggml.lowering.lower import lower
from graphc.targets.ggml.program.program import Program
from graphc.targets.ggml.run.executor import Executor


@dataclass
class Batch:
    """Operators that run in one program, on a device; the inputs whose numbers are in `constant` are known when compiling."""

    graph: Graph = field(default_factory=Graph)
    arrays: dict[str, np.ndarray] = field(default_factory=dict)
    device: str = "cpu"

    def add(
        self, op: Op, inputs: Sequence[np.ndarray], constant: Sequence[int] = (), transposed: bool = False
    ) -> list[int]:
        """Add an operator; the numbers of its results among those of `run`. `transposed`: it reads views."""
        values = []
        for number, array in enumerate(inputs):
            if number in constant:
                values.append(self.graph.constant(array))
            elif transposed and array.ndim > 1:
                values.append(self.graph.add(Transpose(tuple(range(array.ndim))[::-1]), [self.input(array.T)]).output)
            else:
                values.append(self.input(array))
        outputs = self.graph.add(op, values).outputs
        for value in outputs:
            self.graph.output(value)
        return list(range(len(self.graph.outputs) - len(outputs), len(self.graph.outputs)))

    def input(self, array: np.ndarray) -> Value:
        """An input of the model."""
        value = self.graph.input(f"x{len(self.arrays)}", TensorType(array.dtype, array.shape))
        self.arrays[value.name] = array
        return value

    def program(self) -> Program:
        """The lowered program."""
        return lower(self.graph)

    def run(self) -> list[np.ndarray]:
        """Every result, in order."""
        program = self.program()
        weights = [evaluate(weight.value) for weight in program.weights]
        return Executor(program, weights, self.device, threads=2).run(self.arrays, {})


def calls_of(op: Op, *inputs: np.ndarray, constant: Sequence[int] = ()) -> list[str]:
    """The functions that the program of one operator calls, views left out."""
    batch = Batch()
    batch.add(op, inputs, constant)
    views = ("reshape", "permute", "view", "transpose")
    functions = [call.function.removeprefix("ggml_").removeprefix("graphc_") for call in batch.program().calls]
    return [function for function in functions if not function.startswith(views)]
