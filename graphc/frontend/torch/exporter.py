"""From a PyTorch module, through PyTorch's ONNX exporter."""

from __future__ import annotations

import io
import json
import logging
import os
import re
import tempfile
import threading
import warnings
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphc.compiler import compile
from graphc.errors import GraphcError, InputError, ModelError
from graphc.frontend.exporting import FIXED, FREE_IT, failure, lines
from graphc.frontend.onnx.examples import EXAMPLE
from graphc.runtime.model import Model
from graphc.shapes.ranges import Size
from graphc.targets.ggml.lowering.dtypes import Asked, Dtypes
from graphc.targets.ggml.run.device.options import Memory
from graphc.trace import SILENT, Progress
from graphc.weights.checkpoint import Source

if TYPE_CHECKING:
    import torch
    from torch.onnx import ONNXProgram

_EXPORTING = threading.RLock()

OPSET = 23
"""The opset that is asked of the exporter: the first in which attention and all normalizations are operators."""


def from_torch(
    module: torch.nn.Module | torch.export.ExportedProgram,
    example_inputs: Any = None,
    output: str | os.PathLike[str] | None = None,
    *,
    dynamic_shapes: Any = None,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
    cpp: str | os.PathLike[str] | None = None,
    dims: Mapping[str, Size] | None = None,
    device: str = "cpu",
    threads: int | None = None,
    memory: Memory = None,
    contexts: int | None = None,
    kernels: str | os.PathLike[str] | None = None,
    steady: Collection[str] = (),
    gpus: Sequence[str] = (),
    without: Iterable[str] = (),
    stop_after: int | None = None,
    names: Source | None = None,
    dtype: Asked | Dtypes = (),
    weights: Source | None = None,
    component: str | None = None,
    progress: Progress = SILENT,
) -> Model:
    """Compile a PyTorch module, or what `torch.export.export` made of one, and load it.

    `example_inputs` are what `forward` takes: a tuple of positional arguments, a dict of keyword arguments, or one tensor; an
    `ExportedProgram` needs none. Sizes are those of the example, but those that `dynamic_shapes` names stay free:
    `{"x": {0: "batch", 2: "height"}}`, or all that `torch.export.export` takes; of an `ExportedProgram` it names the free ones.
    In the example they should be 2 or more: the exporter may take an axis of size 1 for one that is always 1.

    Inputs are called as `forward`'s parameters are. Outputs have the names under which the module returns them (keys of a dict,
    fields of a dataclass), or else `output`, or `output_0`, `output_1` and so on. `input_names` and `output_names` give others,
    in order.

    The other arguments are those of `graphc.compile`. The module is exported in evaluation mode and left as it was. Raises
    GraphcError if torch is not installed, InputError for arguments that do not go together, ModelError, with operator, place
    and what helps, if the module cannot be exported, and what `graphc.compile` raises.
    """
    exported, name = export(module, example_inputs, dynamic_shapes, input_names, output_names)
    # Windows keeps mapped files, which is no error.
    with tempfile.TemporaryDirectory(prefix="graphc-", ignore_cleanup_errors=True) as folder:
        path = Path(folder) / f"{name}.onnx"
        exported.save(path, external_data=True)
        return compile(
            path,
            output,
            cpp=cpp,
            dims=dims,
            device=device,
            threads=threads,
            memory=memory,
            contexts=contexts,
            kernels=kernels,
            steady=steady,
            gpus=gpus,
            without=without,
            stop_after=stop_after,
            names=names,
            dtype=dtype,
            weights=weights,
            component=component,
            progress=progress,
        )


def export(
    module: torch.nn.Module | torch.export.ExportedProgram,
    example_inputs: Any,
    dynamic_shapes: Any,
    input_names: Sequence[str] | None,
    output_names: Sequence[str] | None,
) -> tuple[ONNXProgram, str]:
    """The ONNX model of a module, and what it is called; for the arguments, and what is raised, see `from_torch`."""
    try:
        import torch
    except ImportError as error:
        raise GraphcError("from_torch needs PyTorch: pip install 'graphc[export]'") from error
    require_onnxscript()
    if isinstance(module, torch.export.ExportedProgram):
        if example_inputs is not None:
            raise InputError("an ExportedProgram has its example already; example_inputs are for a module")
        arguments, keywords = module.example_inputs or ((), {})
        exported = exported_model(module, (), {}, dynamic_shapes)
        name = "model"
    elif isinstance(module, torch.nn.Module):
        if example_inputs is None:
            raise InputError("from_torch needs example_inputs: the exporter runs the module with them")
        arguments, keywords = _arguments(example_inputs)
        exported = _evaluated(module, arguments, keywords, dynamic_shapes)
        name = type(module).__name__
    else:
        raise InputError(f"from_torch takes a torch.nn.Module or an ExportedProgram, not a {type(module).__name__}")
    check_free(exported, dynamic_shapes)
    name_inputs(exported, input_names)
    name_outputs(exported, output_names)
    _note_example(exported, torch.utils._pytree.tree_leaves((arguments, keywords)))
    return exported, name


