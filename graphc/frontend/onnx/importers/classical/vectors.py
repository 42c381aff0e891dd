"""Support vector machines."""

from __future__ import annotations

from itertools import combinations

import numpy as np

from graphc.errors import ModelError
from graphc.frontend.onnx.emit import SizeEmit
from graphc.frontend.onnx.importers.classical.domain import DOMAIN, features
from graphc.frontend.onnx.importers.classical.scores import (
    best,
    both,
    label_count,
    labelled,
    post_transform,
    transformed,
)
from graphc.frontend.onnx.importers.pointwise import converted
from graphc.frontend.onnx.importers.sizes import to_shape
from graphc.frontend.onnx.node import OnnxNode, refuse_unless
from graphc.frontend.onnx.table import onnx_op
from graphc.ir import Value
from graphc.ir.types import F32
from graphc.ops.coupling import PairwiseCoupling
from graphc.ops.matmul import MatMul
from graphc.ops.pointwise import Binary, Unary, Where
from graphc.ops.reduce import Reduce

KERNELS = ("LINEAR", "POLY", "RBF", "SIGMOID")


@onnx_op("SVMRegressor", domain=DOMAIN)
def svm_regressor(node: OnnxNode, emit: SizeEmit) -> Value:
    """[N, features] to [N, 1]: sums of what the kernel says of each support vector; of one class, 1 inside and -1 outside."""
    count = node.int("n_supports", 0)
    x, coefficients = features(node, emit), np.array(node.floats("coefficients"), F32)
    seen = _kernel(node, emit, x, _support_vectors(node, count)) if count else x
    if coefficients.size != seen.shape[1]:
        raise ModelError(f"{coefficients.size} coefficients for {seen.shape[1]} vectors or features")
    found = _plus(emit, emit(MatMul(), seen, emit.constant(coefficients[:, None])), node.floats("rho")[:1])
    if not node.int("one_class", 0):
        return transformed(emit, found, post_transform(node))
    inside = emit(Binary("Greater"), found, emit.constant(0.0, like=found))
    return emit(Where(), inside, emit.constant(1.0, like=found), emit.constant(-1.0, like=found))


@onnx_op("SVMClassifier", domain=DOMAIN)
def svm_classifier(node: OnnxNode, emit: SizeEmit) -> tuple[Value, Value]:
    """The label of each row of features, for which most pairs of classes vote, and the score of each pair, of two classes
    both; or the probabilities of classes, if the machine tells those of pairs."""
    counts, classes = node.ints("vectors_per_class", []), label_count(node)
    refuse_unless(
        bool(counts), "a linear machine without support vectors is not supported", "write it as LinearClassifier"
    )
    if len(counts) != classes or classes < 2:
        raise ModelError(f"vectors of {len(counts)} classes for {classes} labels")
    vectors = _support_vectors(node, sum(counts))
    table = np.array(node.floats("coefficients"), F32)
    pairs = list(combinations(range(classes), 2))
    if table.size != (classes - 1) * sum(counts) or len(node.floats("rho")) < len(pairs):
        raise ModelError(f"{table.size} coefficients for {sum(counts)} vectors of {classes} classes")
    table = table.reshape(classes - 1, -1)
    ends = np.cumsum([0, *counts])
    weights = np.zeros((len(vectors), len(pairs)), F32)
    for number, (a, b) in enumerate(pairs):
        weights[ends[a] : ends[a + 1], number] = table[b - 1, ends[a] : ends[a + 1]]
        weights[ends[b] : ends[b + 1], number] = table[a, ends[b] : ends[b + 1]]
    seen = _kernel(node, emit, features(node, emit), vectors)
    scores = _plus(emit, emit(MatMul(), seen, emit.constant(weights)), node.floats("rho")[: len(pairs)])
    first = converted(emit, emit(Binary("Greater"), scores, emit.constant(0.0, like=scores)), F32)
    votes = np.zeros((2, len(pairs), classes), F32)
    for number, pair in enumerate(pairs):
        votes[(0, 1), number, pair] = 1
    counted = emit(MatMul(), first, emit.constant(votes[0] - votes[1]))
    found = labelled(node, emit, best(emit, _plus(emit, counted, votes[1].sum(0))))
    if node.has("prob_a"):
        return found, transformed(emit, _probabilities(node, emit, scores, classes), post_transform(node))
    if classes == 2:
        return found, both(node, emit, scores, sum_to_one=post_transform(node).startswith("SOFTMAX"))
    return found, transformed(emit, scores, post_transform(node))


def _probabilities(node: OnnxNode, emit: SizeEmit, scores: Value, classes: int) -> Value:
    """[N, classes] of the scores of pairs [N, pairs]."""
    factors, offsets = (np.array(node.floats(name, []), F32) for name in ("prob_a", "prob_b"))
    pairs = scores.shape[1]
    if not len(factors) == len(offsets) == pairs:
        raise ModelError(f"{len(factors)} and {len(offsets)} numbers for the probabilities of {pairs} pairs of classes")
    scaled = _plus(emit, emit(Binary("Mul"), scores, emit.constant(factors)), offsets)
    first = emit(Unary("Sigmoid"), emit(Unary("Neg"), scaled))
    for function, limit in (("Max", 1e-7), ("Min", 1 - 1e-7)):
        first = emit(Binary(function), first, emit.constant(limit, like=first))
    return emit(PairwiseCoupling(classes), first)


def _support_vectors(node: OnnxNode, count: int) -> np.ndarray:
    """[vectors, features]."""
    numbers = np.array(node.floats("support_vectors"), F32)
    if count < 1 or numbers.size % count:
        raise ModelError(f"{numbers.size} numbers of {count} support vectors")
    return numbers.reshape(count, -1)


def _kernel(node: OnnxNode, emit: SizeEmit, x: Value, vectors: np.ndarray) -> Value:
    """[N, vectors]: what the kernel says of rows and support vectors."""
    kind = node.choice("kernel_type", "LINEAR", KERNELS)
    gamma, offset, degree = node.floats("kernel_params", [0.0, 0.0, 0.0])
    if kind == "RBF":
        wide = to_shape(emit, x, (x.shape[0], 1, x.shape[1]))
        apart = emit(Binary("Sub"), wide, emit.constant(vectors[None]))
        distance = emit(Reduce("sum", (2,), False), emit(Binary("Mul"), apart, apart))
        return emit(Unary("Exp"), emit(Binary("Mul"), distance, emit.constant(-gamma, like=distance)))
    found = emit(MatMul(), x, emit.constant(np.ascontiguousarray(vectors.T)))
    if kind == "LINEAR":
        return found
    found = _plus(emit, emit(Binary("Mul"), found, emit.constant(gamma, like=found)), [offset])
    if kind == "SIGMOID":
        return emit(Unary("Tanh"), found)
    return emit(Binary("Pow"), found, emit.constant(degree, like=found))


def _plus(emit: SizeEmit, x: Value, numbers: list[float] | np.ndarray) -> Value:
    return emit(Binary("Add"), x, emit.constant(np.array(numbers, F32)))
