"""Opening a checkpoint, whatever its format: every tensor by name, mapped where it lies in a file."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, TypeAlias, Union

import numpy as np

from graphc.errors import CheckpointError, EngineError
from graphc.ir.foreign import elements
from graphc.ir.types import BF16, F16, F32, F64, I8, I16, I32, I64
from graphc.weights.formats.blocks import Blocks
from graphc.weights.formats.gguf import Entry, read_tensors
from graphc.weights.formats.pytorch import read_pytorch
from graphc.weights.formats.safetensors import read_index, read_safetensors
from graphc.weights.formats.scaled import Scaled, scale_of
from graphc.weights.formats.tensors import Tensors, Unreadable, check_shape, mapped, shaped
from graphc.weights.layouts.architectures import FOLDERS

Source: TypeAlias = Union[str, os.PathLike[str], Mapping[str, Any]]
"""A file, a folder, or arrays (or PyTorch's tensors) by name."""

ENDINGS = ("*.index*.json", "*.safetensors", "*.gguf", "*.bin", "*.pt", "*.pth", "*.ckpt")
"""What is looked for in a folder, the first that is there."""

USUAL = re.compile(r"(diffusion_pytorch_model|model|pytorch_model)\.(safetensors|bin)(\.index\.json)?")
"""Of several files, the one that is meant: how it is called if it is not a variant, as `model.fp16.safetensors`."""

SCALES = ("scale_weight", "weight_scale")
"""What the numbers are called by which a module's weight is scaled."""

BESIDE_SCALES = ("scale_input", "input_scale", "comfy_quant")
"""What else such a module has: how its input would be rounded, and what all of this is called."""

SCALED = "scaled_fp8"
"""A tensor without a meaning, in files with scales."""

GGUF_DTYPES = {"F32": F32, "F16": F16, "BF16": BF16, "F64": F64, "I8": I8, "I16": I16, "I32": I32, "I64": I64}

RESHAPED = "comfy.gguf.orig_shape."
"""Before a tensor's name in the metadata: its shape, where the file has it in rows that blocks fit better."""


def open_checkpoint(source: Source) -> Tensors:
    """The tensors by name. A folder holds one file of weights, or shards with their index, or such folders for the components
    of a pipeline: then `unet/` and the like are before the names.

    Raises CheckpointError, with the file's name, if it is missing, damaged, or of no format that is known.
    """
    if isinstance(source, Mapping):
        return {
            name: each if isinstance(each, Blocks | Scaled | Unreadable) else _array(name, each)
            for name, each in source.items()
        }
    path = Path(source)
    if not path.is_dir():
        return _opened(path)
    if file := in_folder(path):
        return _opened(file)
    found = {name: file for name in FOLDERS if (file := in_folder(path / name))}
    if not found:
        raise CheckpointError(f"{path}: there is no file of weights ({', '.join(ENDINGS)})")
    return {f"{folder}/{name}": each for folder, file in found.items() for name, each in _opened(file).items()}


def is_checkpoint(path: Path) -> bool:
    """True if it is a folder, an index, or a file that begins as one of weights does, and is not an ONNX model or engine."""
    if path.is_dir() or fnmatch(path.name, ENDINGS[0]):
        return True
    try:
        start = mapped(path)[:9].tobytes()
        if path.suffix == ".onnx" or not any(fits(start) for fits, _ in FORMATS):
            return False
        return not start.startswith(b"GGUF") or read_tensors(path)[0].get("general.architecture") != "graphc"
    except (CheckpointError, EngineError):
        return False


def _opened(path: Path) -> Tensors:
    return _shards(path) if fnmatch(path.name, ENDINGS[0]) else _read(path)


def _read(path: Path) -> Tensors:
    try:
        start = mapped(path)[:9].tobytes()
        for fits, read in FORMATS:
            if fits(start):
                return _unscaled(read(path))
        raise CheckpointError("it is not a checkpoint: not safetensors, GGUF or PyTorch's")
    except (CheckpointError, EngineError) as error:
        raise CheckpointError(f"{path}: {error}") from error


def _unscaled(found: Tensors) -> Tensors:
    """The tensors, those of 8 bits with the numbers that the file scales them by."""
    scales = {name: kind for name in found for kind in [name.rpartition(".")[2]] if kind in SCALES}
    for name, kind in scales.items():
        module = name.removesuffix(kind)
        weight, scale = found.get(f"{module}weight"), found[name]
        if not isinstance(weight, np.ndarray) or not isinstance(scale, np.ndarray):
            continue
        try:
            found[f"{module}weight"] = scale_of(weight, scale)
        except CheckpointError as error:
            found[f"{module}weight"] = Unreadable(str(error))
        for each in (kind, *BESIDE_SCALES):
            found.pop(module + each, None)
    return {name: each for name, each in found.items() if not scales or name.rpartition(".")[2] != SCALED}


def _shards(path: Path) -> Tensors:
    try:
        files = read_index(path)
    except CheckpointError as error:
        raise CheckpointError(f"{path}: {error}") from error
    found: Tensors = {}
    for file in files:
        tensors = _read(file)
        if twice := sorted(found.keys() & tensors.keys()):
            raise CheckpointError(f"{file}: tensor {twice[0]!r} is in another of the files too")
        found |= tensors
    return found


def in_folder(folder: Path) -> Path | None:
    """The file of weights in a folder; None if there is none. Raises CheckpointError if it is not clear which."""
    for ending in ENDINGS:
        files = sorted(folder.glob(ending))
        usual = [file for file in files if USUAL.fullmatch(file.name)]
        for each in (files, usual):
            if len(each) == 1:
                return each[0]
        if files:
            raise CheckpointError(f"{folder}: give one of {', '.join(file.name for file in files)}")
    return None


def _array(name: str, given: Any) -> np.ndarray:
    """An array, or a tensor of PyTorch's, as an array of its own: what is given may change later."""
    if hasattr(given, "detach"):
        given = given.detach().cpu()
        given = given.float() if str(given.dtype) == "torch.bfloat16" else given
    array = np.asarray(given)
    if array.dtype == object:
        raise CheckpointError(f"{name} is not an array of numbers")
    return np.array(array) if array.flags.writeable else array


def _read_gguf(path: Path) -> Tensors:
    metadata, entries, data = read_tensors(path)
    return {each.name: _of_gguf(each, raw, metadata) for each, raw in zip(entries, data, strict=True)}


def _of_gguf(entry: Entry, raw: np.ndarray, metadata: Mapping[str, Any]) -> np.ndarray | Blocks:
    """A tensor in the usual order of axes."""
    shape = metadata.get(RESHAPED + entry.name, entry.ne[::-1])
    try:
        if entry.type in GGUF_DTYPES:
            return shaped(elements(raw, GGUF_DTYPES[entry.type]), shape)
        check_shape(shape)
        return Blocks(entry.type, raw, tuple(shape))
    except (CheckpointError, ZeroDivisionError) as error:
        raise CheckpointError(f"tensor {entry.name!r} of {list(entry.ne)}: {error}") from error


def _refuse_legacy(path: Path) -> Tensors:
    raise CheckpointError(
        "it is a pickle of PyTorch before 1.6; save it again with today's torch.save, or as safetensors"
    )


FORMATS: list[tuple[Callable[[bytes], bool], Callable[[Path], Tensors]]] = [
    (lambda start: start.startswith(b"GGUF"), _read_gguf),
    (lambda start: start.startswith(b"PK\x03\x04"), read_pytorch),
    (lambda start: start[8:9] == b"{", read_safetensors),  # before it lies a length, of any bytes
    (lambda start: start.startswith(b"\x80"), _refuse_legacy),
]
"""How a file of each format begins."""
