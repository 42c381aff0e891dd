"""What is done to features before a model sees them."""

from __future__ import annotations

import numpy as np

from graphc.errors import ModelError
from graphc.frontend.onnx.emit import SizeEmit
from graphc.frontend.onnx.importers.classical.domain import DOMAIN, features
from graphc.frontend.onnx.importers.pointwise import converted
from graphc.frontend.onnx.importers.sizes import to_shape
from graphc.frontend.onnx.importers.strings import strings
from graphc.frontend.onnx.node import OnnxNode, refuse_unless
from graphc.frontend.onnx.read import MAPS, MAPS_HELP
from graphc.frontend.onnx.table import onnx_op
from graphc.frontend.onnx.tensors import Refused
from graphc.ir import Value
from graphc.ir.types import F32, I64, STRING
from graphc.ops.movement import Concat
from graphc.ops.pointwise import Binary, Unary, Where
from graphc.ops.reduce import Reduce


@onnx_op("CastMap", "DictVectorizer", "ZipMap", domain=DOMAIN)
def maps(node: OnnxNode, emit: SizeEmit) -> Value:
    """Refused: what is made or read is no tensor."""
    raise Refused(MAPS, MAPS_HELP)


@onnx_op("Scaler", domain=DOMAIN)
def scaler(node: OnnxNode, emit: SizeEmit) -> Value:
    """(x - offset) * scale, of each feature or of all."""
    x = converted(emit, node.input(0), F32)
    for name, operator in (("offset", "Sub"), ("scale", "Mul")):
        if node.has(name):
            x = emit(Binary(operator), x, emit.constant(_of_each(node.floats(name), x, name).astype(F32)))
    return x


def _of_each(numbers: list[float] | list[int], x: Value, name: str) -> np.ndarray:
    """Numbers of the features of x, or one of all. Raises ModelError if they are too few or too many."""
    if len(numbers) not in (1, x.shape[-1]):
        raise ModelError(f"attribute {name} has {len(numbers)} numbers for {x.shape[-1]} features")
    return np.array(numbers)


@onnx_op("Normalizer", domain=DOMAIN)
def normalizer(node: OnnxNode, emit: SizeEmit) -> Value:
    """Each row divided by its largest element, or by its 1-norm or 2-norm; by nothing where that is 0."""
    x = converted(emit, node.input(0), F32)
    norm = node.choice("norm", "MAX", ("MAX", "L1", "L2"))
    size = emit(Unary("Abs"), x) if norm == "L1" else emit(Binary("Mul"), x, x) if norm == "L2" else x
    total = emit(Reduce("max" if norm == "MAX" else "sum", (x.type.rank - 1,), True), size)
    total = emit(Unary("Sqrt"), total) if norm == "L2" else total
    nothing = emit(Binary("Equal"), total, emit.constant(0.0, like=total))
    return emit(Binary("Div"), x, emit(Where(), nothing, emit.constant(1.0, like=total), total))


@onnx_op("Imputer", domain=DOMAIN)
def imputer(node: OnnxNode, emit: SizeEmit) -> Value:
    """Another number in place of one that stands for what is missing, which may be NaN."""
    x = node.input(0)
    if x.dtype.kind == "f":
        given, missing = node.floats("imputed_value_floats"), node.float("replaced_value_float", 0.0)
    else:
        given, missing = node.ints("imputed_value_int64s"), node.int("replaced_value_int64", 0)
    filled = emit.constant(_of_each(given, x, "imputed_value").astype(x.dtype))
    if missing != missing:
        absent = emit(Unary("Not"), emit(Binary("Equal"), x, x))
    else:
        absent = emit(Binary("Equal"), x, emit.constant(np.asarray(missing, x.dtype)))
    return emit(Where(), absent, filled, x)


@onnx_op("FeatureVectorizer", domain=DOMAIN)
def feature_vectorizer(node: OnnxNode, emit: SizeEmit) -> Value:
    """The features of all inputs, side by side."""
    parts = [features(node, emit, index) for index in range(len(node.given()))]
    widths = node.ints("inputdimensions", [part.shape[1] for part in parts])
    if widths != [part.shape[1] for part in parts]:
        raise ModelError(f"inputs of {', '.join(str(part.shape[1]) for part in parts)} features, not {widths}")
    return parts[0] if len(parts) == 1 else emit(Concat(1), *parts)


@onnx_op("OneHotEncoder", domain=DOMAIN)
def one_hot_encoder(node: OnnxNode, emit: SizeEmit) -> Value:
    """A new last axis, with 1 at the place of the category and 0 elsewhere."""
    refuse_unless(bool(node.int("zeros", 1)), "an error for unknown categories is not supported")
    x = node.input(0)
    if x.dtype == STRING:
        texts = strings(node, emit, 0)
        return emit.constant((texts[..., None] == np.array(node.strings("cats_strings"), STRING)).astype(F32))
    categories = emit.constant(np.array(node.ints("cats_int64s"), I64))
    whole = to_shape(emit, converted(emit, x, I64), (*x.shape, 1))
    return converted(emit, emit(Binary("Equal"), whole, categories), F32)
