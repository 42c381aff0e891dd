"""`torch.compile(model, backend="graphc")`: graphs that Dynamo has traced are compiled and run on ggml, or left to PyTorch.

PyTorch finds `compile_graph` by the entry point that `pyproject.toml` declares. A graph that cannot be compiled is run by PyTorch
as it is, and a warning says why: a model never fails because of what a backend cannot do. Who wants an error says `strict`.
"""

from __future__ import annotations

import threading
import warnings
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch
from torch import fx

from graphc.compiler import compile
from graphc.errors import CheckpointError, GraphcError, InputError
from graphc.frontend.exporting import failure
from graphc.frontend.torch.arrays import as_array, as_tensor
from graphc.frontend.torch.exporter import exported_model, name_outputs, require_onnxscript, silent
from graphc.frontend.torch.graphs import Carrier, Left, Parts, take_apart
from graphc.runtime.model import Model
from graphc.targets.ggml.lowering.dtypes import Asked
from graphc.targets.ggml.run.device.options import Memory, Place
from graphc.weights.recipes import recipes_of
from graphc.weights.refit import Refit

NOT_RANDOM = {"train": False, "training": False, "p": 0, "dropout_p": 0}
"""Arguments of operators that may draw random numbers, and with which values they do not."""


@dataclass(frozen=True)
class Options:
    """What `torch.compile(..., options=...)` may say. `strict` raises what else is a warning; the others are those of
    `graphc.compile`, with as many threads as PyTorch has."""

    strict: bool = False
    threads: int | None = None
    device: str = "cpu"
    memory: Memory = None
    dtype: Asked = ()

    @classmethod
    def of(cls, given: Mapping[str, Any] | None, mode: str | None) -> Options:
        """The options that were given. Raises InputError for one that there is not."""
        known = [each.name for each in fields(cls)]
        if mode is not None:
            raise InputError(f"the backend graphc has no mode {mode!r}; it has the options {', '.join(known)}")
        if unknown := [name for name in given or {} if name not in known]:
            raise InputError(f"the backend graphc has no option {', '.join(unknown)}; it has {', '.join(known)}")
        return cls(**{"threads": torch.get_num_threads(), **(given or {})})

    @property
    def place(self) -> Place:
        """Where models run."""
        return Place(self.device, self.threads, self.memory)


def compile_graph(
    graph: fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    options: Mapping[str, Any] | None = None,
    mode: str | None = None,
) -> Callable[..., Any]:
    """What runs a graph of Dynamo: compiled, or else, with a warning, PyTorch. What is wrong with the options, and with `strict`
    why the graph cannot be compiled, is raised when that is called: Dynamo would hide it behind an error of its own."""
    try:
        settings = Options.of(options, mode)
    except InputError as error:
        return _raising(error)
    try:
        parts = take_apart(graph, example_inputs)
        return CompiledGraph(graph, parts, example_inputs, settings) if parts.types else graph.forward
    except GraphcError as error:
        if settings.strict:
            return _raising(error)
        _leave(graph, error)
        return graph.forward


def _raising(error: GraphcError) -> Callable[..., Any]:
    def run(*arguments: Any) -> Any:
        raise error

    return run


def _leave(graph: fx.GraphModule, error: GraphcError) -> None:
    """Say why PyTorch runs a graph."""
    count = sum(node.op.startswith("call") for node in graph.graph.nodes)
    warnings.warn(f"graphc leaves a graph of {count} operations to PyTorch: {error}", stacklevel=2)


class Loaded:
    """A model with the weights of certain tensors, which it knows to be what they were: PyTorch counts their changes. `fixed` are
    whole numbers that are part of its program, by their place among the graph's inputs."""

    def __init__(self, model: Model, tensors: Sequence[torch.Tensor], fixed: Mapping[int, torch.Tensor]) -> None:
        self.model, self.state, self.fixed = model, _state(tensors), fixed


def _state(tensors: Sequence[torch.Tensor]) -> list[tuple[int, int]]:
    return [(each._version, each.data_ptr()) for each in tensors]


