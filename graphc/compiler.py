"""The compiler, top to bottom: a model in; an engine file, a C++ project and a model that runs out."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from graphc.backends.precision import is_exact
from graphc.debug import Debug
from graphc.errors import InputError, ModelError
from graphc.ir.graph import Graph
from graphc.ir.interp import evaluate
from graphc.kernels.gpu.compile import check_target
from graphc.loading import load
from graphc.optimize import checked, optimize
from graphc.passes.fold import check_grown
from graphc.rewrite.engine import Log
from graphc.runtime.model import Model
from graphc.shapes.ranges import Size
from graphc.targets.ggml.engine import is_engine
from graphc.targets.ggml.generate.generate import Generated, generated
from graphc.targets.ggml.lowering.dtypes import Asked, Dtypes, half_of
from graphc.targets.ggml.lowering.lower import lower
from graphc.targets.ggml.lowering.methods import Methods
from graphc.targets.ggml.program.program import Program
from graphc.targets.ggml.run.device.options import Memory, Place
from graphc.trace import SILENT, Progress
from graphc.weights.checkpoint import Source, is_checkpoint, open_checkpoint
from graphc.weights.embeddings import Embeddings, Vectors
from graphc.weights.layouts.fit import fit
from graphc.weights.lora.apply import Loras, Strength
from graphc.weights.lora.beside import with_factors
from graphc.weights.names import find_names
from graphc.weights.recipes import write_recipes
from graphc.weights.refit import Refit, shapes_of
from graphc.weights.undo import Base, compiled_from

if TYPE_CHECKING:
    import onnx
    import onnx_ir


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What decides, besides the model, which program it is compiled to. `compile` says what each means.

    `name` is what the program and its C++ class are called: if not given, as the file is. `dtype`, if it is a `Dtypes`, is told
    which types were chosen. `weights` and `component` are the checkpoint whose weights it gets.
    """

    name: str | None = None
    dims: Mapping[str, Size] | None = None
    without: Iterable[str] = ()
    stop_after: int | None = None
    names: Source | None = None
    dtype: Asked | Dtypes = ()
    weights: Source | None = None
    component: str | None = None


DEFAULTS = Settings()


