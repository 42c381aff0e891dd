"""`Session`: a model behind the methods of an onnxruntime `InferenceSession`, for code that was written for that."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from graphc.backends.rpc import is_address
from graphc.errors import GraphcError, InputError
from graphc.files import open_regular
from graphc.runtime.model import Model, TensorInfo
from graphc.shapes import Expr
from graphc.targets.ggml.container import GZIP
from graphc.targets.ggml.place import Memory, Place, split_devices

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
    of devices as `graphc.load` takes them; a pair has options with its name, or `provider_options` has them in the same order.
    Of these, `device_id` and `gpu_mem_limit` are read, and of `sess_options`, `intra_op_num_threads`. Instead of providers,
    `device` and `memory` may be given, as for `graphc.load`. Raises GraphcError where none of the providers exists, and
    InputError where both are given.
    """

    def __init__(
        self,
        model: str | os.PathLike[str] | bytes,
        sess_options: Any = None,
        providers: Sequence[str | tuple[str, Any]] | None = None,
        provider_options: Sequence[Mapping[str, Any]] | None = None,
        *,
        device: str | None = None,
        memory: Memory = None,
        **kwargs: Any,
    ) -> None:
        threads = getattr(sess_options, "intra_op_num_threads", 0) or None
        if device is None:
            device, limit = _choose_device(_wanted(providers or ["CPUExecutionProvider"], provider_options))
            memory = limit if memory is None else memory
        elif providers:
            raise InputError("a Session takes providers or a device, and not both")
        self._device = device
        self._model = _load(model, Place(device, threads, memory))

    def get_inputs(self) -> list[NodeArg]:
        """The inputs, in order."""
        return [_node_arg(info) for info in self._model.inputs]

    def get_outputs(self) -> list[NodeArg]:
        """The outputs, in order."""
        return [_node_arg(info) for info in self._model.outputs]

    def get_providers(self) -> list[str]:
        """What runs the model: the provider of each device, and the CPU for what they cannot."""
        names = {device: name for name, device in PROVIDERS.items()}
        used = [names.get(each.rstrip("0123456789"), each) for each in split_devices(self._device)]
        return list(dict.fromkeys([*used, "CPUExecutionProvider"]))

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


def _wanted(
    providers: Sequence[str | tuple[str, Any]], options: Sequence[Mapping[str, Any]] | None
) -> list[tuple[str, Mapping[str, Any]]]:
    """Names of providers with their options. Raises InputError if not each provider has options."""
    named = [(each, {}) if isinstance(each, str) else (each[0], each[1]) for each in providers]
    if not options:
        return named
    if len(options) != len(named):
        raise InputError(f"{len(options)} provider_options are given for {len(named)} providers")
    return [(name, {**own, **more}) for (name, own), more in zip(named, options, strict=True)]


def _choose_device(wanted: Sequence[tuple[str, Mapping[str, Any]]]) -> tuple[str, Memory]:
    """The first of the providers that the installed ggml has, as a device, and the memory that it may use there."""
    from graphc.runtime.devices import devices

    there = [device.name.lower() for device in devices()]
    for name, options in wanted:
        device = f"{PROVIDERS.get(name, name)}{options.get('device_id', '') if name in PROVIDERS else ''}".lower()
        device = "cpu" if name == "CPUExecutionProvider" else device
        if all(is_address(each) or {each, f"{each}0"} & set(there) for each in split_devices(device)):
            return device, options.get("gpu_mem_limit")
    names = ", ".join(name for name, _ in wanted)
    raise GraphcError(f"none of the providers {names} is there; devices: {', '.join(there)}")


def _load(model: str | os.PathLike[str] | bytes, place: Place) -> Model:
    from graphc.compiler import compile, load

    if isinstance(model, bytes | bytearray | memoryview):
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            path = Path(folder) / "model"
            path.write_bytes(model)
            return _load(path, place)
    chosen = load if is_engine(model) else compile
    return chosen(model, device=place.device, threads=place.threads, memory=place.memory)


def is_engine(path: str | os.PathLike[str]) -> bool:
    """Whether a file starts as an engine file does, or as one that gzip compressed; False if it cannot be read."""
    try:
        with open_regular(path) as file:
            return file.read(4).startswith((b"GGUF", GZIP))
    except OSError:
        return False


def _node_arg(info: TensorInfo) -> NodeArg:
    element = _ELEMENTS.get(info.dtype.name, info.dtype.name)
    shape = [str(size) if isinstance(size, Expr) else size for size in info.shape]
    return NodeArg(info.name, f"tensor({element})", shape)
