"""Comparing what the engine computes with another runtime, tensor by tensor.

After the optimizations every value that the model names too becomes an output of the program, so what is compared is what
the engine computes, fusions included. A value that an optimization removed is not compared.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import asdict, dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from graphc.compiler import DEFAULTS, Settings, evaluated
from graphc.errors import GraphcError
from graphc.ir.graph import Graph, Value
from graphc.ir.interp import trace
from graphc.loading import load
from graphc.rewrite.engine import Log
from graphc.runtime.model import Model, check_inputs
from graphc.shapes import integer, symbols
from graphc.shapes.ranges import Size
from graphc.targets.ggml.lowering.dtypes import Dtypes
from graphc.targets.ggml.lowering.lower import lower
from graphc.targets.ggml.run.device.options import CPU, Place
from graphc.trace import SILENT, Progress

GROUP_BYTES = 4 << 30
"""Bytes of tensors that are compared in one run; each is held twice."""

PART = 1 << 24
"""Elements that are compared at a time."""

FLOATS = Dtypes([])
"""Every weight in its own type."""

SHOWN = 3
"""Elements that are shown of a tensor that differs."""


@dataclass(frozen=True)
class Difference:
    """One tensor: the largest difference, and that in units of the reference's largest number (infinite where one has a
    number that is not finite where the other is)."""

    name: str
    operator: str
    type: str
    largest: float
    relative: float
    details: tuple[str, ...] = ()
    is_output: bool = False

    @property
    def mark(self) -> str:
        """What the table says of it."""
        return "output" if self.is_output else ""

    def as_dict(self) -> dict[str, Any]:
        """The difference as JSON has it."""
        return {
            "name": self.name,
            "operator": self.operator,
            "type": self.type,
            "largest": self.largest,
            "relative": self.relative,
            "output": self.is_output,
        }


@dataclass
class Comparison:
    """Every difference, in running order, which runtime the engine was compared with, and for which sizes."""

    reference: str
    sizes: str = ""
    differences: list[Difference] = field(default_factory=list)


def compare(
    path: str | os.PathLike[str],
    given: Mapping[str, np.ndarray],
    *,
    seed: int = 0,
    reference: str | None = None,
    settings: Settings = DEFAULTS,
    engine: str | os.PathLike[str] | None = None,
    place: Place = CPU,
    progress: Progress = SILENT,
) -> Comparison:
    """Run an ONNX file here and by `reference` ("onnxruntime" or "numpy"; onnxruntime if it is installed, if None).

    Inputs that are not given are random. Of the settings, sizes, rules and types of weights count. With an
    `engine`, what is compared are its outputs alone. Raises GraphcError if the model is not
    supported or the reference cannot run it.
    """
    from graphc.frontend.onnx import load as load_onnx
    from graphc.optimize import checked, optimize

    graph = load_onnx(path, dims=settings.dims, progress=progress)
    plain = load_onnx(path, dims=settings.dims, progress=progress)
    types = settings.dtype if isinstance(settings.dtype, Dtypes) else Dtypes.parsed(settings.dtype)
    types.mark(graph)
    optimize(graph, Log(checked(settings.without), settings.stop_after))
    runner = Runner(graph, place, progress, types)
    inputs = runner.inputs(given, settings.dims or {}, seed)
    chosen = reference or ("onnxruntime" if find_spec("onnxruntime") else "numpy")
    outputs = dict(zip(graph.output_names, graph.outputs, strict=True))
    values = comparable(graph, plain) if engine is None else outputs
    session = onnxruntime_session(Path(path), list(values), place.threads) if chosen == "onnxruntime" else None
    found = Comparison(chosen, runner.sizes)
    groups = grouped(values, runner.binding)
    with progress.stage(f"compare with {chosen}", len(values)) as step:
        for names in groups:
            ours = (
                runner.run({name: values[name] for name in names})
                if engine is None
                else by_engine(engine, inputs, place)
            )
            theirs = by_onnxruntime(session, inputs, names) if session else by_numpy(plain, inputs, names)
            for name in names:
                a, b = ours[name], theirs.get(name)
                if b is not None and (a.shape, a.dtype) == (b.shape, b.dtype):
                    operator, is_output = operator_of(values[name]), name in graph.output_names
                    found.differences.append(difference(name, operator, a, b, is_output))
            step(len(names))
    return found


def by_engine(engine: str | os.PathLike[str], inputs: Mapping[str, np.ndarray], place: Place) -> dict[str, np.ndarray]:
    """The outputs of an engine. Raises GraphcError."""
    model = load(engine, **asdict(place))
    try:
        return model.run(inputs)
    finally:
        model.close()


class Runner:
    """Runs an optimized graph for chosen values."""

    def __init__(self, graph: Graph, place: Place, progress: Progress, types: Dtypes = FLOATS) -> None:
        self.graph, self.place, self.progress, self.types = graph, place, progress, types
        self.binding: dict[str, int] = {}
        self.arrays: dict[str, np.ndarray] = {}
        self.sizes = ""

    def inputs(self, given: Mapping[str, np.ndarray], dims: Mapping[str, Size], seed: int) -> dict[str, np.ndarray]:
        """The given inputs and random ones for the others. Raises InputError if they do not fit."""
        from graphc.runtime.arrays import completed

        program = lower(self.graph)
        free = symbols(*(size for declared in program.inputs for size in declared.shape))
        sizes = {name: size for name, size in dims.items() if name in free and isinstance(size, int)}
        found = completed(program, given, sizes, seed)
        self.arrays, self.sizes = found.arrays, found.note
        self.binding = check_inputs(program, self.arrays)
        return self.arrays

    def run(self, values: Mapping[str, Value]) -> dict[str, np.ndarray]:
        """The values by name."""
        graph = copy(self.graph)
        graph.output_names, graph.outputs = list(values), list(values.values())
        program = self.types.applied(lower(graph)) if self.types.rules else lower(graph)
        model = Model(program, evaluated(program, self.progress), place=self.place)
        results = model.executor.run({each.name: self.arrays[each.name] for each in program.inputs}, self.binding)
        model.close()
        return dict(zip(values, results, strict=True))


def comparable(graph: Graph, plain: Graph) -> dict[str, Value]:
    """The values of an optimized graph that depend on an input and that the model names too, in running order, and every
    output. `plain` is the graph as it was imported."""
    named = {value.name for node in plain.nodes for value in node.outputs}
    outputs = dict(zip(graph.output_names, graph.outputs, strict=True))
    names = {value: name for name, value in outputs.items()}
    live: set[Value] = set(graph.inputs)
    found: dict[str, Value] = {}
    for node in graph.nodes:
        if any(value in live for value in node.inputs):
            live.update(node.outputs)
            found.update(
                (names.get(each, each.name), each) for each in node.outputs if each in names or each.name in named
            )
    return found | outputs


def grouped(values: Mapping[str, Value], binding: Mapping[str, int]) -> list[list[str]]:
    """The names in order, in groups of tensors that fit into memory together."""
    groups: list[list[str]] = []
    room = 0
    for name, value in values.items():
        measured = symbols(value.type.nbytes).keys() - binding.keys()
        size = 0 if measured else integer(value.type.nbytes, binding)
        if size > room or not groups:
            groups.append([])
            room = GROUP_BYTES
        groups[-1].append(name)
        room -= size
    return groups


def operator_of(value: Value) -> str:
    """The operator of the model that computes a value."""
    node = value.producer
    return "" if node is None else node.source.operator or node.op.name


def by_numpy(graph: Graph, inputs: Mapping[str, np.ndarray], names: Sequence[str]) -> dict[str, np.ndarray]:
    """The values of these names by the reference interpreter, from the graph as it was imported."""
    wanted = set(names)
    results = dict(zip(graph.output_names, graph.outputs, strict=True))
    found: dict[str, np.ndarray] = {}
    for value, array in trace(graph, inputs):
        if value.name in wanted and value.name not in results:
            found[value.name] = array
        found.update((name, array) for name, output in results.items() if output is value and name in wanted)
    return found


def onnxruntime_session(path: Path, names: Sequence[str], threads: int | None) -> Any:
    """A session without optimizations in which every value of these names that the file has is an output.

    Raises GraphcError where onnxruntime is missing or cannot read the model.
    """
    try:
        import onnx
        import onnxruntime
    except ImportError as error:
        raise GraphcError("onnxruntime is not installed; use --reference numpy") from error
    model = onnx.load(path, load_external_data=False)
    declared = {output.name for output in model.graph.output}
    made = set().union(*(node.output for node in model.graph.node))
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names if name in made - declared)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    options.intra_op_num_threads = threads or 0
    folder = str(path.absolute().parent)
    options.add_session_config_entry("session.model_external_initializers_file_folder_path", folder)
    try:
        return onnxruntime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
    except Exception as error:
        raise GraphcError(f"onnxruntime cannot read the model: {error}") from error


def by_onnxruntime(session: Any, inputs: Mapping[str, np.ndarray], names: Sequence[str]) -> dict[str, np.ndarray]:
    """The values of those of these names that are outputs of a session. Raises GraphcError where it cannot run."""
    outputs = {output.name for output in session.get_outputs()}
    wanted = [name for name in names if name in outputs]
    try:
        return dict(zip(wanted, session.run(wanted, dict(inputs)), strict=True)) if wanted else {}
    except Exception as error:
        raise GraphcError(f"onnxruntime cannot run the model: {error}") from error


def difference(name: str, operator: str, ours: np.ndarray, theirs: np.ndarray, is_output: bool = False) -> Difference:
    """How far two arrays of one shape and dtype are apart."""
    wide = np.complex128 if ours.dtype.kind == "c" else np.float64
    flat_ours, flat_theirs = ours.reshape(-1), theirs.reshape(-1)
    scale = 0.0
    worst: list[tuple[float, int]] = []
    for start in range(0, ours.size, PART):
        a, b = (flat[start : start + PART].astype(wide) for flat in (flat_ours, flat_theirs))
        with np.errstate(all="ignore"):
            distance = np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0.0, np.abs(a - b))
        distance[~np.isfinite(distance)] = np.inf
        scale = max(scale, float(np.abs(b[np.isfinite(b)]).max(initial=0)))
        largest = np.argpartition(distance, -min(SHOWN, distance.size))[-SHOWN:]
        worst = sorted([*worst, *((float(distance[each]), start + int(each)) for each in largest)], reverse=True)[
            :SHOWN
        ]
    top = worst[0][0] if worst else 0.0
    places = [tuple(map(int, np.unravel_index(index, ours.shape))) for distance, index in worst if distance]
    return Difference(
        name=name,
        operator=operator,
        type=f"{ours.dtype.name}{list(ours.shape)}",
        largest=top,
        relative=top / scale if scale else (np.inf if top else 0.0),
        details=tuple(f"at {list(place)}: {ours[place]!s}, reference {theirs[place]!s}" for place in places),
        is_output=is_output,
    )


def relative_error(outputs: Mapping[str, np.ndarray], reference: Mapping[str, np.ndarray]) -> float:
    """The largest difference of numbers, in units of the largest of its output; infinite where an output is missing or of another
    shape, or has a number where the reference has none, or the other way round."""
    numbers = {name: array for name, array in reference.items() if array.dtype.kind not in "OUS"}
    if any(name not in outputs or outputs[name].shape != array.shape for name, array in numbers.items()):
        return np.inf
    return max((difference(name, "", outputs[name], array).relative for name, array in numbers.items()), default=0.0)
