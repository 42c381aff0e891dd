"""The interface that `onnx.backend` defines, so that code and tests written for it run on graphc.

from graphc import onnx_backend
outputs = onnx_backend.prepare(model).run([array])
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx.backend.base import Backend as OnnxBackend
from onnx.backend.base import BackendRep, namedtupledict

from graphc.backends.rpc import Address, greet, is_address
from graphc.compiler import compile, compile_program
from graphc.errors import GraphcError, InputError, UnsupportedError
from graphc.runtime.devices import devices
from graphc.runtime.model import Model
from graphc.runtime.specializing import SpecializingModel
from graphc.targets.ggml.run.device.options import split_devices


class Prepared(BackendRep):
    """A compiled model, or one that is compiled for the values of the inputs that its sizes depend on."""

    def __init__(self, model: Model | SpecializingModel) -> None:
        self.model = model
        if isinstance(model, Model):
            self.inputs = [info.name for info in model.inputs]
            self._result = namedtupledict("Outputs", [info.name for info in model.outputs])
        else:
            self.inputs = model.inputs
            self._result = namedtupledict("Outputs", model.outputs)

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        """The outputs, in order, as a named tuple; `inputs` are arrays in the order of the model's, or by name (lists for
        sequences, None for an optional input without a value).

        Raises InputError if they do not fit.
        """
        if not isinstance(inputs, Mapping):
            given = [inputs] if isinstance(inputs, np.ndarray) else list(inputs)
            names = self.inputs
            if len(given) != len(names):
                raise InputError(f"{len(given)} inputs for a model that has {len(names)}: {', '.join(names)}")
            inputs = dict(zip(names, given, strict=True))
        if isinstance(self.model, SpecializingModel):
            return self._result(*self.model.run(inputs))
        results = self.model.run({name: np.asarray(array) for name, array in inputs.items()})
        return self._result(*results.values())


class Backend(OnnxBackend):
    """graphc as a backend of ONNX; devices are named as ONNX names them (`CPU`, `CUDA:0`) or as `graphc.load` does."""

    @classmethod
    def is_compatible(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> bool:
        """True if every node of the model is supported. Raises ModelError if the model is not valid."""
        try:
            compile_program(model)
        except UnsupportedError as error:
            return any(problem.unknown for problem in error.problems) and cls.supports_device(device)
        return cls.supports_device(device)

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> Prepared:
        """Compile a model; one in which a size depends on the elements of an input is compiled when it is run.

        More keywords (`memory`, `threads`, `dims`, …) are those of `graphc.compile`. Raises ModelError or UnsupportedError.
        """
        try:
            return Prepared(compile(model, device=_device(device), **kwargs))
        except UnsupportedError as error:
            if not any(problem.unknown for problem in error.problems):
                raise
        return Prepared(SpecializingModel(model, device=_device(device), **kwargs))

    @classmethod
    def run_model(cls, model: onnx.ModelProto, inputs: Any, device: str = "CPU", **kwargs: Any) -> tuple[Any, ...]:
        """Compile a model and run it once."""
        return cls.prepare(model, device, **kwargs).run(inputs)

    @classmethod
    def run_node(
        cls,
        node: onnx.NodeProto,
        inputs: Any,
        device: str = "CPU",
        outputs_info: Sequence[tuple[np.dtype, tuple[int, ...]]] | None = None,
        **kwargs: Any,
    ) -> tuple[Any, ...]:
        """Run one node on arrays, given in the order of its inputs (those left out are left out here too).

        `outputs_info` gives the dtype and shape of each output where ONNX cannot infer them; the keyword
        `opset_version` is the opset that the node is of.
        """
        super().run_node(node, inputs, device, outputs_info, **kwargs)
        arrays = [np.asarray(array) for array in inputs]
        model = _model_of(node, arrays, outputs_info, kwargs.get("opset_version", onnx.defs.onnx_opset_version()))
        kwargs.pop("opset_version", None)
        return cls.run_model(model, arrays, device, **kwargs)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """True if the installed ggml has the device, or all of several; servers have to answer."""
        there = [each.name.lower() for each in devices()]
        return all(
            _answers(each) if is_address(each) else bool({each, f"{each}0"} & set(there))
            for each in split_devices(_device(device))
        )


def _device(name: str) -> str:
    """ggml's names for ONNX's: `CUDA:1` is `cuda1`."""
    return ",".join(each if is_address(each) else each.replace(":", "") for each in split_devices(name))


def _answers(address: str) -> bool:
    try:
        greet(Address.parse(address))
    except GraphcError:
        return False
    return True


def _model_of(
    node: onnx.NodeProto,
    arrays: Sequence[np.ndarray],
    outputs_info: Sequence[tuple[np.dtype, tuple[int, ...]]] | None,
    opset: int,
) -> onnx.ModelProto:
    names = list(dict.fromkeys(name for name in node.input if name))
    if len(names) != len(arrays):
        raise InputError(f"{len(arrays)} inputs for a node that has {len(names)}: {', '.join(names)}")
    inputs = [_info(name, array.dtype, array.shape) for name, array in zip(names, arrays, strict=True)]
    written = [name for name in node.output if name]
    if outputs_info is None:
        outputs = [onnx.ValueInfoProto(name=name) for name in written]
    else:
        outputs = [
            _info(name, np.dtype(dtype), shape) for name, (dtype, shape) in zip(written, outputs_info, strict=True)
        ]
    graph = onnx.helper.make_graph([node], "node", inputs, outputs)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid(node.domain, opset)])
    return model if outputs_info is not None else onnx.shape_inference.infer_shapes(model, strict_mode=True)


def _info(name: str, dtype: np.dtype, shape: Sequence[int]) -> onnx.ValueInfoProto:
    return onnx.helper.make_tensor_value_info(name, onnx.helper.np_dtype_to_tensor_dtype(dtype), shape)


is_compatible = Backend.is_compatible
prepare = Backend.prepare
run_model = Backend.run_model
run_node = Backend.run_node
supports_device = Backend.supports_device
