"""Rotary embeddings."""

from __future__ import annotations

from graphc.shapes import divisible, product
from graphc.targets.ggml.program.composites.composite import Expansion, composite
from graphc.targets.ggml.program.rules import require
from graphc.targets.ggml.program.tensor import Tensor


@composite(behind={"rest": "graphc_concat"}, made=6)
def rotary(call: Expansion, x: Tensor, cos: Tensor, sin: Tensor, rest: Tensor | None, interleaved: bool) -> Tensor:
    """x times cosines, plus x with the elements of each pair exchanged times sines, and behind each row what stays as it is.
    Pairs are neighbours (`interleaved`), or the elements at one place of the two halves of a row. Cosines and sines broadcast
    to x before the last axis."""
    require(isinstance(x.ne[0], int) and divisible(x.ne[0], 2), "rows are of pairs")
    rotated = call("ggml_add", call("ggml_mul", x, cos), call("ggml_mul", exchanged(call, x, interleaved), sin))
    return rotated if rest is None else call("ggml_concat", rotated, rest, 0)


def exchanged(call: Expansion, x: Tensor, interleaved: bool) -> Tensor:
    """x with the elements of each pair exchanged."""
    pairs = x
    if interleaved:
        pairs = call("ggml_reshape_4d", x if x.contiguous else call("ggml_cont", x), 2, product(x.ne) // 2, 1, 1)
    half, *sizes = pairs.ne[0] // 2, *pairs.ne[1:]
    second, first = (
        call("ggml_view_4d", pairs, half, *sizes, *pairs.nb[1:], start * half * pairs.nb[0]) for start in (1, 0)
    )
    joined = call("ggml_concat", second, first, 0)
    return call("ggml_reshape_4d", joined, *x.ne) if interleaved else joined
