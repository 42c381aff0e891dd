"""`specialize`: a graph for the inputs of one run, where the model cannot be compiled for all of them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import onnx
import onnx_ir

from graphc.errors import UnsupportedError
from graphc.frontend.onnx.dims import Dimensions
from graphc.frontend.onnx.importer import Importer, Result
from graphc.frontend.onnx.observed import Given, Observed
from graphc.frontend.onnx.read import read
from graphc.frontend.onnx.tensors import TensorReader
from graphc.ir import Graph


@dataclass(frozen=True, eq=False)
class Specialized:
    """A graph that is right for inputs of the sizes of `inputs`, in which those named in `read` have the same elements.

    `inputs` are the tensors by name (those of a sequence have names of their own; of those not read, only dtype and shape
    count), `results` the model's outputs in order.
    """

    graph: Graph
    inputs: Mapping[str, np.ndarray]
    read: frozenset[str]
    results: list[Result]


def specialize(source: str | os.PathLike | onnx.ModelProto | onnx_ir.Model, given: Mapping[str, Given]) -> Specialized:
    """Import a model for the inputs of one run.

    Raises ModelError, UnsupportedError, and InputError if an input is missing or does not fit what the model declares.
    """
    model, folder = read(source)
    observed = Observed(given)
    importer = Importer(model, TensorReader(folder), Dimensions({}), observed=observed)
    graph = importer.run()
    if importer.problems:
        raise UnsupportedError(importer.problems)
    inputs = {name: array.copy() if name in observed.read else hollow(array) for name, array in observed.arrays.items()}
    return Specialized(graph, inputs, frozenset(observed.read), importer.results)


def hollow(array: np.ndarray) -> np.ndarray:
    """An array of the same dtype and shape that takes no memory."""
    return np.broadcast_to(np.zeros((), array.dtype), array.shape)


def flat(name: str, given: Given) -> dict[str, np.ndarray]:
    """The tensors of an input by the names that `Specialized.inputs` gives them."""
    if given is None:
        return {}
    if isinstance(given, list | tuple):
        return {key: array for i, item in enumerate(given) for key, array in flat(f"{name}.{i}", item).items()}
    return {name: np.asarray(given)}
