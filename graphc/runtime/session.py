"""`Session`: a model behind the methods of an onnxruntime `InferenceSession`, for code that was written for that."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from graphc.backends.rpc import is_address
from graphc.errors import GraphcError, InputError
from graphc.forking import renew_in_child
from graphc.ir.about import About
from graphc.runtime.model import Model, TensorInfo
from graphc.runtime.options import SessionOptions, check_run_options, check_session_options, stopped
from graphc.runtime.values import IOBinding, OrtValue, arrays_of, type_text
from graphc.shapes import Expr
from graphc.targets.ggml.engine import is_engine
from graphc.targets.ggml.run.device.devices import check_threads
from graphc.targets.ggml.run.device.options import Memory, Place, split_devices

PROVIDERS = {"CPUExecutionProvider": "cpu", "CUDAExecutionProvider": "cuda", "ROCMExecutionProvider": "rocm",
             "VulkanExecutionProvider": "vulkan", "MetalExecutionProvider": "metal", "SYCLExecutionProvider": "sycl"}  # fmt: skip
"""onnxruntime's names of providers, and ours in their way, with the device that each stands for."""


@dataclass(frozen=True)
class NodeArg:
    """An input or output: `shape` has a string for a size that is chosen when running, `type` reads `tensor(float)`."""

    name: str
    type: str
    shape: list[int | str]


Callback: TypeAlias = Callable[[list[np.ndarray], Any, str], Any]
"""What is told of a run's outputs, with what `run_async` was given for it, and the error, empty if there is none."""


class Session:
    """Runs an ONNX model or an engine file. As many threads may run it at once as there are processors.

    `model` is a path of either, or the bytes of either. `providers` are tried in order: names of onnxruntime's providers, or
    of devices as `graphc.load` takes them; a pair has options with its name, or `provider_options` has them in the same order.
    Of these, `device_id` and `gpu_mem_limit` are read; `sess_options` are `graphc.SessionOptions`, or onnxruntime's. Instead of
    providers, `device` and `memory` may be given, as for `graphc.load`. `enable_fallback` and `disabled_optimizers` change
    nothing. Raises GraphcError where none of the providers exists, and InputError where both are given, or what a Session
    cannot do.
    """

    def __init__(
        self,
        path_or_bytes: str | os.PathLike[str] | bytes,
        sess_options: Any = None,
        providers: Sequence[str | tuple[str, Any]] | None = None,
        provider_options: Sequence[Mapping[str, Any]] | None = None,
        *,
        device: str | None = None,
        memory: Memory = None,
        enable_fallback: Any = 1,
        disabled_optimizers: Any = None,
    ) -> None:
        check_session_options(sess_options)
        self._options = SessionOptions() if sess_options is None else sess_options
        self._pool: ThreadPoolExecutor | None = None
        self._provider_options: Mapping[str, Any] = {}
        limit: Memory = None
        if device is None:
            device, limit = self._chosen(providers, provider_options)
        elif providers:
            raise InputError("a Session takes providers or a device, and not both")
        self._place = Place(device, self._threads, limit if memory is None else memory, self._most_runs)
        self._model = _load(path_or_bytes, self._place, getattr(sess_options, "dims", {}))
        renew_in_child(self)

    def renew(self) -> None:
        """See `Renewed`. The threads of `run_async` are not there."""
        self._pool = None

    def get_inputs(self) -> list[NodeArg]:
        """The inputs, in order."""
        return [_node_arg(info) for info in self._model.inputs]

    def get_outputs(self) -> list[NodeArg]:
        """The outputs, in order."""
        return [_node_arg(info) for info in self._model.outputs]

    def get_overridable_initializers(self) -> list[NodeArg]:
        """None: weights are changed by `graphc.Model`."""
        return []

    def get_modelmeta(self) -> About:
        """What the model's file says of itself."""
        return self._model.program.about

    def get_session_options(self) -> Any:
        """The options that were given, or else the usual ones."""
        return self._options

    def get_providers(self) -> list[str]:
        """What runs the model: the provider of each device, and the CPU for what they cannot."""
        names = {device: name for name, device in PROVIDERS.items()}
        used = [names.get(each.rstrip("0123456789"), each) for each in split_devices(self._place.device)]
        return list(dict.fromkeys([*used, "CPUExecutionProvider"]))

    def get_provider_options(self) -> dict[str, dict[str, str]]:
        """The options of each of these that were given, as texts."""
        first = {name: str(value) for name, value in self._provider_options.items()}
        return {name: first if number == 0 else {} for number, name in enumerate(self.get_providers())}

    def set_providers(
        self,
        providers: Sequence[str | tuple[str, Any]] | None = None,
        provider_options: Sequence[Mapping[str, Any]] | None = None,
    ) -> None:
        """Run the model elsewhere from now on; on an error it stays. Runs that are under way end where they are."""
        device, memory = self._chosen(providers, provider_options)
        place = Place(device, self._threads, memory, self._most_runs)
        self._model = Model(self._model.program, self._model.executor.arrays, place=place)
        self._place = place

    def disable_fallback(self) -> None:
        """Nothing: what a device cannot do, the CPU computes; errors stay errors."""

    def enable_fallback(self) -> None:
        """Nothing: what a device cannot do, the CPU computes; errors stay errors."""

    def run(
        self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any], run_options: Any = None
    ) -> list[np.ndarray]:
        """The outputs of these names (all, if None), for inputs by name: arrays or `OrtValue`s.

        Raises InputError for outputs that the model does not have, and with everything about the inputs that does not fit.
        """
        names = self._names(output_names)
        results = self.run_into({}, input_feed, run_options)
        return [results[name] for name in names]

    def run_into(
        self, targets: Mapping[str, Any], input_feed: Mapping[str, Any], run_options: Any = None
    ) -> dict[str, np.ndarray]:
        """All outputs by name, those of `targets` written there: see `Model.run_into`. onnxruntime has bindings for that."""
        check_run_options(run_options)
        return self._model.run_unless(stopped(run_options), arrays_of(targets), arrays_of(input_feed))

    def run_with_ort_values(
        self, output_names: Sequence[str] | None, input_dict_ort_values: Mapping[str, Any], run_options: Any = None
    ) -> list[OrtValue]:
        """The same, as values."""
        return [OrtValue(each) for each in self.run(output_names, input_dict_ort_values, run_options)]

    def run_async(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        callback: Callback,
        user_data: Any,
        run_options: Any = None,
    ) -> None:
        """Run in another thread, which then calls `callback(outputs, user_data, error)`: `error` is empty, or outputs are."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._model.executor.most_runs(self._most_runs), "graphc-session")
        self._pool.submit(_run_for, self, output_names, dict(input_feed), callback, user_data, run_options)

    def io_binding(self) -> IOBinding:
        """What says where runs read and write."""
        return IOBinding(self)

    def run_with_iobinding(self, iobinding: IOBinding, run_options: Any = None) -> None:
        """Run with what is bound. Raises InputError if no output is, and as `run` does."""
        iobinding.run(self, run_options)

    @property
    def _threads(self) -> int | None:
        return getattr(self._options, "intra_op_num_threads", 0) or None

    @property
    def _most_runs(self) -> int:
        """As many runs at once as there are processors: onnxruntime's threads are those of one run."""
        return max(check_threads(self._threads), check_threads(None))

    def _chosen(
        self,
        providers: Sequence[str | tuple[str, Any]] | None,
        provider_options: Sequence[Mapping[str, Any]] | None,
    ) -> tuple[str, Memory]:
        device, options = _choose_device(_wanted(providers or ["CPUExecutionProvider"], provider_options))
        self._provider_options = options
        return device, options.get("gpu_mem_limit")

    def _names(self, wanted: Sequence[str] | None) -> list[str]:
        """The outputs that are wanted. Raises InputError."""
        known = [info.name for info in self._model.outputs]
        unknown = [name for name in wanted or () if name not in known]
        if unknown:
            raise InputError(f"the model has no output {', '.join(unknown)}; it has {', '.join(known)}")
        return list(wanted or known)