def compile(
    source: str | os.PathLike[str] | onnx.ModelProto | onnx_ir.Model | Graph,
    output: str | os.PathLike[str] | None = None,
    *,
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
    """Compile a model and load it.

    `source` is an ONNX file, an `onnx.ModelProto`, an `onnx_ir.Model` or a graph. With `output`, the engine file is written
    there, the model is called by its name, and runs from it with its weights mapped; without, the weights are kept in memory.
    With `cpp`, a C++ project is written to that folder. `dims` gives values to named sizes, or ranges (`"64..128:8"`; a size
    that may be 0 needs `"0.."`). The rules and passes `without` are not applied, and no more after the first `stop_after`
    applications. `names` is a checkpoint with the weights of this model, in which constants are looked for whose names the
    exporter lost.

    `dtype` is what the weights are stored in: a type of ggml's (`"q8_0"`), or several, each for those whose names fit a pattern
    (`["q8_0", "*.attn*.weight=q4_k"]`; the last that fits counts), or `"checkpoint"`: as `weights` has them. Where that is not
    possible the next type is taken; `Dtypes.choices` says so. With `weights` and `component` (see `Model.load_weights`) the
    model gets those. `device`, `threads`, `memory`, `contexts`, `kernels` and `steady` are those of `graphc.load`. `gpus` are
    targets (`"sm_80"`) for which the engine gets kernels, compiled; they multiply float16 if `set_float32_matmul_precision`
    allows it.

    Raises ModelError, UnsupportedError (with all that is unsupported), InputError for a size that the model lacks or a rule or
    type that there is not, CheckpointError, or OSError.
    """
    require_checkpoint(dtype, weights)
    settings = Settings(
        name=None if output is None else Path(output).stem,
        dims=dims,
        without=without,
        stop_after=stop_after,
        names=names,
        dtype=dtype,
        weights=weights,
        component=component,
    )
    place = Place(device, threads, memory, contexts, kernels, True, steady)
    program, refit = compile_weights(source, settings, progress=progress)
    if gpus:
        add_device_code(program, gpus)
    if cpp is not None:
        write_project(program, cpp)
    if output is None:
        return in_memory(program, refit, place, progress)
    write(program, output, progress, arrays=weights_of(program, refit))
    return load(output, **asdict(place))


def compile_program(
    source: str | os.PathLike[str] | onnx.ModelProto | onnx_ir.Model | Graph,
    settings: Settings = DEFAULTS,
    *,
    methods: Methods | None = None,
    progress: Progress = SILENT,
) -> Program:
    """The stages up to the program that every target reads; its weights are not computed yet. `methods` is told how operators are
    computed."""
    return compile_weights(source, settings, methods=methods, progress=progress)[0]


def compile_weights(
    source: str | os.PathLike[str] | onnx.ModelProto | onnx_ir.Model | Graph,
    settings: Settings,
    *,
    methods: Methods | None = None,
    progress: Progress,
) -> tuple[Program, Refit | None]:
    """A program, as `compile_program` makes it, and its weights as the checkpoint of the settings has them; None if they are the
    model's own."""
    types = settings.dtype if isinstance(settings.dtype, Dtypes) else Dtypes.parsed(settings.dtype)
    log = Log(checked(settings.without), settings.stop_after)
    if isinstance(source, Graph):
        graph = source
    else:
        from graphc.frontend.onnx import load as load_onnx

        try:
            graph = load_onnx(source, dims=settings.dims, progress=progress)
        except ModelError as error:
            if hint := no_model(source):
                raise ModelError(f"{source}: it is {hint}") from error
            raise
    if settings.name or isinstance(source, str | os.PathLike):
        graph.name = settings.name or Path(source).stem  # type: ignore[arg-type]
    if settings.names is not None:
        given = open_checkpoint(settings.names)
        find_names(graph, fit(given, shapes_of(graph.parameters)).tensors(given))
    debug = Debug.from_environment()
    debug.observe("import", graph)
    types.mark(graph)
    with progress.stage("optimize", 1) as step:
        optimize(graph, log, debug.observe)
        check_grown(graph)
        step(1)
    with progress.stage("lower", 1) as step:
        program = lower(graph, methods)
        program.recipes = write_recipes(program, graph.parameters)
        refit = None
        if settings.weights is not None:
            stored, dtypes = [None] * len(program.weights), types if types.rules else None
            refit = Refit(program, stored, settings.weights, component=settings.component, dtypes=dtypes)
            program = refit.program
        elif types.rules or any(map(half_of, program.weights)):
            program = types.applied(program)
        step(1)
    debug.finish(program, log)
    return program, refit


def in_memory(program: Program, refit: Refit | None, place: Place, progress: Progress) -> Model:
    """A model of what `compile_weights` gave, whose weights are in memory."""
    given = compiled_from(program) if refit is None else refit.given
    return Model(program, evaluated(program, progress, weights_of(program, refit)), given=given, place=place)


def require_checkpoint(dtype: Asked | Dtypes, weights: Source | None) -> None:
    """Raises InputError if weights are to be stored in the types of a checkpoint, and there is none."""
    types = dtype if isinstance(dtype, Dtypes) else Dtypes.parsed(dtype)
    if types.from_checkpoint and weights is None:
        raise InputError("--dtype checkpoint: say which one with --weights, or leave them out with --strip-weights")


def no_model(source: Any) -> str:
    """What a file is that is not an ONNX model, and what to do with it; "" if that is not known."""
    if not isinstance(source, str | os.PathLike) or not Path(source).exists():
        return ""
    if is_engine(source) and not is_checkpoint(Path(source)):
        return "an engine, which is compiled already: graphc.load in Python, or graphc run"
    if is_checkpoint(Path(source)):
        return (
            "a checkpoint: weights, without the computation that they are for. Export the model itself to ONNX "
            "(docs/python.md), or put these weights into an engine of the same architecture: graphc refit ENGINE CHECKPOINT"
        )
    return ""


def write(
    program: Program,
    path: str | os.PathLike[str],
    progress: Progress = SILENT,
    *,
    strip_weights: bool = False,
    arrays: Callable[[int], np.ndarray] | None = None,
) -> None:
    """Write the engine file of a program that was just compiled; one weight at a time is in memory. With `strip_weights`,
    what another checkpoint would change is left out. `arrays` gives the weights if they are not the model's own."""
    from graphc.targets.ggml.engine import write_engine

    write_engine(path, program, arrays or weights_of(program), progress, strip_weights)


def add_device_code(program: Program, targets: Sequence[str]) -> Generated:
    """Have a program carry the code of its kernels for GPUs, which need not be here; returns what is launched there. Raises
    BuildError for a target that there is not, and where there is no compiler."""
    from graphc.targets.ggml.generate.compiled import compiled

    for each in targets:
        check_target(each)
    found = generated(program, fast=not is_exact())
    program.device_code = compiled(found, targets)
    return found


def refit(
    engine: str | os.PathLike[str],
    weights: Source | None,
    output: str | os.PathLike[str],
    *,
    strict: bool = True,
    component: str | None = None,
    loras: Iterable[tuple[Source, Strength]] = (),
    embeddings: Mapping[str, Vectors] | None = None,
    progress: Progress = SILENT,
) -> tuple[Refit | None, Loras, Embeddings]:
    """Write an engine file with the weights of another checkpoint of the same architecture, or with its own, with LoRAs, and
    with tokens of textual inversion.

    `weights`, `strict` and `component` are those of `Model.load_weights`; `loras` are what `Model.load_lora` takes, `embeddings`
    what `Model.load_embeddings` takes. One weight is in memory at a time. Raises EngineError, CheckpointError, InputError and
    OSError.
    """
    from graphc.targets.ggml.engine import read_engine, read_stripped_engine, write_engine

    if weights is None:
        program, arrays = read_engine(engine)
        found, base = None, Base(program, arrays.__getitem__)
    else:
        program, stored = read_stripped_engine(engine)
        found = Refit(program, stored, weights, strict=strict, component=component)
        base = Base(program, found.array, found.given)
    made = Loras(base)
    for source, strength in loras:
        _, made = made.load(source, strength, None if isinstance(source, Mapping) else str(source))
    added = Embeddings(base.program).load(embeddings or {})
    program = with_factors(added.grown(), made.ranks)
    write_engine(output, program, lambda index: added.array(index, made.array(index)), progress)
    return found, made, added


def write_project(program: Program, directory: str | os.PathLike[str]) -> Path:
    """Write the C++ project of a program."""
    from graphc.targets.ggml.cpp import write_project as write_cpp

    return write_cpp(program, directory)


def evaluated(
    program: Program, progress: Progress = SILENT, arrays: Callable[[int], np.ndarray] | None = None
) -> list[np.ndarray]:
    """Every weight's array, in memory (a constant that needs no change stays mapped); `arrays` as for `write`."""
    made, find = [], arrays or weights_of(program)
    with progress.stage("weights", len(program.weights)) as step:
        for index in range(len(program.weights)):
            made.append(find(index))
            step(1)
    return made


def weights_of(program: Program, refit: Refit | None = None) -> Callable[[int], np.ndarray]:
    """What gives each weight of a program that was just compiled as it is stored: the model's own, or a checkpoint's."""
    if refit is None:
        return lambda index: weight_array(program, index)
    return lambda index: weight_array(program, index) if refit.recipes.weights[index] is None else refit.array(index)


def weight_array(program: Program, index: int) -> np.ndarray:
    """One weight as it is stored, computed from the model's constants."""
    weight = program.weights[index]
    assert weight.value is not None, "the weights of a program that was read from an engine are in the engine"
    return weight.converted(np.asarray(evaluate(weight.value), order="C"))
