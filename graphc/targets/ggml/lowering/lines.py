"""What is computed element by element between convolutions of lines, [N, C, W], as of images of a line, [N, C, 1, W].

A convolution of lines is one of images, with a reshape before and one behind. Between two of them images stay images then, and
may have their channels last (`channels_last.py`).
"""

from __future__ import annotations

from dataclasses import replace

from graphc.ir.graph import type_name
from graphc.ir.types import F32
from graphc.kernels.use import KernelUse
from graphc.shapes import Dim
from graphc.targets.ggml.lowering.remade import add_call, as_it_is, remade, without_unused
from graphc.targets.ggml.program.composites.activations import ACTIVATIONS, KERNELS
from graphc.targets.ggml.program.composites.composite import RAISED, RAISED_LAST
from graphc.targets.ggml.program.program import Call, Program
from graphc.targets.ggml.program.rules import RESHAPES
from graphc.targets.ggml.program.tensor import Arg, Quad, Tensor, dense

AS_IMAGE = 0, 2, 3, 1
"""Where the axes of lines are in images of a line."""

CONVOLUTIONS = "ggml_conv_2d", "graphc_conv_2d"

FEW_PIXELS = 1024
"""Those of images of whose convolutions kernels may stay packed, and windows are copied, as `own/blocks.h` says (MOST_ROWS)."""

ELEMENT_BY_ELEMENT = {
    *(function for function, (name, _) in {**RAISED, **RAISED_LAST}.items() if name in ACTIVATIONS),
    *("ggml_scale", "ggml_add", "ggml_mul"),
}
"""The calls that compute each element of their result of one of each argument."""


def is_of_long_lines(call: Call) -> bool:
    """True for a convolution of lines that may be faster with channels last."""
    across, down = call.result.ne[:2]
    return call.function in CONVOLUTIONS and down == 1 and isinstance(across, int) and across > FEW_PIXELS


def with_lines_as_images(program: Program) -> Program:
    """The same program, with lines as images wherever what is computed element by element has any that a convolution made. Its
    list of kernels may get more of them."""
    images: dict[int, Tensor] = {}
    """Of what lines are made, by the number of the reshape that makes them."""

    def add(result: Program, call: Call) -> Tensor:
        if call.function in RESHAPES:
            return reshaped(result, call)
        lines, read = call.result, [arg for arg in call.args if isinstance(arg, Tensor)]
        plain = lines.contiguous and lines.ne[3] == 1 and _is_by_elements(result, call)
        if not plain or not any(each.call in images for each in read) or not all(_is_of(lines, each) for each in read):
            return as_it_is(result, call)
        args = [as_image(result, call, arg) if isinstance(arg, Tensor) else arg for arg in call.args]
        image = dense(lines.type, _of_a_line(lines.ne), 4)
        if call.kernel < 0:
            made = add_call(result, call, call.function, args, image)
        else:
            made = kernel_of_shape(result, call, image.ne[::-1], *args)
        tensor = add_call(result, replace(call, kernel=-1), "ggml_reshape_3d", [made, *lines.ne[:3]], lines)
        images[tensor.call] = made
        return tensor

    def reshaped(result: Program, call: Call) -> Tensor:
        source = call.args[0]
        assert isinstance(source, Tensor)
        image = images.get(source.call)
        if image is not None and image.ne == call.result.ne:
            return replace(image, rank=call.result.rank)
        tensor = as_it_is(result, call)
        if call.result.ne[3] == 1 and source.contiguous and source.ne == _of_a_line(call.result.ne):
            images[tensor.call] = source
        return tensor

    def as_image(result: Program, near: Call, arg: Tensor) -> Tensor:
        """Lines, or a number for each channel, as images."""
        if arg.call in images:
            return images[arg.call]
        near, image = replace(near, kernel=-1), dense(arg.type, _of_a_line(arg.ne), 4)
        if arg.contiguous:
            return add_call(result, near, "ggml_reshape_4d", [arg, *image.ne], image)
        pixel, channel, lines, behind = arg.nb
        image = replace(image, nb=(pixel, behind, channel, lines))
        return add_call(result, near, "ggml_permute", [arg, *AS_IMAGE], image)

    return without_unused(remade(program, enumerate(program.calls), add))


def is_activation(program: Program, call: Call) -> bool:
    """True for a kernel of an activation of float32: the same, whatever the order of its elements."""
    use = program.kernels[call.kernel] if call.kernel >= 0 else None
    return use is not None and type_name(use.op) in KERNELS and use.dtype == F32 and use.inputs == ((F32, use.shape),)


def kernel_of_shape(program: Program, call: Call, shape: tuple[Dim, ...], x: Arg) -> Tensor:
    """The result of a kernel of an activation, of a tensor of another shape."""
    assert isinstance(x, Tensor)
    op = program.kernels[call.kernel].op
    return program.call_kernel(KernelUse(op, ((F32, shape),), F32, shape), [x], call.scope, call.source)


def _is_by_elements(program: Program, call: Call) -> bool:
    return is_activation(program, call) if call.kernel >= 0 else call.function in ELEMENT_BY_ELEMENT


def _is_of(lines: Tensor, other: Tensor) -> bool:
    """True for other lines of this length, and a number for each channel."""
    return other.ne[3] == 1 and other.ne[0] in (1, lines.ne[0])


def _of_a_line(ne: Quad) -> Quad:
    width, channels, count, _ = ne
    return width, 1, channels, count
