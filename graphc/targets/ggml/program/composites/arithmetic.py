"""Sums, differences, products and quotients of two tensors, sums and means of rows and over them, and softmax."""

from __future__ import annotations

from graphc.targets.ggml.program.composites.activations import activated
from graphc.targets.ggml.program.composites.composite import ActivationOrNone, Args, Expansion, composite, raises
from graphc.targets.ggml.program.rules import require
from graphc.targets.ggml.program.tensor import Tensor

MOST_SUMS = 6
"""Tensors that are added at once."""


@composite()
def add(call: Expansion, x: Tensor, other: Tensor) -> Tensor:
    """x plus another tensor, which broadcasts to it."""
    return call("ggml_add", x, other)


@composite()
def sub(call: Expansion, x: Tensor, other: Tensor) -> Tensor:
    """x minus another tensor, which broadcasts to it."""
    return call("ggml_sub", x, other)


@composite()
def mul(call: Expansion, x: Tensor, other: Tensor) -> Tensor:
    """x times another tensor, which broadcasts to it."""
    return call("ggml_mul", x, other)


@composite()
def div(call: Expansion, x: Tensor, other: Tensor) -> Tensor:
    """x divided by another tensor, which broadcasts to it."""
    return call("ggml_div", x, other)


@composite(made=2 * MOST_SUMS + 8)
def scaled_sum(
    call: Expansion, x: Tensor, factor: Tensor | None, activation: ActivationOrNone, *sums: Tensor
) -> Tensor:
    """x times another tensor, if there is one, plus others, and an activation of that; all broadcast to sizes that each axis has
    in one of them. Calls that follow one another so are made one (`lowering/sums.py`)."""
    require(len(sums) <= MOST_SUMS, f"adds {MOST_SUMS} tensors at most")
    others = [each for each in (factor, *sums) if each is not None]
    ne = [
        next((size for size in sizes if size != 1), 1)
        for sizes in zip(x.ne, *(each.ne for each in others), strict=True)
    ]
    x = x if tuple(ne) == x.ne else call("ggml_repeat_4d", x, *ne)
    x = x if factor is None else call("ggml_mul", x, factor)
    for each in sums:
        x = call("ggml_add", x, each)
    return activated(call, x, activation)


@composite("ggml_sum_rows")
def sum_rows(call: Expansion, x: Tensor) -> Tensor:
    """The sum of each row."""
    return call("ggml_sum_rows", x)


@composite("ggml_mean")
def mean(call: Expansion, x: Tensor) -> Tensor:
    """The mean of each row."""
    return call("ggml_mean", x)


@composite("ggml_soft_max")
def soft_max(call: Expansion, x: Tensor) -> Tensor:
    """The exponentials of each row, divided by their sum."""
    return call("ggml_soft_max", x)


@composite()
def sum_over_rows(call: Expansion, x: Tensor) -> Tensor:
    """The sum of the rows of each matrix, element by element: of [..., M, C], [..., 1, C]."""
    return _over_rows(call, "ggml_sum_rows", x)


@composite()
def mean_over_rows(call: Expansion, x: Tensor) -> Tensor:
    """The mean of the rows of each matrix, element by element: of [..., M, C], [..., 1, C]."""
    return _over_rows(call, "ggml_mean", x)


OVER_ROWS = {sum_rows: sum_over_rows, "ggml_sum_rows": sum_over_rows, mean: mean_over_rows, "ggml_mean": mean_over_rows}
"""What computes over rows what others compute of each."""


def _over_rows(call: Expansion, function: str, x: Tensor) -> Tensor:
    found = call(function, call("ggml_cont", call("ggml_permute", x, 1, 0, 2, 3)))
    return call("ggml_reshape_4d", found, x.ne[0], 1, *x.ne[2:])


@raises(mul, "ggml_sqr")
def _square(x: Tensor) -> Args | None:
    return (x, x) if x.type == "F32" else None


@raises(add, "ggml_add", last=True)
@raises(sub, "ggml_sub", last=True)
@raises(mul, "ggml_mul", last=True)
@raises(div, "ggml_div", last=True)
def _of_two(x: Tensor, other: Tensor) -> Args | None:
    return (x, other) if x.type == other.type == "F32" else None
