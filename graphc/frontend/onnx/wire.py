"""Weights inside an ONNX file, found without reading them.

Protobuf would copy every weight of the file into its own memory, and again when it is asked for it. Here the file is mapped,
the places of large weights are found by walking the few levels of the encoding that lead to them (model, graph,
initializer, raw_data), and protobuf parses a copy of the file without these bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from graphc.errors import ModelError

MODEL_GRAPH, GRAPH_INITIALIZER, TENSOR_RAW_DATA = 7, 5, 9
"""Numbers of fields in onnx.proto."""

LARGE = 4096
"""Bytes from which on a weight is left where it is."""

VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5


@dataclass(frozen=True)
class Field:
    """A field of a message: the bytes `start:end` with its tag, of which `content:end` are its content."""

    number: int
    kind: int
    start: int
    content: int
    end: int


@dataclass(frozen=True)
class Split:
    """A file in two parts: the protobuf without large weights, and these by the initializer's position in the graph."""

    skeleton: bytes
    weights: dict[int, np.ndarray]


def split(data: np.ndarray) -> Split:
    """Take the large weights out of the bytes of a model; they are views. Raises ModelError if the bytes are no protobuf."""
    model = _Message()
    weights: dict[int, np.ndarray] = {}
    count = 0
    for field in fields(data, 0, len(data)):
        if field.number != MODEL_GRAPH or field.kind != LENGTH:
            model.copy(data[field.start : field.end])
            continue
        graph = _Message()
        for inner in fields(data, field.content, field.end):
            if inner.number != GRAPH_INITIALIZER or inner.kind != LENGTH:
                graph.copy(data[inner.start : inner.end])
                continue
            tensor, raw = _tensor(data, inner)
            if raw is not None:
                weights[count] = raw
            graph.nest(GRAPH_INITIALIZER, tensor)
            count += 1
        model.nest(MODEL_GRAPH, graph.bytes())
    return Split(model.bytes(), weights)


def _tensor(data: np.ndarray, field: Field) -> tuple[bytes, np.ndarray | None]:
    """An initializer without its raw data, and these, if they are large."""
    if field.end - field.content < LARGE:
        return data[field.content : field.end].tobytes(), None
    message, raw = _Message(), None
    for inner in fields(data, field.content, field.end):
        if inner.number == TENSOR_RAW_DATA and inner.kind == LENGTH:
            raw = data[inner.content : inner.end]
        else:
            message.copy(data[inner.start : inner.end])
    if raw is None or len(raw) < LARGE:
        return data[field.content : field.end].tobytes(), None
    return message.bytes(), raw


def fields(data: np.ndarray, start: int, end: int) -> Iterator[Field]:
    """The fields of the message in `start:end`. Raises ModelError where the encoding ends in the middle of one."""
    place = start
    while place < end:
        tag, content = _varint(data, place, end)
        number, kind = tag >> 3, tag & 7
        if kind == VARINT:
            _, stop = _varint(data, content, end)
        elif kind == LENGTH:
            size, content = _varint(data, content, end)
            stop = content + size
        elif kind in (FIXED32, FIXED64):
            stop = content + (4 if kind == FIXED32 else 8)
        else:
            raise ModelError("not an ONNX model, or damaged")
        if stop > end:
            raise ModelError("not an ONNX model, or damaged or truncated")
        yield Field(number, kind, place, content, stop)
        place = stop


def _varint(data: np.ndarray, place: int, end: int) -> tuple[int, int]:
    """A number of up to ten bytes of seven bits each, and the place after it."""
    result = 0
    for shift in range(0, 70, 7):
        if place >= end:
            break
        byte = int(data[place])
        place += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return result, place
    raise ModelError("not an ONNX model, or damaged or truncated")


class _Message:
    """A message that is being written."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def copy(self, field: np.ndarray) -> None:
        """A field as it is."""
        self._parts.append(field.tobytes())

    def nest(self, number: int, content: bytes) -> None:
        """A message as a field."""
        self._parts += [_encoded(number << 3 | LENGTH), _encoded(len(content)), content]

    def bytes(self) -> bytes:
        """What is written so far."""
        return b"".join(self._parts)


def _encoded(number: int) -> bytes:
    result = bytearray()
    while number >= 0x80:
        result.append(number & 0x7F | 0x80)
        number >>= 7
    result.append(number)
    return bytes(result)
