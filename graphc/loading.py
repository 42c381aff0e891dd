"""Engines to models that run. What compiles models is not imported, so that a program which only runs one starts at once."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import graphc.ggml_library  # noqa: F401  it says that a processor is too old, where NumPy, imported first, would end the process
from graphc.errors import EngineError, InputError
from graphc.runtime.model import Model
from graphc.targets.ggml.engine import is_engine, read_engine, read_stripped_engine
from graphc.targets.ggml.lowering.circular import circular as made_circular
from graphc.targets.ggml.run.device.options import Memory, Place

if TYPE_CHECKING:
    from graphc.targets.ggml.lowering.dtypes import Asked
    from graphc.weights.checkpoint import Source

Content = TypeVar("Content")


def load(
    path: str | os.PathLike[str],
    *,
    weights: Source | None = None,
    component: str | None = None,
    dtype: Asked = (),
    device: str = "cpu",
    threads: int | None = None,
    memory: Memory = None,
    contexts: int | None = None,
    kernels: str | os.PathLike[str] | None = None,
    trust_kernels: bool = False,
    steady: Collection[str] = (),
    circular: Collection[str] = (),
) -> Model:
    """Load an engine file; its weights are mapped, and copied only to a device that is not the CPU.

    `device` is one that `graphc devices` lists, the address of a server (`rpc://HOST:PORT`, see `graphc serve-device`), or
    several with commas between, each of which computes a part of the model. `memory` are the bytes that a device may use for
    weights and intermediate results, as a number or a text (`"4GiB"`), one for each device (`"4GiB,2GiB"`); else what is free.
    Weights that do not fit are streamed to it in every run, or computed by the CPU, if that is among the devices.

    Several threads may run the model at once. `threads` are the CPU's that all runs share; `contexts` are the most runs at once,
    each of which has memory for its intermediate results: on the CPU as many as threads if not given, and always one on other
    devices. Further runs wait for their turn. `kernels` is a folder of kernels, which `graphc run --dump` wrote and somebody
    changed: a device of generated kernels takes the texts there. An engine may have the code of kernels for GPUs; it is taken if
    `trust_kernels` says that the file is from somebody whom you would let run programs on this machine. Else they are compiled.

    `steady` are names of inputs that stay the same for many runs, as a prompt does while a picture is made. What is computed of
    them alone (keys and values of the prompt) is computed when they change, and kept, also for the last few that they were.

    With `weights` and `component` (see `Model.load_weights`) it has those, also if the engine has none. They are kept in the
    engine's types, or in those that `dtype` asks for, as for `compile`; with `"checkpoint"` in those that the checkpoint has,
    and what is only moved is used where it lies in the file. (An engine takes narrow types best if it was compiled with that.)

    `circular` are axes of pictures, `"x"` and `"y"`, along which convolutions see the other end of the picture beyond an edge
    instead of zeros, as PyTorch's with `padding_mode="circular"`: what comes out can be laid beside itself without a seam.

    Raises EngineError if the file is missing, damaged, of another version, or without its weights, CheckpointError if those
    given do not fit, and InputError for a type or an input that there is not, and where there is nothing to be circular.
    """
    place = Place(device, threads, memory, contexts, kernels, trust_kernels, steady)
    if weights is None:
        if dtype:
            raise InputError("--dtype: say of which weights with --weights")
        program, arrays = _read(path, read_engine)
        return Model(made_circular(program, circular), arrays, place=place)
    from graphc.targets.ggml.lowering.dtypes import Dtypes
    from graphc.weights.refit import Refit

    dtypes = Dtypes.parsed(dtype) if dtype else None
    program, stored = _read(path, read_stripped_engine)
    found = Refit(program, stored, weights, component=component, dtypes=dtypes)
    return Model(
        made_circular(found.program, circular), map(found.array, range(len(stored))), given=found.given, place=place
    )


def _read(path: str | os.PathLike[str], read: Callable[[str | os.PathLike[str]], Content]) -> Content:
    """What an engine file holds. Raises EngineError, which says what the file is if that is known."""
    try:
        return read(path)
    except EngineError as error:
        if hint := no_engine(path):
            raise EngineError(f"{os.fspath(path)}: it is {hint}") from error
        raise


def no_engine(path: str | os.PathLike[str]) -> str:
    """What a file is that is not an engine, and what to do with it; "" if it may be one."""
    from graphc.weights.checkpoint import is_checkpoint

    file = Path(path)
    if not file.is_file() or (is_engine(file) and not is_checkpoint(file)):
        return ""
    if is_checkpoint(file):
        return "a checkpoint, weights alone: give it as weights=, with an engine of its architecture"
    if file.suffix == ".onnx":
        return "an ONNX model, no engine: graphc.compile(path) compiles and loads it; graphc.compile(path, engine) writes one"
    return ""