class CompiledGraph:
    """A graph that was compiled, called with Dynamo's inputs.

    Its weights are used where the parameters lie, or computed of them; these are computed again when PyTorch has changed a
    parameter. Dynamo may call it with the parameters of another module of the same shapes: then there are two models of one
    program. Raises GraphcError if it cannot be compiled.
    """

    def __init__(self, graph: fx.GraphModule, parts: Parts, examples: Sequence[Any], options: Options) -> None:
        self.graph, self.parts, self.options = graph, parts, options
        self._lock = threading.Lock()
        self._loaded: dict[tuple[int, ...], Loaded] = {}
        self._warned = False
        tensors = [examples[position] for position in self.parts.weights.values()]
        model = self._compiled(self.parts)
        self._first = model
        self.names = [each.name for each in model.inputs]
        known = {
            value.parameter for value in (*recipes_of(model.program).parameters, *recipes_of(model.program).pinned)
        }
        self._known = {name: position for name, position in self.parts.weights.items() if name in known}
        others = (position for name, position in self.parts.weights.items() if name not in known)
        self._whole = [position for position in others if not examples[position].is_floating_point()]
        self._fixed = self._fixed_of(examples)
        self._keep(Loaded(model, tensors, self._fixed), tensors)

    def __call__(self, *arguments: Any) -> tuple[Any, ...]:
        """The outputs. PyTorch computes them where the model cannot, unless it is to be `strict`."""
        try:
            computed = self._computed(arguments)
        except GraphcError as error:
            if self.options.strict:
                raise
            if not self._warned:
                self._warned = True
                _leave(self.graph, error)
            outputs: tuple[Any, ...] = self.graph(*arguments)
            return outputs
        return self.parts.rest(arguments, computed)

    def _computed(self, arguments: Sequence[Any]) -> list[torch.Tensor]:
        model = self.model(arguments)
        given = [
            each.array(arguments) if isinstance(each, Carrier) else as_array(arguments[each])
            for each in self.parts.given.positions
        ]
        return [as_tensor(each) for each in model.run(dict(zip(self.names, given, strict=True))).values()]

    def model(self, arguments: Sequence[Any]) -> Model:
        """The model with the weights of these arguments, as they are now."""
        tensors = [arguments[position] for position in self.parts.weights.values()]
        found = self._loaded.get(tuple(map(id, tensors)))
        if found is not None and found.state == _state(tensors):
            return found.model
        with self._lock:
            return self._renewed(arguments, tensors)

    def _renewed(self, arguments: Sequence[Any], tensors: Sequence[torch.Tensor]) -> Model:
        found = self._loaded.get(tuple(map(id, tensors)))
        state = _state(tensors)
        if found is not None and found.state == state:
            return found.model
        source = {name: as_array(arguments[position]) for name, position in self._known.items()}
        fixed = self._fixed if found is None else found.fixed
        try:
            if any(not torch.equal(before, arguments[position]) for position, before in fixed.items()):
                raise CheckpointError("what is part of the program has changed")
            if found is None:
                found = Loaded(self._of_same_program(source), tensors, fixed)
                self._keep(found, tensors)
            elif source:
                found.model.load_weights(source)
        except CheckpointError:  # numbers on which the program relies are others
            found = Loaded(self._compiled(take_apart(self.graph, arguments)), tensors, self._fixed_of(arguments))
            self._keep(found, tensors)
        found.state = state
        return found.model

    def _fixed_of(self, arguments: Sequence[Any]) -> dict[int, torch.Tensor]:
        return {position: arguments[position].detach().clone() for position in self._whole}

    def _of_same_program(self, source: Mapping[str, np.ndarray]) -> Model:
        first = self._first
        refit = Refit(first.program, first.executor.arrays, source) if source else None
        arrays = first.executor.arrays if refit is None else [refit.array(index) for index in range(len(refit.stored))]
        given = {} if refit is None else refit.given
        return Model(first.program, arrays, given=given, place=self.options.place)

    def _keep(self, loaded: Loaded, tensors: Sequence[torch.Tensor]) -> None:
        """Keep a model as long as its tensors live."""
        key = tuple(map(id, tensors))
        self._loaded[key] = loaded
        for each in tensors[:1]:
            weakref.finalize(each, self._loaded.pop, key, None)

    def _compiled(self, parts: Parts) -> Model:
        exported = _exported(parts)
        model = compile(
            exported.model,
            device=self.options.device,
            threads=self.options.threads,
            memory=self.options.memory,
            dtype=self.options.dtype,
        )
        if len(model.inputs) != len(parts.given.positions) or len(model.outputs) != len(parts.types):
            raise Left("the exported graph has other inputs or outputs")
        for info, dtype in zip(model.outputs, parts.types, strict=True):
            made = as_tensor(np.empty(0, info.dtype)).dtype
            if made != dtype:
                raise Left(f"the exported graph gives {made} where the model gives {dtype}")
        return model


