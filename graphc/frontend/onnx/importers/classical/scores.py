"""From scores of classes to what a classifier says."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from graphc.errors import ModelError
from graphc.frontend.onnx.emit import SizeEmit
from graphc.frontend.onnx.importers.pointwise import converted
from graphc.frontend.onnx.importers.sizes import to_shape
from graphc.frontend.onnx.node import OnnxNode, refuse_unless
from graphc.ir import Value
from graphc.ir.types import I64
from graphc.ops.indexing import Gather
from graphc.ops.movement import Concat
from graphc.ops.pointwise import Binary, Unary, Where
from graphc.ops.reduce import Reduce
from graphc.ops.softmax import Softmax
from graphc.ops.sorting import ArgMax

NUMBERS = "classlabels_ints", "classlabels_int64s"
"""What operators call labels that are whole numbers."""


def _softmax(emit: SizeEmit, scores: Value) -> Value:
    return emit(Softmax(1), scores)


def _softmax_zero(emit: SizeEmit, scores: Value) -> Value:
    """A softmax of those that are not 0, which stay 0; halves where all are."""
    there = emit(Binary("Greater"), emit(Unary("Abs"), scores), emit.constant(1e-7, like=scores))
    most = emit(Reduce("max", (1,), True), scores)
    powers = emit(Unary("Exp"), emit(Binary("Sub"), scores, most))
    kept = emit(Where(), there, powers, emit.constant(0.0, like=scores))
    sums = emit(Reduce("sum", (1,), True), kept)
    none = emit(Binary("Equal"), sums, emit.constant(0.0, like=scores))
    return emit(Where(), none, emit.constant(0.5, like=scores), emit(Binary("Div"), kept, sums))


def _logistic(emit: SizeEmit, scores: Value) -> Value:
    return emit(Unary("Sigmoid"), scores)


def _probit(emit: SizeEmit, scores: Value) -> Value:
    """The quantiles of the normal distribution, by Winitzki's approximation, as other runtimes have them."""

    def number(value: float) -> Value:
        return emit.constant(value, like=scores)

    x = emit(Binary("Sub"), emit(Binary("Mul"), scores, number(2)), number(1))
    log = emit(Unary("Log"), emit(Binary("Mul"), emit(Binary("Sub"), number(1), x), emit(Binary("Add"), number(1), x)))
    half = emit(Binary("Add"), number(2 / (np.pi * 0.147)), emit(Binary("Mul"), number(0.5), log))
    square = emit(Binary("Sub"), emit(Binary("Mul"), half, half), emit(Binary("Mul"), log, number(1 / 0.147)))
    root = emit(Unary("Sqrt"), emit(Binary("Sub"), emit(Unary("Sqrt"), square), half))
    return emit(Binary("Mul"), emit(Binary("Mul"), number(np.sqrt(2)), emit(Unary("Sign"), x)), root)


POST_TRANSFORMS: dict[str, Callable[[SizeEmit, Value], Value] | None] = {
    "NONE": None,
    "SOFTMAX": _softmax,
    "LOGISTIC": _logistic,
    "SOFTMAX_ZERO": _softmax_zero,
    "PROBIT": _probit,
}
"""The functions of scores, in the order of the numbers that newer operators have for them."""


def post_transform(node: OnnxNode) -> str:
    """Which of the functions a node wants of its scores."""
    return node.choice("post_transform", "NONE", tuple(POST_TRANSFORMS))


def transformed(emit: SizeEmit, scores: Value, wanted: str) -> Value:
    """Scores [N, classes] as a node wants them. A single one is left as it is, but for PROBIT."""
    function = POST_TRANSFORMS[wanted]
    return scores if function is None or (scores.shape[1] == 1 and wanted != "PROBIT") else function(emit, scores)


def label_count(node: OnnxNode) -> int:
    """How many labels there are; 0 if they are not told."""
    return max(len(node.ints(name, [])) for name in NUMBERS) or len(node.strings("classlabels_strings", []))


def labelled(node: OnnxNode, emit: SizeEmit, place: Value) -> Value:
    """The labels [N] at places [N]. Refused if they are texts that somebody wants."""
    texts = node.strings("classlabels_strings", [])
    refuse_unless(
        not texts or not node.wants(0),
        "labels that are texts are not supported: what a model computes are numbers",
        "fit the model on numbers of classes, or take its scores alone as its output",
    )
    numbers = next((node.ints(name) for name in NUMBERS if node.has(name)), None)
    if numbers is None:
        return place
    return emit(Gather(0), emit.constant(np.array(numbers, I64)), place)


def best(emit: SizeEmit, scores: Value) -> Value:
    """The place [N] of the largest score, of scores [N, classes]; the first of equal ones."""
    return emit(ArgMax(1, keepdims=False), scores)


def above(emit: SizeEmit, score: Value, threshold: float) -> Value:
    """1 where a score [N, 1] is above a threshold, else 0: [N]."""
    found = emit(Binary("Greater"), score, emit.constant(threshold, like=score))
    return to_shape(emit, converted(emit, found, I64), (score.shape[0],))


def both(node: OnnxNode, emit: SizeEmit, score: Value, sum_to_one: bool) -> Value:
    """Scores [N, 2] of two classes, from that of the second one [N, 1]; that of the first one is its negative, or 1 less it."""
    wanted = post_transform(node)
    if wanted == "LOGISTIC":
        parts = emit(Unary("Sigmoid"), emit(Unary("Neg"), score)), emit(Unary("Sigmoid"), score)
        return emit(Concat(1), *parts)
    refuse_unless(wanted != "PROBIT", "the function PROBIT of a score of two classes is not supported")
    other = emit(Binary("Sub"), emit.constant(1.0, like=score), score) if sum_to_one else emit(Unary("Neg"), score)
    return emit(Concat(1), other, score)


def check_count(found: int, classes: int) -> None:
    """Raise ModelError unless there are as many labels as classes."""
    if found != classes:
        raise ModelError(f"{found} labels for {classes} classes")
