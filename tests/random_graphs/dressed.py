"""Layers with what is done to their results on the way out: biases, residuals, embeddings, activations, gates. Sizes of 1 are
frequent, on every axis: there a tensor broadcasts, or does not, by chance."""

from __future__ import annotations

import numpy as np

from . import layers
from .drawing import F32, MOST, Drawing, Node, Rejected, Tensor

SIZES = (1, 1, 1, 2, 3, 5, 9, 16, 17, 33, 40)


def dressed(layer: Node) -> Node:
    """A layer whose result goes through some steps."""

    def node(d: Drawing) -> object:
        (y,) = layer(d)  # type: ignore[misc]
        for _ in range(d.pick((0, 1, 1, 2, 3))):
            y = summed(d, y)
        y = d.pick(ACTIVATIONS)(d, y)
        if d.flag():
            (y,) = d.add("Mul", *either(d, y, beside(d, y)))
        return summed(d, y) if d.flag() else y

    return node


def summed(d: Drawing, y: Tensor) -> Tensor:
    (made,) = d.add("Add", *either(d, y, beside(d, y)))
    return made


def either(d: Drawing, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    return (a, b) if d.flag() else (b, a)


def beside(d: Drawing, y: Tensor) -> Tensor:
    """What is added to a result or gates it: of its shape, one for each channel, or with sizes of 1 anywhere."""
    shapes = {
        "residual": y.shape,
        "last axis": y.shape[-1:],
        "channels": (y.shape[1], *[1] * (y.rank - 2)) if y.rank > 2 else y.shape[-1:],
        "embedding": (*y.shape[:2], *[1] * (y.rank - 2)),
        "number": (),
        "any": tuple(d.pick((1, size)) for size in y.shape),
    }
    shape = shapes[d.pick(["residual", *shapes])]
    made = [t for t in d.tensors if t.dtype == y.dtype and t.shape == shape and t is not y]
    return d.pick(made) if made and d.flag() else leaf(d, shape)


def leaf(d: Drawing, shape: tuple[int, ...], finite: bool = False) -> Tensor:
    """A tensor, or, now and then, something that is computed of one."""
    if np.prod(shape, dtype=int) > 4 * MOST:
        raise Rejected("a large weight")
    array = d.array(F32, shape)
    x = d.leaf(np.nan_to_num(array, posinf=1, neginf=-1) if finite else array)
    return d.add("Neg", x, exact=True)[0] if d.number(0, 5) == 0 else x


def unchanged(d: Drawing, y: Tensor) -> Tensor:
    return y


def rectified(d: Drawing, y: Tensor) -> Tensor:
    return d.add("Relu", y, exact=True)[0]


def gelu(d: Drawing, y: Tensor) -> Tensor:
    return d.add("Gelu", y, approximate=d.pick(["none", "tanh"]))[0]


def silu(d: Drawing, y: Tensor) -> Tensor:
    return d.add("Mul", *either(d, y, *d.add("Sigmoid", y)))[0]


ACTIVATIONS = (unchanged, rectified, gelu, silu)


def conv(d: Drawing) -> object:
    """Of images, whose kernels have every size of 1 too; often one that Winograd's way takes."""
    x = leaf(d, d.shape(4, 4, SIZES))
    size = d.pick([(3, 3), (3, 3), (3, 3), (1, 1), (3, 1), (1, 3), (2, 3)])
    strides = d.pick([(1, 1), (1, 1), (1, 1), (1, 1), (2, 1), (1, 2)])
    pads = [d.pick((size // 2, d.number(0, 2))) for size in size] * 2
    weight = leaf(
        d, (d.pick((1, 2, 5, 16)), x.shape[1], *size), finite=True
    )  # times padding, some have NaN and some nothing
    bias = [leaf(d, weight.shape[:1])] if d.flag() else []
    return d.add("Conv", x, weight, *bias, strides=strides, pads=pads)


def product(d: Drawing) -> object:
    x = leaf(d, d.shape(2, 4, SIZES))
    batch = d.pick([(), x.shape[:-2], tuple(d.pick((1, n)) for n in x.shape[:-2])])
    return d.add("MatMul", x, leaf(d, (*batch, x.shape[-1], d.pick(SIZES))))


def attention(d: Drawing) -> object:
    """As exporters take it apart; results of one token, feature, head or query, and masks of any shape."""
    q = leaf(d, d.shape(4, 4, SIZES))
    *lead, queries, width = q.shape
    tokens, values = d.pick(SIZES), d.pick(SIZES)
    k, v = leaf(d, (*lead, width, tokens)), leaf(d, (*lead, tokens, values))
    (scores,) = d.add("MatMul", q, k)
    (scores,) = d.add("Mul", scores, d.leaf(np.array(0.25, F32), constant=True))
    if d.flag():
        mask = d.pick([(queries, tokens), (1, tokens), (queries, 1), (lead[0], 1, queries, tokens), scores.shape])
        (scores,) = d.add("Add", scores, leaf(d, mask))
    (y,) = d.add("MatMul", *d.add("Softmax", scores, axis=-1), v)
    return d.add("Transpose", y, perm=[0, 2, 1, 3], exact=True) if d.flag() else [y]


def normalized(d: Drawing) -> object:
    """Of rows, or of groups of channels."""
    x = leaf(d, d.shape(3, 4, SIZES))
    if d.flag():
        factors = [leaf(d, x.shape[-1:]) for _ in range(d.number(1, 2))]
        return d.add("LayerNormalization", x, *factors, epsilon=0.5, axis=-1)
    groups = d.pick([n for n in (1, 2, 3, 5) if x.shape[1] % n == 0])
    factors = [leaf(d, x.shape[1:2]) for _ in range(2)]
    return d.add("GroupNormalization", x, *factors, epsilon=0.5, num_groups=groups)


def activated(d: Drawing) -> object:
    return [d.pick(ACTIVATIONS)(d, leaf(d, d.shape(1, 4, SIZES)))]


LAYERS = {
    "dressed Conv": dressed(conv),
    "dressed Conv of groups, gaps and any rank": dressed(layers.conv),
    "dressed ConvTranspose": dressed(layers.conv_transpose),
    "dressed MatMul": dressed(product),
    "dressed Attention": dressed(attention),
    "dressed normalization": dressed(normalized),
    "dressed activation": dressed(activated),
}
