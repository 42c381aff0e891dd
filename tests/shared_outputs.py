"""A model whose outputs have to do with one another."""

from __future__ import annotations

import numpy as np
import onnx
from frontend_models import model, node, value

WIDTH = 8


def shared_outputs() -> onnx.ModelProto:
    """Outputs that are computed, seen in another shape, given twice, inputs themselves, and weights."""
    nodes = [
        node("Relu", "x", "positive"),
        node("Reshape", "positive flat", "line"),
        node("Identity", "positive", "again"),
        node("Identity", "x", "same"),
        node("Transpose", "x", "turned"),
        node("Reshape", "x flat", "x_line"),
        node("MatMul", "turned y", "product"),
        node("Add", "product w", "sum"),
        node("Slice", "x zero two", "first"),
        node("Neg", "first", "negative"),
        node("Identity", "w", "constant"),
    ]
    inputs = [value("x", ["n", WIDTH]), value("y", ["n", WIDTH])]
    outputs = ["positive", "line", "again", "same", "x_line", "sum", "first", "negative", "product", "constant"]
    weights = {
        "w": np.eye(WIDTH, dtype=np.float32),
        "flat": np.array([-1]),
        "zero": np.array([0]),
        "two": np.array([2]),
    }
    return model(nodes, inputs, outputs, weights)
