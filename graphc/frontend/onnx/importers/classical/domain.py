"""What all operators of classical machine learning have in common."""

from __future__ import annotations

import numpy as np

from graphc.errors import ModelError
from graphc.frontend.onnx.emit import SizeEmit
from graphc.frontend.onnx.importers.pointwise import converted
from graphc.frontend.onnx.importers.sizes import to_shape
from graphc.frontend.onnx.node import OnnxNode
from graphc.ir import Value
from graphc.ir.types import F32

DOMAIN = "ai.onnx.ml"


def features(node: OnnxNode, emit: SizeEmit, index: int = 0, keep: np.dtype = F32) -> Value:
    """An input [N, C] as float32, or as `keep` if it is of that type; [C] is one row."""
    x = node.input(index)
    if x.type.rank not in (1, 2):
        raise ModelError(f"features of {x.type}")
    rows = to_shape(emit, x, (1, *x.shape)) if x.type.rank == 1 else x
    return rows if x.dtype == keep else converted(emit, rows, F32)
