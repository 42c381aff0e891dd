"""Products, windows, normalizations, recurrent layers, control flow, and what exporters take apart."""

from __future__ import annotations

import numpy as np
from onnx import helper

from .drawing import (
    F32,
    F64,
    I32,
    I64,
    REAL,
    Drawing,
    Node,
    Tensor,
    info,
)


def matmul(d: Drawing) -> object:
    a = d.tensor((F32, F32, F64, I32), low=1, high=5)
    shape = [
        *([d.pick((1, n)) for n in a.shape[:-2]][d.number(0, 3) :]),
        a.shape[-1],
        *([d.number(1, 5)] if d.flag() else []),
    ]
    shape = shape if len(shape) > 1 or d.flag() else [*shape, 3]
    shape = shape[-2:] if a.rank == 1 and len(shape) > 2 else shape
    return d.add("MatMul", a, d.leaf(d.array(a.dtype, shape)), exact=a.dtype.kind == "i")


def gemm(d: Drawing) -> object:
    a = d.tensor((F32, F32, F64), low=2, high=2)
    turned, other = d.number(0, 1), d.number(0, 1)
    inner, rows = (a.shape[0], a.shape[1]) if turned else (a.shape[1], a.shape[0])
    columns = d.number(1, 5)
    b = d.leaf(d.array(a.dtype, (columns, inner) if other else (inner, columns)))
    c = d.pick([None, (), (1,), (columns,), (rows, 1), (rows, columns), (1, columns)])
    settings = {"transA": turned, "transB": other, "alpha": d.pick((1.0, 0.5)), "beta": d.pick((1.0, -2.0))}
    return d.add("Gemm", a, b, *([] if c is None else [d.leaf(d.array(a.dtype, c))]), **settings)


def windows(d: Drawing, spatial: int, dilated: bool = True) -> dict[str, object]:
    """A kernel, strides, dilations, and padding by numbers or by a rule."""
    result: dict[str, object] = {
        "kernel_shape": [d.number(1, 3) for _ in range(spatial)],
        "strides": [d.number(1, 3) for _ in range(spatial)],
    }
    if dilated and d.flag():
        result["dilations"] = [d.number(1, 2) for _ in range(spatial)]
    rule = d.pick(["NOTSET", "NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"])
    if rule == "NOTSET":
        result["pads"] = [d.number(0, kernel - 1) for kernel in result["kernel_shape"] * 2]  # type: ignore[operator]
    elif rule == "VALID" or "dilations" not in result:
        result["auto_pad"] = (
            rule  # gaps between windows that are padded are not defined: the reference cuts, others do not
        )
        result["strides"] = [min(pair) for pair in zip(result["strides"], result["kernel_shape"], strict=True)]  # type: ignore[call-overload]
    return result


def image(d: Drawing, low: int = 3) -> Tensor:
    """Something with a batch, channels, and one to three spatial axes."""
    return d.tensor((F32,), low=low, high=5, finite=True)


