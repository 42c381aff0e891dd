"""Reading and checking the file. What leaves this module is a model that is well formed, with no weight read yet."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import onnx
import onnx_ir
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message

from graphc.errors import ModelError, Problem, UnsupportedError
from graphc.files import map_file
from graphc.frontend.onnx.order import in_order
from graphc.frontend.onnx.sparse import graphs, with_dense
from graphc.frontend.onnx.wire import split

SAID_ELSEWHERE = ("No Op registered for", "is deprecated in", "should be stored in")
"""What onnx's checker says of operators that it does not know or that became others, and of external data; here the importer
and the reader of tensors do."""

MAPS, MAPS_HELP = (
    "maps are not supported, only tensors",
    "export the model without them (skl2onnx: options={'zipmap': False})",
)
"""What is said of values that are maps, and what helps."""


def read(source: str | os.PathLike | onnx.ModelProto | onnx_ir.Model) -> tuple[onnx_ir.Model, Path | None]:
    """The model, and the folder in which its external data lies (None for a model in memory).

    Raises ModelError, and UnsupportedError for what onnx_ir cannot hold.
    """
    if isinstance(source, onnx_ir.Model):
        return source, None
    if isinstance(source, onnx.ModelProto):
        return _checked(source), None
    path = Path(source)
    raw = _mapped(path)
    try:
        parts = split(raw)
    except ModelError as error:
        raise ModelError(f"{path}: {error}") from error
    proto = onnx.ModelProto()
    try:
        proto.ParseFromString(parts.skeleton)
    except (DecodeError, RecursionError) as error:
        raise ModelError(f"{path} is not an ONNX model, or is damaged or truncated") from error
    if not proto.HasField("graph"):
        raise ModelError(f"{path} is not an ONNX model: it has no graph")
    model = _checked(proto)
    for index, raw in parts.weights.items():
        tensor = proto.graph.initializer[index]
        if tensor.name in model.graph.initializers:
            model.graph.initializers[tensor.name].const_value = _stored(tensor, raw)
    return model, path.absolute().parent


def _mapped(path: Path) -> np.ndarray:
    try:
        return map_file(path)
    except OSError as error:
        raise ModelError(f"cannot read {path}: {error.strerror or error}") from error


def _stored(tensor: onnx.TensorProto, raw: np.ndarray) -> onnx_ir.LazyTensor:
    """An initializer whose bytes lie in the mapped file."""
    dtype = onnx_ir.DataType(tensor.data_type)

    def read_array() -> onnx_ir.TensorProtocol:
        if dtype.bitwidth < 8:
            packed = onnx.TensorProto(
                name=tensor.name, data_type=tensor.data_type, dims=tensor.dims, raw_data=raw.tobytes()
            )
            return onnx_ir.serde.TensorProtoTensor(packed)
        array = np.frombuffer(raw, dtype.numpy()).reshape(tuple(tensor.dims))
        return onnx_ir.Tensor(array, dtype=dtype, name=tensor.name)

    return onnx_ir.LazyTensor(read_array, dtype, onnx_ir.Shape(tensor.dims), name=tensor.name)


def _checked(proto: onnx.ModelProto) -> onnx_ir.Model:
    _check_text(proto)
    proto = in_order(with_dense(proto))
    _check(proto)
    return _deserialize(proto)


def _check_text(message: Message) -> None:
    """Raise ModelError if a name is not UTF-8; protobuf then gives bytes for it."""
    for field, content in message.ListFields():
        if field.type == FieldDescriptor.TYPE_STRING:
            if isinstance(content, bytes) or (
                not isinstance(content, str) and any(isinstance(x, bytes) for x in content)
            ):
                raise ModelError(f"not a valid ONNX model: {field.name} is not UTF-8 text")
        elif field.type == FieldDescriptor.TYPE_MESSAGE:
            for inner in [content] if isinstance(content, Message) else content:
                _check_text(inner)


def _check(proto: onnx.ModelProto) -> None:
    """Run onnx's own checker on everything but the weights."""
    try:
        onnx.checker.check_model(_skeleton(proto))
    except onnx.checker.ValidationError as error:
        text = str(error)
        if not any(known in text for known in SAID_ELSEWHERE):
            raise ModelError(f"not a valid ONNX model: {_first_lines(text)}") from error
    except (ValueError, RuntimeError, TypeError) as error:
        raise ModelError(f"not a valid ONNX model: {_first_lines(str(error))}") from error


def _skeleton(proto: onnx.ModelProto) -> onnx.ModelProto:
    """A copy in which weights are inputs, so that the checker neither copies them nor looks for their files. Inputs and
    outputs all have types: the checker wants more of them than models in use have, and than the importer needs."""
    model = onnx.ModelProto(ir_version=proto.ir_version)
    model.opset_import.extend(proto.opset_import)
    model.functions.extend(proto.functions)
    graph, source = model.graph, proto.graph
    graph.name = source.name
    graph.node.extend(source.node)
    graph.input.extend(source.input)
    graph.output.extend(source.output)
    for value in (*graph.input, *graph.output):
        if value.type.WhichOneof("value") in (None, "tensor_type"):
            tensor = value.type.tensor_type
            tensor.elem_type = tensor.elem_type or onnx.TensorProto.FLOAT
            tensor.shape.SetInParent()
    given = {value.name for value in source.input}
    for tensor in source.initializer:
        if tensor.name not in given:
            graph.input.append(onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims))
    return model


def _deserialize(proto: onnx.ModelProto) -> onnx_ir.Model:
    maps = [each.name for graph in graphs(proto.graph) for each in (*graph.input, *graph.output) if _is_map(each.type)]
    if maps:
        raise UnsupportedError([Problem(name, "map", MAPS, MAPS_HELP) for name in maps])
    try:
        with quiet("onnx_ir"):
            return onnx_ir.from_proto(proto)
    except NotImplementedError as error:
        raise UnsupportedError([Problem("model", "model", _first_lines(str(error)))]) from error
    except Exception as error:  # onnx_ir raises whatever its assumptions fail with
        raise ModelError(f"not a valid ONNX model: {_first_lines(_root(error))}") from error


def _is_map(kind: onnx.TypeProto) -> bool:
    """True for a map, or a sequence of them."""
    if kind.HasField("sequence_type"):
        return _is_map(kind.sequence_type.elem_type)
    return bool(kind.HasField("map_type"))


@contextmanager
def quiet(library: str) -> Iterator[None]:
    """Keep a library's warnings about a bad model from stderr: what is wrong is raised, in one message."""
    logger = logging.getLogger(library)
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)


def _root(error: BaseException) -> str:
    while error.__cause__ is not None:
        error = error.__cause__
    return str(error)


def _first_lines(text: str) -> str:
    """The beginning of another library's message, on one line."""
    return " ".join(text.split())[:300]