def _exported(parts: Parts) -> torch.onnx.ONNXProgram:
    """The graph in ONNX. Raises ModelError, and Left for what it does besides computing its outputs."""
    require_onnxscript()
    shapes = tuple(dict.fromkeys(axes, torch.export.Dim.AUTO) for axes in parts.given.free)
    with torch._guards.tracing(None), torch.no_grad(), silent():
        try:
            program = torch.export.export(
                parts.module, tuple(parts.given.examples), dynamic_shapes=shapes, strict=False
            )
        except Exception as error:
            raise Left(failure(error, parts.module)) from error
    _settle(program, parts)
    if changed := _changed(program, parts.names):
        raise Left(f"it changes its input {', '.join(changed)} in place")
    if random := next(filter(_draws, program.graph.nodes), None):
        raise Left(f"it draws random numbers ({random.target}), which are to be those of PyTorch's generator")
    with torch._guards.tracing(None), torch.no_grad():
        exported = exported_model(program, (), {}, None)
    name_outputs(exported, [f"output_{number}" for number in range(len(exported.model.graph.outputs))])
    return exported


def _settle(program: torch.export.ExportedProgram, parts: Parts) -> None:
    """Tell Dynamo of the sizes that turned out to be fixed, so that it compiles anew for others."""
    nodes = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
    for name, axes in zip(program.graph_signature.user_inputs, parts.given.free, strict=True):
        for axis, size in axes.items():
            if isinstance(nodes[str(name)].meta["val"].shape[axis], int):
                int(size)  # it notes that it was looked at


def _draws(node: fx.Node) -> bool:
    """True if an operator draws random numbers."""
    if torch.Tag.nondeterministic_seeded not in getattr(node.target, "tags", ()):
        return False
    return not any(given == NOT_RANDOM.get(argument.name, ...) for argument, given in _declared(node))


def _changed(program: torch.export.ExportedProgram, names: Mapping[str, str]) -> list[str]:
    """The inputs into which a graph writes, as the user knows them; `names` says how."""
    given = (node for node in program.graph.nodes if node.op == "placeholder")
    places = {
        node.meta["val"].untyped_storage()._cdata: spec.target or names.get(spec.arg.name, spec.arg.name)
        for node, spec in zip(given, program.graph_signature.input_specs, strict=True)
        if isinstance(node.meta.get("val"), torch.Tensor)
    }
    written = [
        tensor.untyped_storage()._cdata
        for node in program.graph.nodes
        for argument, given in _declared(node)
        if argument.alias_info is not None and argument.alias_info.is_write
        for tensor in _tensors(given)
    ]
    return list(dict.fromkeys(places[each] for each in written if each in places))


def _declared(node: fx.Node) -> Iterator[tuple[Any, Any]]:
    """The arguments that an operator declares, with what each is given."""
    for number, argument in enumerate(getattr(getattr(node.target, "_schema", None), "arguments", ())):
        usual = node.kwargs.get(argument.name, argument.default_value)
        yield argument, node.args[number] if number < len(node.args) else usual


def _tensors(given: Any) -> Iterator[torch.Tensor]:
    """The tensors among what an operator is given."""
    for each in given if isinstance(given, list | tuple) else (given,):
        if isinstance(each, fx.Node) and isinstance(each.meta.get("val"), torch.Tensor):
            yield each.meta["val"]
