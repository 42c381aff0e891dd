"""From a network to a stripped engine: exported without its numbers, compiled, written without weights."""

from __future__ import annotations

import contextlib
import gzip
import tempfile
from math import prod
from pathlib import Path
from typing import Any

import numpy
import onnx_ir
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from examples.image_engines.networks import Config, Kind, with_forward, without_numbers
from examples.image_engines.table import Shipped
from examples.quiet import quiet
from graphc.compiler import Settings, compile_program, weights_of
from graphc.errors import ModelError
from graphc.targets.ggml.engine import write_engine
from graphc.weights.recipes import recipes_of

OPSET = 20
"""The opset that dynamo's exporter translates to by itself."""

NUMBERS = "numbers"
"""The file in which all parameters lie, at its beginning: it is as large as the largest, and all but `NOISE` takes no room."""

FIRST_LAYERS = ("conv_in.weight", "x_embedder.weight", "adapter.conv_in.weight")
"""The weights that multiply a network's first input."""

NOISE = 1 << 18
"""So many numbers are of no particular kind; of zeros, rules would make something else."""


def pretended(module: nn.Module, mode: FakeTensorMode) -> None:
    """Have parameters look as if they lay in the host's memory, in float32."""
    with mode:
        for owner in module.modules():
            for name, parameter in owner._parameters.items():
                if parameter is not None:
                    fake = torch.empty(parameter.shape, dtype=torch.float32)
                    owner._parameters[name] = nn.Parameter(fake, requires_grad=False)


def exported(kind: Kind, config: Config) -> onnx_ir.Model:
    """The network in ONNX; its parameters have names, types and shapes, but no numbers."""
    with without_numbers():
        module = kind.build(config)
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    pretended(module, mode)
    return exported_from(module, kind, config, mode)


@quiet()
def exported_from(module: nn.Module, kind: Kind, config: Config, mode: FakeTensorMode | None = None) -> onnx_ir.Model:
    """A module in ONNX, with the numbers that it has; in the `mode` of its parameters, if they have none."""
    inputs = kind.inputs(config)
    with mode or contextlib.nullcontext(), torch.no_grad():
        examples = inputs.values() if mode is None else map(mode.from_tensor, inputs.values())
        program = torch.onnx.export(
            with_forward(module, kind.forward),
            tuple(examples),
            input_names=list(inputs),
            output_names=list(kind.outputs),
            opset_version=OPSET,
            dynamo=True,
            optimize=False,
            verbose=False,
            dynamic_shapes=(tuple(dict(kind.axes.get(name, {})) for name in inputs),),
        )
    assert program is not None
    for node in program.model.graph:
        for value in node.outputs:
            if value.name in kind.outputs and not value.is_graph_output():
                value.name += "_within"  # the exporter calls values after their operators, such as "mean"
    return program.model


def parametrized(model: onnx_ir.Model, folder: Path) -> Path:
    """Write a model whose parameters all lie in one file of nothing."""
    largest = 4 * NOISE
    for name, value in model.graph.initializers.items():
        tensor: Any = value.const_value
        if isinstance(getattr(tensor, "raw", None), torch._subclasses.FakeTensor):
            value.const_value = onnx_ir.ExternalTensor(
                NUMBERS, 0, tensor.nbytes, tensor.dtype, shape=tensor.shape, name=name, base_dir=folder
            )
            largest = max(largest, tensor.nbytes)
    with (folder / NUMBERS).open("wb") as file:
        file.write(numpy.random.default_rng(1).standard_normal(NOISE, numpy.float32).tobytes())
        file.truncate(largest)
    onnx_ir.save(model, folder / "model.onnx")
    return folder / "model.onnx"


def widened(model: onnx_ir.Model, channels: int) -> onnx_ir.Model:
    """A copy of a network whose first input has so many channels, and so has the layer that reads it."""
    copied = model.clone()
    first = copied.graph.inputs[0]
    axis = 2 if len(first.shape) == 3 else 1
    before = first.shape[axis]
    sizes = list(first.shape)
    sizes[axis] = channels
    first.shape = onnx_ir.Shape(sizes)
    changed = [name for name in FIRST_LAYERS if name in copied.graph.initializers]
    assert len(changed) == 1, "there is one layer that reads the input"
    weight = copied.graph.initializers[changed[0]]
    assert weight.shape[1] == before
    shape = onnx_ir.Shape([weight.shape[0], channels, *weight.shape[2:]])
    tensor: Any = weight.const_value
    weight.shape = shape
    weight.const_value = onnx_ir.ExternalTensor(
        NUMBERS, 0, 4 * prod(shape), tensor.dtype, shape=shape, name=weight.name, base_dir=tensor.base_dir
    )
    return copied


def engine(name: str, path: Path) -> bytes:
    """The stripped engine of a network, packed; the types of its weights are those of the checkpoint that it will get.

    Raises ModelError if the program depends on the numbers of a parameter.
    """
    program = compile_program(path, Settings(name=name, dtype="checkpoint"))
    if pinned := recipes_of(program).pinned:
        names = ", ".join(each.parameter for each in pinned)
        raise ModelError(f"{name}: the program depends on the numbers of {names}")
    target = path.parent / "engine.gguf"
    write_engine(target, program, weights_of(program), stripped=True, needed="")
    return gzip.compress(target.read_bytes(), 9, mtime=0)


def engines(name: str, shipped: Shipped) -> dict[str, bytes]:
    """The engine of a network and of its variants, by name, packed."""
    model = exported(shipped.kind, shipped.config)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        found = {name: engine(name, parametrized(model, folder))}
        for each, channels in shipped.variants:
            onnx_ir.save(widened(model, channels), folder / "model.onnx")
            found[each] = engine(each, folder / "model.onnx")
    return found


def unpacked(packed: bytes) -> bytes:
    """An engine as it was before gzip, whose own bytes differ from library to library."""
    return gzip.decompress(packed)
