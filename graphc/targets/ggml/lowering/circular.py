"""Pictures without edges: convolutions that see the other end of a picture where they would see zeros around it.

What PyTorch's layers do with `padding_mode="circular"`, in a program that was made of layers without it.
"""

from __future__ import annotations

from collections.abc import Collection

from graphc.errors import InputError
from graphc.shapes import Dim
from graphc.targets.ggml.program.program import Call, Program
from graphc.targets.ggml.program.prune import Pruning
from graphc.targets.ggml.program.tensor import Arg, Tensor

PADS = {"ggml_conv_2d": 4, "ggml_conv_2d_direct": 4, "ggml_conv_2d_dw_direct": 4, "graphc_conv_2d": 5}
"""Calls of a kernel and a picture, and which of their arguments is the pad of x; that of y is next."""

AXES = {"x": 0, "y": 1}
"""ggml's axes of a picture."""


def circular(program: Program, axes: Collection[str]) -> Program:
    """The program with convolutions that are circular along these axes. Raises InputError for other axes than x and y, and where
    there is no convolution that looks beyond the edges."""
    if unknown := sorted(set(axes) - AXES.keys()):
        raise InputError(f"circular: {unknown[0]!r} is not an axis of pictures; there are x and y")
    if not axes:
        return program
    made = _Circular(program, [AXES[axis] for axis in sorted(set(axes))])
    result = made.copied(program)
    if not made.changed:
        raise InputError(f"circular: {program.name} has no convolution that looks beyond the edges of a picture")
    result.recipes, result.growth = program.recipes, program.growth
    return result


class _Circular(Pruning):
    """Copies a program; before convolutions it lays what is at the other end of the picture around it."""

    def __init__(self, program: Program, axes: Collection[int]) -> None:
        new = Program(program.name, example=program.example, about=program.about)
        super().__init__(program, new, [weight.tensor.type for weight in program.weights])
        for index in range(len(program.weights)):
            self.weight(index)
        self.axes, self.changed = axes, False

    def prepared(self, result: Program, call: Call, args: tuple[Arg, ...]) -> tuple[Arg, ...]:
        """The arguments of a convolution whose picture has its other end around it, and which adds no zeros there."""
        if call.function not in PADS:
            return args
        picture, given, pad_of_x = args[1], list(args), PADS[call.function]
        assert isinstance(picture, Tensor)
        for axis in self.axes:
            pad = given[pad_of_x + axis]
            assert isinstance(pad, int)
            if pad:
                picture = _around(result, call, picture, axis, pad)
                given[pad_of_x + axis], self.changed = 0, True
        given[1] = picture
        return tuple(given)


def _around(result: Program, call: Call, picture: Tensor, axis: int, pad: int) -> Tensor:
    """A picture with the last rows, or columns, before the first and the first behind the last."""
    size = picture.ne[axis]

    def part(start: Dim) -> Tensor:
        ne = [pad if each == axis else length for each, length in enumerate(picture.ne)]
        args = (picture, *ne, *picture.nb[1:], start * picture.nb[axis])
        return result.call("ggml_view_4d", args, picture.rank, call.scope, call.source)

    def joined(a: Tensor, b: Tensor) -> Tensor:
        return result.call("ggml_concat", (a, b, axis), picture.rank, call.scope, call.source)

    return joined(joined(part(size - pad), picture), part(0))
