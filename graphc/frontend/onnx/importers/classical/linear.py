"""Linear models."""

from __future__ import annotations

import numpy as np

from graphc.errors import ModelError
from graphc.frontend.onnx.emit import SizeEmit
from graphc.frontend.onnx.importers.classical.domain import DOMAIN, features
from graphc.frontend.onnx.importers.classical.scores import (
    above,
    best,
    both,
    check_count,
    label_count,
    labelled,
    post_transform,
    transformed,
)
from graphc.frontend.onnx.node import OnnxNode
from graphc.frontend.onnx.table import onnx_op
from graphc.ir import Value
from graphc.ir.types import F32
from graphc.ops.matmul import MatMul
from graphc.ops.pointwise import Binary


@onnx_op("LinearRegressor", domain=DOMAIN)
def linear_regressor(node: OnnxNode, emit: SizeEmit) -> Value:
    """[N, features] to [N, targets]: products with the coefficients, plus intercepts."""
    return transformed(emit, _products(node, emit, node.int("targets", 1)), post_transform(node))


@onnx_op("LinearClassifier", domain=DOMAIN)
def linear_classifier(node: OnnxNode, emit: SizeEmit) -> tuple[Value, Value]:
    """The label of each row of features, and the scores of all classes; of two classes there may be one score."""
    labels = label_count(node)
    classes = len(node.floats("intercepts", [])) or labels
    scores = _products(node, emit, classes)
    if classes == 1:
        found = labelled(node, emit, above(emit, scores, 0.0))
        if labels == 2:
            return found, both(node, emit, scores, sum_to_one=True)
        return found, transformed(emit, scores, post_transform(node))
    check_count(labels, classes)
    return labelled(node, emit, best(emit, scores)), transformed(emit, scores, post_transform(node))


def _products(node: OnnxNode, emit: SizeEmit, rows: int) -> Value:
    x = features(node, emit)
    coefficients, intercepts = np.array(node.floats("coefficients"), F32), node.floats("intercepts", [])
    if rows < 1 or coefficients.size % rows or (intercepts and len(intercepts) != rows):
        raise ModelError(f"{coefficients.size} coefficients and {len(intercepts)} intercepts for {rows} rows of them")
    found = emit(MatMul(), x, emit.constant(np.ascontiguousarray(coefficients.reshape(rows, -1).T)))
    return emit(Binary("Add"), found, emit.constant(np.array(intercepts, F32))) if intercepts else found