def conv(d: Drawing) -> object:
    x = image(d)
    channels = x.shape[1]
    group = d.pick([n for n in range(1, channels + 1) if channels % n == 0])
    settings = windows(d, x.rank - 2)
    out = group * d.number(1, 2)
    weight = d.leaf(d.array(F32, (out, channels // group, *settings["kernel_shape"])))  # type: ignore[misc]
    bias = [d.leaf(d.array(F32, (out,)))] if d.flag() else []
    return d.add("Conv", x, weight, *bias, group=group, **settings)


def conv_transpose(d: Drawing) -> object:
    x = image(d)
    channels = x.shape[1]
    group = d.pick([n for n in range(1, channels + 1) if channels % n == 0])
    spatial = x.rank - 2
    kernel = [d.number(1, 3) for _ in range(spatial)]
    settings: dict[str, object] = {"strides": [d.number(1, 3) for _ in range(spatial)], "group": group}
    settings["pads"] = [d.number(0, (size - 1) // 2) for size in kernel * 2]
    settings["dilations"] = [d.number(1, 2) for _ in range(spatial)]
    settings["output_padding"] = [d.number(0, stride - 1) for stride in settings["strides"]]  # type: ignore[attr-defined]
    weight = d.array(F32, (channels, d.number(1, 2), *kernel))
    weight = d.leaf(np.nan_to_num(weight, posinf=1, neginf=-1))  # zeros between elements are multiplied with it too
    return d.add("ConvTranspose", x, weight, **settings)


def max_pool(d: Drawing) -> object:
    x = image(d)
    return d.add("MaxPool", x, exact=True, ceil_mode=d.number(0, 1), **windows(d, x.rank - 2))


def average_pool(d: Drawing) -> object:
    x = image(d)
    more = {"ceil_mode": d.number(0, 1), "count_include_pad": d.number(0, 1)}
    return d.add("AveragePool", x, **more, **windows(d, x.rank - 2))


def normalization(operator: str) -> Node:
    def node(d: Drawing) -> object:
        x = d.tensor((F32,), low=1 if operator == "LayerNormalization" else 3)
        if operator == "LayerNormalization":
            axis = d.axis(x)
            shapes, settings = [x.shape[axis:]] * d.number(1, 2), {"axis": axis}
        elif operator == "BatchNormalization":
            shapes, settings = [x.shape[1:2]] * 4, {}
        else:
            shapes, settings = [x.shape[1:2]] * 2, {}
        scale = [d.leaf(d.array(F32, shape)) for shape in shapes]
        if operator == "BatchNormalization":
            scale[3] = d.leaf(np.abs(scale[3].array) + 1)
        return d.add(operator, x, *scale, epsilon=0.5, **settings)

    return node


def group_normalization(d: Drawing) -> object:
    x = image(d)
    groups = d.pick([n for n in (1, 2, 3) if x.shape[1] % n == 0])
    scale, bias = (d.leaf(d.array(F32, x.shape[1:2])) for _ in range(2))
    return d.add("GroupNormalization", x, scale, bias, epsilon=0.5, num_groups=groups)


def einsum(d: Drawing) -> object:
    x = d.tensor(REAL, low=2, high=3)
    letters = "abc"[: x.rank]
    other = d.leaf(d.array(x.dtype, (x.shape[-1], d.number(1, 3))))
    result = "".join(d.pick([list(letters[:-1] + "z"), list("z" + letters[:-1]), ["z"]]))
    return d.add("Einsum", x, other, equation=f"{letters},{letters[-1]}z->{result}")


def recurrent(operator: str, gates: int, states: int) -> Node:
    """An LSTM, a GRU or an RNN, of all its results."""

    def node(d: Drawing) -> object:
        direction = d.pick(["forward", "reverse", "bidirectional"])
        ways, size = 1 + (direction == "bidirectional"), d.number(1, 3)
        x = d.tensor((F32,), low=3, high=3, finite=True)
        steps, batch, width = x.shape
        shapes = [(ways, gates * size, width), (ways, gates * size, size), (ways, 2 * gates * size)]
        weights = (np.nan_to_num(d.array(F32, shape), posinf=1, neginf=-1) for shape in shapes[: d.number(2, 3)])
        inputs: list[Tensor | None] = [d.leaf(weight) for weight in weights]
        if d.flag():
            lengths = d.leaf(np.array([d.number(1, steps) for _ in range(batch)], I32), constant=True)
            inputs = [*inputs, *[None] * (3 - len(inputs)), lengths]
        settings = {"linear_before_reset": d.number(0, 1)} if operator == "GRU" else {}
        return d.add(operator, x, *inputs, outputs=1 + states, hidden_size=size, direction=direction, **settings)

    return node


def branch(d: Drawing) -> object:
    """An If whose branches read a value of the graph around them."""
    x, taken = d.tensor((F32, I64)), d.leaf(np.array(d.flag()))
    graphs = {}
    for name, operator in (("then_branch", "Neg"), ("else_branch", "Abs")):
        result = info(f"{name}{len(d.nodes)}", x.array)
        inner = helper.make_node(operator, [x.name], [result.name])
        graphs[name] = helper.make_graph([inner], name, [], [result])
    return d.add("If", taken, captured=[x], exact=True, **graphs)


def loop(d: Drawing) -> object:
    """A Loop that carries a value, and collects what it was."""
    x, count = d.tensor((F32, I64), high=4), d.leaf(np.array(d.number(1, 3), I64))
    n = len(d.nodes)
    nodes = [
        helper.make_node("Add", [f"v{n}", x.name], [f"w{n}"]),
        helper.make_node("Identity", [f"v{n}"], [f"s{n}"]),
        helper.make_node("Identity", [f"c{n}"], [f"k{n}"]),
    ]
    flag, carried = np.array(True), x.array
    inputs = [info(f"i{n}", np.array(1)), info(f"c{n}", flag), info(f"v{n}", carried)]
    body = helper.make_graph(
        nodes, "body", inputs, [info(f"k{n}", flag), info(f"w{n}", carried), info(f"s{n}", carried)]
    )
    going = d.leaf(flag, constant=True)
    return d.add("Loop", count, going, x, captured=[x], outputs=2, exact=True, body=body)


def standardized(d: Drawing) -> object:
    """A layer normalization as exporters take it apart."""
    x, axis = d.tensor((F32,), low=1, finite=True), d.ints([-1])
    (mean,) = d.add("ReduceMean", x, axis)
    (centered,) = d.add("Sub", x, mean)
    (variance,) = d.add("ReduceMean", *d.add("Pow", centered, d.leaf(np.array(2, F32), constant=True)), axis)
    (deviation,) = d.add("Sqrt", *d.add("Add", variance, d.leaf(np.array(0.5, F32), constant=True)))
    (y,) = d.add("Div", centered, deviation)
    scale = d.leaf(d.array(F32, x.shape[-1:]))
    return d.add("Add", *d.add("Mul", y, scale), d.leaf(d.array(F32, x.shape[-1:])))


def attention(d: Drawing) -> object:
    """Attention as exporters take it apart, with a mask or not."""
    q = d.tensor((F32,), low=2, high=4, finite=True)
    lead, width, tokens = q.shape[:-2], q.shape[-1], d.number(1, 4)
    k, v = (d.leaf(d.array(F32, (*lead, tokens, size))) for size in (width, d.number(1, 4)))
    turned = d.add("Transpose", k, perm=[*range(len(lead)), len(lead) + 1, len(lead)])
    scores = d.add("Mul", *d.add("MatMul", q, *turned), d.leaf(np.array(0.5, F32), constant=True))
    if d.flag():
        scores = d.add("Add", *scores, d.leaf(d.array(F32, (q.shape[-2], tokens))))
    return d.add("MatMul", *d.add("Softmax", *scores, axis=-1), v)
