"""`Session`: a model behind the methods of an onnxruntime `InferenceSession`, for code that was written for that."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from graphc.errors import GraphcError, InputError
from graphc.runtime.model import Model, TensorInfo
from graphc.shapes import Expr

PROVIDERS = {"CPUExecutionProvider": "cpu", "CUDAExecutionProvider": "cuda", "ROCMExecutionProvider": "rocm",
             "VulkanExecutionProvider": "vulkan", "MetalExecutionProvider": "metal", "SYCLExecutionProvider": "sycl"}  # fmt: skip
"""onnxruntime's names of providers, and ours in their way, with the device that each stands for."""

_ELEMENTS = {"float32": "float", "float64": "double"}


@dataclass(frozen=True)
class NodeArg:
    """An input or output: `shape` has a string for a size that is chosen when running, `type` reads `tensor(float)`."""

    name: str
    type: str
    shape: list[int | str]


class Session:
    """Runs an ONNX model or an engine file.

    `model` is a path of either, or the bytes of either. `providers` are tried in order: names of onnxruntime's providers, or
    of devices as `graphc devices` lists them; a pair of a name and options counts as its name. Of `sess_options`, only
    `intra_op_num_threads` is read. Raises GraphcError where none of the providers exists.
    """

    def __init__(
        self,
        model: str | os.PathLike[str] | bytes,
        sess_options: Any = None,
        providers: Sequence[str | tuple[str, Any]] | None = None,
        **kwargs: Any,
    ) -> None:
        threads = getattr(sess_options, "intra_op_num_threads", 0) or None
        names = [each if isinstance(each, str) else each[0] for each in providers or ["CPUExecutionProvider"]]
        device = _choose_device(names)
        self._provider = next((name for name, each in PROVIDERS.items() if each == device), device)
        self._model = _load(model, device, threads)

    def get_inputs(self) -> list[NodeArg]:
        """The inputs, in order."""
        return [_node_arg(info) for info in self._model.inputs]

    def get_outputs(self) -> list[NodeArg]:
        """The outputs, in order."""
        return [_node_arg(info) for info in self._model.outputs]

    def get_providers(self) -> list[str]:
        """What runs the model: the chosen provider, and the CPU for what it cannot."""
        return list(dict.fromkeys([self._provider, "CPUExecutionProvider"]))

    def run(
        self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any], run_options: Any = None
    ) -> list[np.ndarray]:
        """The outputs of these names (all, if None), for inputs by name.

        Raises InputError for outputs that the model has not, and with everything about the inputs that does not fit.
        """
        known = [info.name for info in self._model.outputs]
        unknown = [name for name in output_names or () if name not in known]
        if unknown:
            raise InputError(f"the model has no output {', '.join(unknown)}; it has {', '.join(known)}")
        results = self._model.run({name: np.asarray(array) for name, array in input_feed.items()})
        return [results[name] for name in (output_names or known)]


def _choose_device(names: Sequence[str]) -> str:
    """The first of the providers that the installed ggml has."""
    from graphc.runtime.devices import devices

    there = [device.name.lower() for device in devices()]
    for name in names:
        wanted = PROVIDERS.get(name, name).lower()
        if wanted in there or f"{wanted}0" in there:
            return wanted
    raise GraphcError(f"none of the providers {', '.join(names)} is there; devices: {', '.join(there)}")


def _load(model: str | os.PathLike[str] | bytes, device: str, threads: int | None) -> Model:
    from graphc.compiler import compile, load

    if isinstance(model, bytes | bytearray | memoryview):
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            path = Path(folder) / "model"
            path.write_bytes(model)
            return _load(path, device, threads)
    chosen = load if is_engine(model) else compile
    return chosen(model, device=device, threads=threads)


def is_engine(path: str | os.PathLike[str]) -> bool:
    """Whether a file starts as an engine file does; False if it cannot be read."""
    try:
        with open(path, "rb") as file:
            return file.read(4) == b"GGUF"
    except OSError:
        return False


def _node_arg(info: TensorInfo) -> NodeArg:
    element = _ELEMENTS.get(info.dtype.name, info.dtype.name)
    shape = [str(size) if isinstance(size, Expr) else size for size in info.shape]
    return NodeArg(info.name, f"tensor({element})", shape)
