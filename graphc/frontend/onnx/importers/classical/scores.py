"""From scores of classes to what a classifier says."""

from __future__ import annotations

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
from graphc.ops.pointwise import Binary, Unary
from graphc.ops.softmax import Softmax
from graphc.ops.sorting import ArgMax

POST_TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
NUMBERS = "classlabels_ints", "classlabels_int64s"
"""What operators call labels that are whole numbers."""


def post_transform(node: OnnxNode) -> str:
    """Which of the functions a node wants of its scores."""
    return node.choice("post_transform", "NONE", POST_TRANSFORMS)


def transformed(emit: SizeEmit, scores: Value, wanted: str) -> Value:
    """Scores [N, classes] as a node wants them. A single one is left as it is."""
    refuse_unless(wanted not in ("SOFTMAX_ZERO", "PROBIT"), f"the function {wanted} of scores is not supported")
    if scores.shape[1] == 1:
        return scores
    if wanted == "SOFTMAX":
        return emit(Softmax(1), scores)
    return emit(Unary("Sigmoid"), scores) if wanted == "LOGISTIC" else scores


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
    refuse_unless(wanted != "PROBIT", "the function PROBIT of scores is not supported")
    other = emit(Binary("Sub"), emit.constant(1.0, like=score), score) if sum_to_one else emit(Unary("Neg"), score)
    return emit(Concat(1), other, score)


def check_count(found: int, classes: int) -> None:
    """Raise ModelError unless there are as many labels as classes."""
    if found != classes:
        raise ModelError(f"{found} labels for {classes} classes")