InferenceSession = Session
"""What onnxruntime calls it."""


def _run_for(
    session: Session,
    names: Sequence[str] | None,
    feed: Mapping[str, Any],
    callback: Callback,
    user_data: Any,
    run_options: Any,
) -> None:
    try:
        results, error = session.run(names, feed, run_options), ""
    except Exception as raised:  # there is nobody else to tell
        results, error = [], str(raised) or type(raised).__name__
    try:
        callback(results, user_data, error)
    except Exception:
        sys.excepthook(*sys.exc_info())


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


def _choose_device(wanted: Sequence[tuple[str, Mapping[str, Any]]]) -> tuple[str, Mapping[str, Any]]:
    """The first of the providers that the installed ggml has, as a device, and its options."""
    from graphc.runtime.devices import devices

    there = [device.name.lower() for device in devices()]
    for name, options in wanted:
        device = f"{PROVIDERS.get(name, name)}{options.get('device_id', '') if name in PROVIDERS else ''}".lower()
        device = "cpu" if name == "CPUExecutionProvider" else device
        if all(is_address(each) or {each, f"{each}0"} & set(there) for each in split_devices(device)):
            return device, options
    names = ", ".join(name for name, _ in wanted)
    raise GraphcError(f"none of the providers {names} is there; devices: {', '.join(there)}")


def _load(model: str | os.PathLike[str] | bytes, place: Place, dims: Mapping[str, int]) -> Model:
    from graphc.compiler import compile
    from graphc.loading import load

    if isinstance(model, bytes | bytearray | memoryview):
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            path = Path(folder) / "model"
            path.write_bytes(model)
            return _load(path, place, dims)
    if not is_engine(model):
        return compile(
            model, dims=dims, device=place.device, threads=place.threads, memory=place.memory, contexts=place.contexts
        )
    if dims:
        raise InputError(
            f"sizes are given ({', '.join(dims)}) for an engine, which was compiled with its own: give them when it is compiled"
        )
    return load(model, device=place.device, threads=place.threads, memory=place.memory, contexts=place.contexts)


def _node_arg(info: TensorInfo) -> NodeArg:
    shape = [str(size) if isinstance(size, Expr) else size for size in info.shape]
    return NodeArg(info.name, type_text(info.dtype), shape)
