"""LoRAs beside weights that stay as they are stored: `W x` becomes `W x + up (down x)`, so that W is not quantized again.

That is possible where the change is a product of two small matrices, the weight a parameter or a part of it, and all that reads
the weight is products, or convolutions: then down is one too, and up one of 1 x 1.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from graphc.ir.graph import Value
from graphc.ir.types import F32
from graphc.ops.movement import Slice
from graphc.targets.ggml.program.program import Program
from graphc.targets.ggml.program.prune import Pruning
from graphc.targets.ggml.program.tensor import Tensor
from graphc.weights.layouts import Transposed
from graphc.weights.lora.names import Change
from graphc.weights.undo import shape_of

PRODUCTS: Mapping[str, tuple[int, tuple[int, ...]]] = {
    "ggml_mul_mat": (2, ()),
    **dict.fromkeys(("ggml_conv_2d", "ggml_conv_2d_direct"), (4, (1, 1, 0, 0, 1, 1))),
}
"""The calls that may read such a weight, first of their arguments: its axes, and what follows the operands in that of up."""


@dataclass(frozen=True)
class Place:
    """A weight that has its LoRAs beside it: the parameter, and which part of it the weight is, one slice after the other."""

    parameter: Value
    cuts: tuple[Slice, ...]

    def factors(self, terms: Iterable[tuple[Change, float]]) -> tuple[np.ndarray, np.ndarray]:
        """All changes together: down [rank, …] and up [rows, rank, 1, …], in which the strengths are."""
        downs, ups = [], []
        for change, strength in terms:
            up, down = change.adapter.pair(strength)
            downs.append(down)
            ups.append(change.take(up))
        rest = shape_of(self.parameter)[1:]
        down, up = np.concatenate(downs).reshape(-1, *rest), np.concatenate(ups, axis=1)
        for cut in self.cuts:
            (up,) = Slice((cut.starts[0], 0), (cut.sizes[0], up.shape[1]), (cut.steps[0], 1)).eval(up)
            (down,) = Slice((0, *cut.starts[1:]), (len(down), *cut.sizes[1:]), (1, *cut.steps[1:])).eval(down)
        return np.ascontiguousarray(down), np.ascontiguousarray(up).reshape(*up.shape, *(1 for _ in rest[1:]))


def place_of(index: int, recipe: Value, program: Program) -> Place | None:
    """Where LoRAs of a weight go beside it; None if they cannot."""
    cuts: list[Slice] = []
    value = recipe
    while value.producer is not None:
        op = value.producer.op
        value = value.producer.inputs[0]
        if not isinstance(op, Slice):
            return None
        cuts.insert(0, op)
    fits = bool(value.parameter) and only_products(program, index)
    return Place(value, tuple(cuts)) if fits else None


def is_pair(change: Change) -> bool:
    """True if a change is a product of two matrices, of which each row of ours needs a row of the first."""
    return change.adapter.is_pair and not any(isinstance(step, Transposed) for step in change.source.steps)


def only_products(program: Program, index: int) -> bool:
    """True if all that reads a weight is products and convolutions of which it is the first operand."""
    axes = len(program.weights[index].shape)
    reads = [
        PRODUCTS.get(call.function, ())[:1] == (axes,) and position == 0
        for call in program.calls
        for position, arg in enumerate(call.args)
        if isinstance(arg, Tensor) and arg.weight == index
    ]
    return all(reads) and all(only_products(block, index) for block in program.blocks)


def with_factors(program: Program, ranks: Mapping[int, int]) -> Program:
    """The program with factors of these ranks beside its weights: two weights more for each, in this order, behind the others."""
    if not ranks:
        return program
    result = _Beside(program, ranks).copied(program)
    if program.recipes:
        recipes = json.loads(program.recipes)
        recipes["weights"] += [None] * (2 * len(ranks))
        result.recipes = json.dumps(recipes, separators=(",", ":"))
    return result


class _Beside(Pruning):
    """Copies a program; behind each product with one of the weights it adds that of the factors."""

    def __init__(self, program: Program, ranks: Mapping[int, int]) -> None:
        new = Program(program.name, example=program.example, about=program.about)
        super().__init__(program, new, [weight.tensor.type for weight in program.weights])
        for index in range(len(program.weights)):
            self.weight(index)
        self.factors: dict[int, tuple[Tensor, Tensor]] = {}
        for index, rank in ranks.items():
            weight = program.weights[index]
            rows, *rest = weight.shape
            down = new.add_weight(f"{weight.name}.lora_down", F32, (rank, *rest))
            up = new.add_weight(f"{weight.name}.lora_up", F32, (rows, rank, *(1 for _ in rest[1:])))
            self.factors[index] = down, up

    def followed(self, result: Program, tensor: Tensor) -> Tensor:
        """The sum of a product and that of the factors, where there are some."""
        call = result.calls[tensor.call]
        operand = call.args[0] if call.function in PRODUCTS else None
        if not isinstance(operand, Tensor) or operand.weight not in self.factors:
            return tensor
        down, up = self.factors[operand.weight]
        place = call.scope, call.source
        inner = result.call(call.function, (down, *call.args[1:]), tensor.rank, *place)
        outer = result.call(call.function, (up, inner, *PRODUCTS[call.function][1]), tensor.rank, *place)
        return result.call("ggml_add", (tensor, outer), tensor.rank, *place)