def require_onnxscript() -> None:
    """Raises GraphcError where PyTorch's exporter lacks what it needs."""
    if find_spec("onnxscript") is None:
        raise GraphcError("PyTorch's exporter needs onnxscript: pip install 'graphc[export]'")


def _arguments(example: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Positional and keyword arguments of a call."""
    if isinstance(example, dict):
        return (), example
    return (tuple(example) if isinstance(example, tuple | list) else (example,)), {}


def _evaluated(
    module: torch.nn.Module, arguments: tuple[Any, ...], keywords: dict[str, Any], dynamic_shapes: Any
) -> ONNXProgram:
    """The module exported in evaluation mode, without gradients, for which PyTorch computes attention in another way than the
    exporter expects; afterwards each of its modules and parameters is as it was."""
    modes = {each: each.training for each in module.modules()}
    learned = [each for each in module.parameters() if each.requires_grad]
    try:
        return exported_model(module.eval().requires_grad_(False), arguments, keywords, dynamic_shapes)
    finally:
        for each, training in modes.items():
            each.training = training
        for parameter in learned:
            parameter.requires_grad_()


def exported_model(
    module: Any, arguments: tuple[Any, ...], keywords: dict[str, Any], dynamic_shapes: Any
) -> ONNXProgram:
    """What PyTorch's exporter makes of it. Raises ModelError."""
    import torch

    from graphc.frontend.torch.translations.table import TracedData

    with silent(), _translations() as others, TracedData():
        try:
            exported = torch.onnx.export(
                module,
                arguments,
                kwargs=keywords or None,
                dynamic_shapes=dynamic_shapes,
                opset_version=OPSET,
                custom_translation_table=others,
                dynamo=True,
                optimize=False,  # the exporter's optimizer folds parameters into nameless constants
                verbose=False,
            )
        except Exception as error:
            raise ModelError(failure(error, module)) from error
    assert exported is not None
    return exported


@contextmanager
def silent() -> Iterator[None]:
    """Keep what the exporter remarks and prints to itself."""
    said = io.StringIO()
    with warnings.catch_warnings(), silent_logs("torch"), redirect_stdout(said), redirect_stderr(said):
        warnings.simplefilter("ignore")
        yield


@contextmanager
def _translations() -> Iterator[dict[Any, Callable[..., Any]]]:
    """Have the exporter make its table of operators once, with our translations, and not for each model, which takes it a second.
    What is to be given to the exporter besides: operators of other libraries; and where it has that table elsewhere, what needs
    none of it."""
    from graphc.frontend.torch.translations.table import library_translations, real_translations

    others = library_translations()
    try:
        from torch.onnx._internal.exporter._registration import ONNXRegistry
    except ImportError:
        yield others | real_translations()
        return
    with _EXPORTING:
        before, make = vars(ONNXRegistry)["from_torchlib"], ONNXRegistry.from_torchlib
        setattr(ONNXRegistry, "from_torchlib", staticmethod(partial(_operators, make)))  # noqa: B010
        try:
            yield others
        finally:
            setattr(ONNXRegistry, "from_torchlib", before)  # noqa: B010


@cache
def _operators(make: Callable[..., Any], **settings: Any) -> Any:
    from graphc.frontend.torch.translations.table import add_to

    registry = make(**settings)
    add_to(registry)
    return registry


@contextmanager
def silent_logs(library: str) -> Iterator[None]:
    """Keep a library's remarks to itself: what is wrong is raised, in one message."""
    loggers = [
        logging.getLogger(name) for name in (library, *logging.root.manager.loggerDict) if name.startswith(library)
    ]
    handlers = {handler for logger in loggers for handler in logger.handlers}
    refuse: Callable[[logging.LogRecord], bool] = lambda record: False  # noqa: E731
    for each in handlers:
        each.addFilter(refuse)
    try:
        yield
    finally:
        for each in handlers:
            each.removeFilter(refuse)


def check_free(exported: ONNXProgram, dynamic_shapes: Any) -> None:
    """Raises ModelError for an axis to which `dynamic_shapes` gives a name, and which the exporter fixed nevertheless."""
    from torch.export import Dim
    from torch.utils import _pytree as pytree

    def is_axes(given: Any) -> bool:
        sizes = given.values() if isinstance(given, dict) else given if isinstance(given, tuple | list) else ()
        keyed = not isinstance(given, dict) or all(isinstance(key, int) for key in given)
        return given is None or (
            keyed and all(each is None or not isinstance(each, dict | tuple | list) for each in sizes)
        )

    inputs = exported.model.graph.inputs
    leaves = pytree.tree_leaves(dynamic_shapes, is_leaf=is_axes)
    for value, axes in zip(inputs, leaves, strict=False) if len(leaves) == len(inputs) else ():
        for axis, asked in axes.items() if isinstance(axes, dict) else enumerate(axes or ()):
            size = value.shape[axis] if value.shape is not None else None
            if isinstance(asked, str | Dim) and isinstance(size, int):
                raise ModelError(lines(FIXED.format(axis=axis, name=value.name, size=size), "", FREE_IT))


def name_inputs(exported: ONNXProgram, names: Sequence[str] | None) -> None:
    """Call the inputs of an exported model so. Raises InputError for names that cannot be theirs."""
    if names is not None:
        inputs, others = exported.model.graph.inputs, exported.model.graph.initializers
        _check_names("input", [value.name or "" for value in inputs], names, others)
        _give(exported, inputs, names)


def name_outputs(exported: ONNXProgram, names: Sequence[str] | None) -> None:
    """Call the outputs of an exported model so, or as the module returns them. Raises InputError for names that cannot be
    theirs."""
    from onnx_ir import Value, node

    graph = exported.model.graph
    taken = {*graph.initializers, *(value.name for value in graph.inputs)}
    made: set[Value] = set()
    for index, value in enumerate(graph.outputs):
        if value in made or value.producer() is None:  # it is also another output, an input or a parameter
            copy = node("Identity", [value])
            graph.append(copy)
            graph.outputs[index] = copy.outputs[0]
            copy.outputs[0].type, copy.outputs[0].shape = value.type, value.shape
        made.add(value)
    if names is not None:
        _check_names("output", [value.name or "" for value in graph.outputs], names, taken)
    else:
        names = returned_names(exported)
        names = [f"{name}_" if name in taken else name for name in names]
    _give(exported, graph.outputs, names)


def _check_names(kind: str, there: Sequence[str], names: Sequence[str], taken: Container[str]) -> None:
    if len(names) != len(there) or len(set(names)) != len(names):
        raise InputError(
            f"{kind}_names must be {len(there)} different names, for {', '.join(there)}; not {', '.join(names) or 'none'}"
        )
    if used := [name for name in names if name in taken]:
        raise InputError(f"{kind}_names: the model has something else of the name {', '.join(used)}")


def _give(exported: ONNXProgram, values: Sequence[Any], names: Sequence[str]) -> None:
    """Name values of a graph; others that are called so get another name."""
    from onnx_ir.traversal import RecursiveGraphIterator

    graph = exported.model.graph
    wanted, given = set(names), set(values)
    for value in (*graph.inputs, *(each for node in RecursiveGraphIterator(graph) for each in node.outputs)):
        if value.name in wanted and value not in given:
            value.name = f"{value.name}_inner"
    for value, name in zip(values, names, strict=True):
        value.name = name


def returned_names(exported: ONNXProgram) -> list[str]:
    """A name for each output: where the module returns it, by keys, fields and numbers; else `output`."""
    from torch.export.graph_signature import ConstantArgument, OutputKind
    from torch.utils import _pytree as pytree

    count, program = len(exported.model.graph.outputs), exported.exported_program
    assert program is not None
    returned = [each.arg for each in program.graph_signature.output_specs if each.kind == OutputKind.USER_OUTPUT]
    spec = program.call_spec.out_spec
    paths: list[Any] = [(pytree.SequenceKey(index),) for index in range(len(returned))]
    if spec is not None and spec.num_leaves == len(returned):
        with suppress(ValueError, TypeError):  # a class that was registered without names
            paths = [path for path, _ in pytree.tree_flatten_with_path(pytree.tree_unflatten(returned, spec))[0]]
    kept = [path for path, arg in zip(paths, returned, strict=True) if not isinstance(arg, ConstantArgument)]
    if len(kept) != count:
        kept = [(pytree.SequenceKey(index),) for index in range(count)]
    if count == 1 and not any(isinstance(key, pytree.MappingKey | pytree.GetAttrKey) for key in kept[0]):
        return ["output"]
    names = ["_".join(map(_word, path)) for path in kept]
    names = [name if re.match(r"[^\W\d]", name) else f"output_{name}" for name in names]
    return names if len(set(names)) == count else [f"output_{index}" for index in range(count)]


def _word(key: Any) -> str:
    """A step of the way to a returned tensor: a key, a field's name, or a number."""
    return str(next(getattr(key, each) for each in ("key", "name", "idx") if hasattr(key, each)))


def _note_example(exported: ONNXProgram, given: Iterable[Any]) -> None:
    """Write down in the exported model which sizes its inputs had in the example."""
    shapes = [list(each.shape) for each in given if hasattr(each, "shape")]
    inputs = exported.model.graph.inputs
    if len(shapes) == len(inputs):
        exported.model.metadata_props[EXAMPLE] = json.dumps(
            {value.name: shape for value, shape in zip(inputs, shapes, strict=True)}
        )
