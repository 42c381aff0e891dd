"""Weights that are stored sparsely, as numbers and their places: they are stored densely instead."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

import numpy as np
import onnx
from onnx import numpy_helper

from graphc.errors import ModelError

LARGEST = 1 << 30
"""Elements that a sparse weight may have: a few bytes of a file could ask for any number."""


def with_dense(proto: onnx.ModelProto) -> onnx.ModelProto:
    """The model with dense weights; itself, if it has no others. Raises ModelError for numbers and places that do not fit."""
    if not any(_is_sparse(graph) for graph in graphs(proto.graph)):
        return proto
    made = onnx.ModelProto()
    made.CopyFrom(proto)
    for graph in graphs(made.graph):
        graph.initializer.extend(dense(each) for each in graph.sparse_initializer)
        del graph.sparse_initializer[:]
        for attribute in (each for node in graph.node for each in node.attribute if each.HasField("sparse_tensor")):
            attribute.t.CopyFrom(dense(attribute.sparse_tensor))
            attribute.name, attribute.type = "value", onnx.AttributeProto.TENSOR
            attribute.ClearField("sparse_tensor")
    return made


def dense(tensor: onnx.SparseTensorProto) -> onnx.TensorProto:
    """All elements of a tensor; its places are numbers of elements, or one for each axis. Raises ModelError."""
    name, shape = tensor.values.name, tuple(tensor.dims)
    if min(shape, default=1) < 0 or prod(shape) > LARGEST:
        raise ModelError(f"the sparse weight {name} is of {list(shape)}")
    try:
        values, places = numpy_helper.to_array(tensor.values).reshape(-1), numpy_helper.to_array(tensor.indices)
        if places.dtype.kind != "i":
            raise ValueError(f"its places are {places.dtype.name}")
        if places.ndim == 2 and len(values):
            places = np.ravel_multi_index(tuple(places.T), shape)
        if places.shape != values.shape or (len(places) and not 0 <= places.min() <= places.max() < prod(shape)):
            raise ValueError("its places do not fit its numbers")
    except (ValueError, TypeError) as error:
        raise ModelError(f"the sparse weight {name} is not valid: {error}") from error
    found = np.zeros(prod(shape), values.dtype)
    found[places] = values
    return numpy_helper.from_array(found.reshape(shape), name)


def graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """A graph and all that are within it."""
    yield graph
    for node in graph.node:
        for inner in inner_graphs(node):
            yield from graphs(inner)


def inner_graphs(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """The graphs that are attributes of a node."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def _is_sparse(graph: onnx.GraphProto) -> bool:
    return bool(graph.sparse_initializer) or any(
        each.HasField("sparse_tensor") for node in graph.node for each in node.attribute
    )
