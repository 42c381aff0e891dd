"""`load`: an ONNX file, or a model in memory, to a `Graph` of core operators."""

from __future__ import annotations

import os
from collections.abc import Mapping

import numpy as np
import onnx
import onnx_ir

from graphc.errors import InputError, ModelError, Problem, ShapeError, UnsupportedError
from graphc.frontend.onnx.declared import other_shape
from graphc.frontend.onnx.dims import Dimensions, name_of
from graphc.frontend.onnx.examples import example_sizes
from graphc.frontend.onnx.importer import Importer
from graphc.frontend.onnx.parameters import recover_parameters
from graphc.frontend.onnx.read import read
from graphc.frontend.onnx.tensors import TensorReader
from graphc.ir import Graph
from graphc.ir.about import About
from graphc.shapes import Dim
from graphc.shapes.facts import learn
from graphc.shapes.ranges import Size
from graphc.trace import SILENT, Progress, warn

MAX_FACTS = 100
"""How often an import may start again because two symbolic sizes have to be equal."""


def load(
    source: str | os.PathLike | onnx.ModelProto | onnx_ir.Model,
    *,
    dims: Mapping[str, Size] | None = None,
    fixed: Mapping[str, np.ndarray] | None = None,
    progress: Progress = SILENT,
) -> Graph:
    """Import a model.

    A dimension that the model names stays a symbol unless `dims` gives its size; one without a name is called
    `<input>_<axis>`. Sizes are taken to be at least 1 unless `dims` gives another range, as `0..` or `64..128:8`.
    Where the model only works for some sizes (an image whose halves must fit together again), the symbol is narrowed to
    them, and other sizes are refused when the model is run. An input that `fixed` gives a value is a constant, and no
    longer an input: for a model in which a size depends on an input. Weights in external files are memory-mapped, those
    inside the file refer to its bytes.

    Raises ModelError if the file is missing, damaged or not valid, UnsupportedError with everything that is
    not supported, and InputError if `dims` or `fixed` names what the model does not have.
    """
    model, folder = read(source)
    tensors = TensorReader(folder)
    facts: dict[str, Dim] = {}
    for _ in range(MAX_FACTS):
        dimensions = Dimensions(dims or {}, facts, whole_sizes(model))
        importer = Importer(model, tensors, dimensions, fixed, progress)
        try:
            graph = importer.run()
            break
        except ModelError as error:
            before = dict(facts)
            if not learn(facts, _misfit(error), *_kinds(dimensions)) or facts == before:
                if dimensions.measures:  # other values of what is measured might fit
                    raise UnsupportedError([Problem("model", "sizes", str(error), unknown=True)]) from error
                raise
    else:
        raise ModelError(f"more than {MAX_FACTS} sizes do not fit each other")
    if importer.problems:
        raise UnsupportedError(importer.problems)
    if unknown := dimensions.unused():
        names = ", ".join(dimensions.names()) or "none"
        raise InputError(f"the model has no dimension named {', '.join(unknown)}; it has: {names}")
    found = {value.name: value for value in graph.outputs}
    for value in model.graph.outputs:
        if value.name in found and (reason := other_shape(value, found[value.name])):
            warn(reason)
    recover_parameters(graph)
    graph.example = example_sizes(model.metadata_props, graph.inputs)
    graph.about = _about(model)
    return graph


def _kinds(dimensions: Dimensions) -> tuple[list[str], list[str], set[str]]:
    """The symbols of inputs, those that only a run tells, and those of inputs' batches."""
    return dimensions.of_inputs(), dimensions.of_runs(), dimensions.batches


def _about(model: onnx_ir.Model) -> About:
    """What the file says of itself."""
    return About(
        model.producer_name or "",
        model.graph.name or "",
        model.graph.doc_string or "",
        model.domain or "",
        model.doc_string or "",
        model.model_version or 0,
        dict(model.metadata_props),
    )


def whole_sizes(model: onnx_ir.Model) -> set[str]:
    """What inputs call their sizes."""
    shapes = [value.shape for value in model.graph.inputs if value.shape is not None]
    return {name for shape in shapes for size in shape if (name := name_of(size)) is not None}


def _misfit(error: BaseException) -> tuple[tuple[object, object], ...]:
    """The pairs of sizes whose difference is the error's cause."""
    while error.__cause__ is not None:
        error = error.__cause__
    return error.differ if isinstance(error, ShapeError) else ()
