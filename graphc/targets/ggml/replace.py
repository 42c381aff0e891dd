"""Which calls of a section code of our own computes instead of ggml: single ones, and patterns of several.

Where there are several ways, the one that was measured to be the fastest is taken (`choices.py`), or one by a fixed rule.
`replace.cpp` of the C++ project finds the same among ggml's tensors, so that both give the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

from graphc.ggml_library import ggml
from graphc.targets.ggml.calls import RESHAPES, fits_workspace
from graphc.targets.ggml.choices import attention_key, convolution_key
from graphc.targets.ggml.images import COLUMN_LIMIT
from graphc.targets.ggml.products import CONVOLUTIONS, SOFTMAXES, Own, Products
from graphc.targets.ggml.program import Arg, Call, Tensor

if TYPE_CHECKING:
    from graphc.targets.ggml.built import BuiltGraph

Way = Callable[["BuiltGraph", Products, Call, Sequence[Any]], Any]


def find_own(graph: BuiltGraph, products: Products, call: Call, args: Sequence[Any]) -> Any:
    """The function of ours that computes a call, given ggml's arguments of it, or a tensor of ggml's that stands for it; None if
    ggml computes what the call says."""
    return next((own for way in WAYS.get(call.function, ()) if (own := way(graph, products, call, args))), None)


def _product(graph: BuiltGraph, products: Products, call: Call, args: Sequence[Any]) -> Own | None:
    return products.product(args[0], args[1])


def _convolution(graph: BuiltGraph, products: Products, call: Call, args: Sequence[Any]) -> Any:
    kernel = args[0].contents
    ways = {
        "winograd": lambda: products.convolution("winograd", *args),
        "tiles": lambda: products.convolution("conv_2d", *args),
        "direct": lambda: (
            kernel.type == ggml.GGML_TYPE_F32
            and fits_workspace(prod(kernel.ne[:3]), kernel.ne[3])
            and ggml.ggml_conv_2d_direct(graph.context, *args)
        ),
    }
    order = ("winograd", "tiles") if products.prefers_winograd(*args) else ("tiles",)
    return graph.choose(call, convolution_key(*args), ways, order)


def _gelu(graph: BuiltGraph, products: Products, call: Call, args: Sequence[Any]) -> Own | None:
    return products.gelu(args[0])


def _relu(graph: BuiltGraph, products: Products, call: Call, args: Sequence[Any]) -> Own | None:
    return products.relu(args[0], inner_own(graph, call.args[0]))


@dataclass(frozen=True)
class Attention:
    """What a product with the softmax of another product is made of: ggml's tensors, and the values in the ways in which they
    may be read: as the call has them, [keys, features, heads], and before they were copied so."""

    k: Any
    q: Any
    values: Sequence[Any]
    mask: Any
    factor: float


def attention_of(graph: BuiltGraph, call: Call, args: Sequence[Any]) -> Attention | None:
    """The attention whose last product a call is; the calls between are then not computed."""
    weights = made_here(graph, call.args[1], SOFTMAXES)
    scores = weights and made_here(graph, weights.args[0], ("ggml_mul_mat",))
    if weights is None or scores is None:
        return None
    mask, factor, bias = weights.args[1:] or (None, 1.0, 0.0)
    if bias != 0.0 or not isinstance(factor, float):
        return None
    k, q, masked = (graph.argument(arg) for arg in (*scores.args, mask))
    copied = made_here(graph, call.args[0], ("ggml_cont",))
    values = [graph.argument(copied.args[0]), args[0]] if copied else [args[0]]
    return Attention(k, q, values, masked, factor)


def scores_bytes(found: Attention) -> int:
    """What the matrix of scores takes."""
    q = found.q.contents.ne
    return int(4 * found.k.contents.ne[1] * q[1] * q[2] * q[3])


def _attention(graph: BuiltGraph, products: Products, call: Call, args: Sequence[Any]) -> Any:
    found = attention_of(graph, call, args)
    if found is None:
        return None
    readable = (products.attention(found.k, found.q, v, found.mask, found.factor) for v in found.values)
    ways = {
        "flash": lambda: next((own for own in readable if own), None),
        "scores": lambda: (
            scores_bytes(found) <= COLUMN_LIMIT
            and (_product(graph, products, call, args) or ggml.ggml_mul_mat(graph.context, *args))
        ),
    }
    order = ("flash",) if products.prefers_attention(found.q) else ("scores",)
    return graph.choose(call, attention_key(found.k, found.q, args[0], found.mask), ways, order)


def _merged_attention(graph: BuiltGraph, products: Products, call: Call, args: Sequence[Any]) -> Own | None:
    """Attention that writes its result as the copy of it does that has the heads beside one another."""
    turned = inner(graph, call.args[0], ("ggml_permute",))
    if turned is None or turned.args[1:] != (0, 2, 1, 3):
        return None
    own = inner_own(graph, turned.args[0])
    return own and products.merged(own)


def _summed(graph: BuiltGraph, products: Products, call: Call, args: Sequence[Any]) -> Own | None:
    """A product or convolution that nothing else reads, and what is added to it."""
    for index in (0, 1):
        own = inner_own(graph, call.args[index])
        if own is not None and (sum := products.summed(own, args[index], args[1 - index])):
            return sum
    return None


def _norm(graph: BuiltGraph, products: Products, call: Call, args: Sequence[Any]) -> Own | None:
    return products.norm(args[0], args[1], call.function == "ggml_norm")


def _factor(graph: BuiltGraph, products: Products, call: Call, args: Sequence[Any]) -> Own | None:
    """A normalization with its scale, and that with its shift."""
    own = inner_own(graph, call.args[0])
    return own and products.scaled(own, args[0], args[1], 1 if call.function == "ggml_mul" else 2)


def _group_norm(graph: BuiltGraph, products: Products, call: Call, args: Sequence[Any]) -> Own | None:
    """A group normalization with its scale and shift."""
    scaled = inner(graph, call.args[0], ("ggml_mul",))
    norm = scaled and inner(graph, scaled.args[0], ("ggml_group_norm",))
    if scaled is None or norm is None:
        return None
    groups, epsilon = norm.args[1:]
    assert isinstance(groups, int)
    assert isinstance(epsilon, float)
    x, scale = (graph.argument(arg) for arg in (norm.args[0], scaled.args[1]))
    return products.group_norm(x, scale, args[1], groups, epsilon)


def _gate(graph: BuiltGraph, products: Products, call: Call, args: Sequence[Any]) -> Own | None:
    """x times the sigmoid of x, of a multiple of x, or of a x^3 + b x."""
    for index in (0, 1):
        x = call.args[1 - index]
        sigmoid = inner(graph, call.args[index], ("ggml_sigmoid",))
        factors = sigmoid and _slope(graph, sigmoid.args[0], x)
        if factors and isinstance(x, Tensor) and x.ne == call.result.ne:
            return products.gate(args[1 - index], *factors)
    return None


def _gated(graph: BuiltGraph, products: Products, call: Call, args: Sequence[Any]) -> Own | None:
    """An activation times what it gates."""
    for index in (0, 1):
        own = inner_own(graph, call.args[index])
        if own is not None and (gated := products.gated(own, args[index], args[1 - index])):
            return gated
    return None


def _slope(graph: BuiltGraph, inside: Arg, x: Arg) -> tuple[float, float] | None:
    """The factors of x and of its cube whose sum a tensor is."""
    if same(inside, x):
        return 1.0, 0.0
    call = inner(graph, inside, ("ggml_scale", "ggml_mul"))
    if call is None:
        return None
    if call.function == "ggml_scale":
        return (_float(call.args[1]), 0.0) if same(call.args[0], x) else None
    slope = inner(graph, call.args[0], ("ggml_scale_bias",))
    square = slope and inner(graph, slope.args[0], ("ggml_sqr",))
    if slope is None or square is None or not same(square.args[0], x) or not same(call.args[1], x):
        return None
    return _float(slope.args[2]), _float(slope.args[1])


def _float(arg: Arg) -> float:
    assert isinstance(arg, float)
    return arg


def _own_silu(graph: BuiltGraph, products: Products, call: Call, args: Sequence[Any]) -> Own | None:
    return products.gate(args[0], 1.0, 0.0)


def _silu(graph: BuiltGraph, products: Products, call: Call, args: Sequence[Any]) -> Own | None:
    """SiLU of what one of ours gives."""
    own = inner_own(graph, call.args[0])
    return own and products.silu(own)


def _rotary(graph: BuiltGraph, products: Products, call: Call, args: Sequence[Any]) -> Own | None:
    """x times cosines, plus x with the elements of each pair exchanged times sines."""
    straight, turned = (inner(graph, arg, ("ggml_mul",)) for arg in call.args)
    joined = turned and inner(graph, turned.args[0], ("ggml_concat", *RESHAPES))
    if joined is not None and joined.function in RESHAPES:
        joined = inner(graph, joined.args[0], ("ggml_concat",))
    if straight is None or turned is None or joined is None or joined.args[2] != 0:
        return None
    x, cos, sin = (graph.argument(arg) for arg in (*straight.args, turned.args[1]))
    second, first = (graph.argument(arg) for arg in joined.args[:2])
    return products.rotary(x, second, first, cos, sin)


def _turned(graph: BuiltGraph, products: Products, call: Call, args: Sequence[Any]) -> Own | None:
    return products.turned(args[0])


def _rest(graph: BuiltGraph, products: Products, call: Call, args: Sequence[Any]) -> Own | None:
    """What stays as it is behind elements that were turned."""
    own = inner_own(graph, call.args[0])
    return own and products.rest(own, args[1]) if call.args[2] == 0 else None


def _concat(graph: BuiltGraph, products: Products, call: Call, args: Sequence[Any]) -> Own | None:
    """A concatenation, and those along the same axis that it alone reads."""
    return products.concat(args[:2], [inner_own(graph, arg) for arg in call.args[:2]], args[2])


def _pad(graph: BuiltGraph, products: Products, call: Call, args: Sequence[Any]) -> Own | None:
    return products.pad(args[0], args[1::2])


WAYS: Mapping[str, Sequence[Way]] = {
    "ggml_mul_mat": (_attention, _product),
    **dict.fromkeys(CONVOLUTIONS, (_convolution,)),
    "ggml_cont": (_merged_attention, _turned),
    "ggml_relu": (_relu,),
    "ggml_gelu_erf": (_gelu,),
    "ggml_norm": (_norm,),
    "ggml_rms_norm": (_norm,),
    "ggml_mul": (_factor, _gate, _gated),
    "ggml_add": (_rotary, _summed, _factor, _group_norm),
    "ggml_concat": (_rest, _concat),
    "ggml_pad_ext": (_pad,),
    "ggml_silu": (_silu, _own_silu),
}
"""The calls that may be replaced, and how, the larger pattern first."""


def inner(graph: BuiltGraph, arg: Any, functions: Sequence[str]) -> Call | None:
    """As `made_here`, where nothing else reads the tensor."""
    call = made_here(graph, arg, functions)
    return call if call is not None and graph.section.uses[call.result.call] == 1 else None


def same(a: Arg, b: Arg) -> bool:
    """Whether two arguments are the same tensor of ggml's, though perhaps of different rank here."""
    if not isinstance(a, Tensor) or not isinstance(b, Tensor):
        return False
    return (a.call, a.weight, a.input) == (b.call, b.weight, b.input)


def inner_own(graph: BuiltGraph, arg: Any) -> Own | None:
    """What of ours computes a tensor that nothing else reads."""
    if not isinstance(arg, Tensor) or graph.section.uses.get(arg.call) != 1:
        return None
    return graph.own.get(arg.call)


def made_here(graph: BuiltGraph, arg: Any, functions: Sequence[str]) -> Call | None:
    """The call of the section, of one of these functions, that makes a tensor."""
    if not isinstance(arg, Tensor) or arg.call not in graph.results or arg.call in graph.section.reads:
        return None
    call = graph.program.calls[arg.call]
    return call if call.function in functions else None
