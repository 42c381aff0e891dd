"""Operators that ONNX itself defines by others: the body that its schema gives stands in for an importer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import onnx
import onnx_ir

from graphc.errors import ModelError
from graphc.frontend.onnx.frame import ValueList
from graphc.frontend.onnx.node import OnnxNode
from graphc.shapes import Expr


@dataclass(frozen=True)
class Body:
    """A function to expand: `outputs` names a result for each output of the node that calls it, "" for one that the
    body does not make; `defaults` are the attributes that the node may leave out."""

    function: onnx_ir.Function
    outputs: tuple[str, ...]
    defaults: Mapping[str, onnx_ir.Attr]

    @classmethod
    def of(cls, function: onnx_ir.Function) -> Body:
        """A local function of the model."""
        defaults = {name: attribute for name, attribute in function.attributes.items() if attribute.value is not None}
        return cls(function, tuple(value.name or "" for value in function.outputs), defaults)


def has_schema_function(operator: str, domain: str, opsets: Mapping[str, int]) -> bool:
    """True if an operator's schema gives a body."""
    schema = _schema(operator, domain, opsets)
    return schema is not None and (schema.has_function or schema.has_context_dependent_function)


def schema_function(node: onnx_ir.Node, domain: str, opsets: Mapping[str, int], view: OnnxNode) -> Body | None:
    """The body of an operator at the model's opset, or None if its schema has none. Raises ModelError."""
    schema = _schema(node.op_type, domain, opsets)
    version = opsets.get(domain, 0)
    if schema is None:
        return None
    if schema.has_function:
        body = _plain_body(schema, version)
    elif schema.has_context_dependent_function:
        _check_inputs(schema, view)
        body = _body_for(schema, version, node, view)
    else:
        return None
    if body is None:
        return None
    made = {name for inner in body.node for name in inner.output} | set(body.input)
    outputs = tuple(name if name in made else "" for name in body.output)
    del body.output[:]
    body.output.extend(name for name in outputs if name)
    return Body(onnx_ir.serde.deserialize_function(body), outputs, _defaults(schema))


def _defaults(schema: Any) -> dict[str, onnx_ir.Attr]:
    """The values that an operator's attributes have when they are left out."""
    given = ((name, attribute.default_value) for name, attribute in schema.attributes.items())
    return {name: onnx_ir.from_proto(value) for name, value in given if value is not None and value.name}


def _schema(operator: str, domain: str, opsets: Mapping[str, int]) -> Any:
    try:
        return onnx.defs.get_schema(operator, opsets.get(domain, 0), domain)
    except onnx.defs.SchemaError:
        return None


def _check_inputs(schema: Any, view: OnnxNode) -> None:
    """onnx's builders of bodies read the types of inputs without looking whether they are there."""
    if len(view.inputs) > schema.max_input:
        raise ModelError(f"it has {len(view.inputs)} inputs, {schema.max_input} are known")
    for index in range(schema.min_input):
        if schema.inputs[index].option == onnx.defs.OpSchema.FormalParameterOption.Single and view.item(index) is None:
            raise ModelError(f"input {index} is missing")


def _plain_body(schema: Any, version: int) -> onnx.FunctionProto | None:
    """The newest body written for an opset that is not newer than the model's."""
    usable = [known for known in schema.function_opset_versions if known <= version]
    chosen = max(usable, default=schema.since_version)
    body = schema.get_function_with_opset_version(chosen)
    return onnx.FunctionProto.FromString(body) if body else None


def _body_for(schema: Any, version: int, node: onnx_ir.Node, view: OnnxNode) -> onnx.FunctionProto | None:
    usable = [known for known in schema.context_dependent_function_opset_versions if known <= version]
    chosen = max(usable, default=schema.since_version)
    types = [_type(value) for value in view.inputs]
    proto = onnx.NodeProto(op_type=node.op_type, domain=node.domain, name=node.name or "")
    proto.input.extend("" if value is None else f"input_{index}" for index, value in enumerate(view.inputs))
    proto.output.extend(value.name or "" for value in node.outputs)
    proto.attribute.extend(onnx_ir.to_proto(attribute) for attribute in view.attributes.values())
    try:
        body = schema.get_context_dependent_function_with_opset_version(
            chosen, proto.SerializeToString(), [type.SerializeToString() for type in types]
        )
    except (RuntimeError, ValueError) as error:
        raise ModelError(f"onnx cannot expand it: {error}") from error
    return onnx.FunctionProto.FromString(body) if body else None


def _type(value: object) -> onnx.TypeProto:
    from graphc.ir import Value

    if isinstance(value, ValueList):
        return onnx.helper.make_sequence_type_proto(_type(value.items[0]) if value.items else onnx.TypeProto())
    if not isinstance(value, Value):
        return onnx.TypeProto()
    dtype = onnx_ir.DataType.from_numpy(value.dtype)
    sizes = [str(size) if isinstance(size, Expr) else size for size in value.shape]
    return onnx.helper.make_tensor_type_proto(int(dtype), sizes)
