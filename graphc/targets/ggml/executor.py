"""Runs a program in this process, through ggml's C interface.

The calls of the program are replayed for the sizes at hand into a ggml graph, which is kept for the next run with the same
sizes. Weights are read where they lie (a mapped engine file, on the CPU) or copied to the device once. ggml's scheduler
moves to the CPU what the device cannot compute.
"""

from __future__ import annotations

import ctypes
import os
import weakref
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

import ggml
import numpy as np

from graphc.errors import GraphcError, InputError
from graphc.shapes import integer
from graphc.targets.ggml.bound import check_bound
from graphc.targets.ggml.memory import ComputeMemory, Placement
from graphc.targets.ggml.program import STORAGE, Call, Constant, Input, Program, Tensor
from graphc.targets.kernels.native import LoadedKernel, load_kernels

KEPT_SIZES = 8
"""Graphs of recent sizes that an executor keeps; the least recently used one goes first."""

ALIGNMENT = 64
"""Bytes to which a weight must be aligned to be used where it lies."""


def default_threads() -> int:
    """Threads to use unless told: the processors that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class Executor:
    """A program with its weights on a device. Not for use by two threads at once.

    `weights` holds one array for each of the program's weights. Raises GraphcError if the device is unknown or out of memory.
    """

    def __init__(
        self, program: Program, weights: Sequence[np.ndarray], device: str = "cpu", threads: int | None = None
    ) -> None:
        self.program = program
        self.arrays = list(weights)
        self.backends = open_backends(device, threads or default_threads())
        self.kernels = load_kernels(program.kernels)
        self.graphs: OrderedDict[tuple[tuple[str, int], ...], BuiltGraph] = OrderedDict()
        self.memory: list[Any] = []
        self.weights = self._load_weights()
        self.compute = ComputeMemory(self.backends, program.tensor_count + 64)
        self.memory.insert(0, (ComputeMemory.free, self.compute))
        self._finalizer = weakref.finalize(self, _free, self.graphs, self.memory, self.backends)

    def close(self) -> None:
        """Free the device's memory; the executor cannot be used afterwards."""
        self._finalizer()

    def run(self, inputs: Mapping[str, np.ndarray], binding: Mapping[str, int]) -> list[np.ndarray]:
        """The outputs, in order, for inputs that fit the program's declarations under `binding` of its size symbols."""
        key = tuple(sorted(binding.items()))
        graph = self.graphs.pop(key, None) or BuiltGraph(self, binding)
        self.graphs[key] = graph
        while len(self.graphs) > KEPT_SIZES:
            self.graphs.popitem(last=False)[1].free()
        return graph.run(inputs)

    @property
    def compute_bytes(self) -> int:
        """Bytes that are reserved for intermediate results: what the largest of the sizes so far needs."""
        return self.compute.nbytes

    def _load_weights(self) -> list[Any]:
        context = new_context(len(self.arrays) + 1)
        self.memory.append((ggml.ggml_free, context))
        tensors = [new_tensor(context, weight.tensor, {}) for weight in self.program.weights]
        device = self.backends[0]
        if len(self.backends) == 1:
            for index, tensor in enumerate(tensors):
                self._place(index, tensor)
        elif tensors:
            buffer = ggml.ggml_backend_alloc_ctx_tensors(context, device)
            if not buffer:
                size = sum(array.nbytes for array in self.arrays)
                raise GraphcError(f"the device has not the {size / 2**20:.0f} MiB that the weights need")
            self.memory.insert(0, (ggml.ggml_backend_buffer_free, buffer))
            ggml.ggml_backend_buffer_set_usage(buffer, ggml.GGML_BACKEND_BUFFER_USAGE_WEIGHTS)
            for array, tensor in zip(self.arrays, tensors, strict=True):
                upload(tensor, array)
        return tensors

    def _place(self, index: int, tensor: Any) -> None:
        """Use a weight's array where it lies; one that is not aligned is copied once."""
        array = np.asarray(self.arrays[index], order="C")
        if array.nbytes and array.ctypes.data % ALIGNMENT:
            array = aligned_copy(array)
        self.arrays[index] = array
        if not array.nbytes:  # ggml would look for a place for it in every graph; it gets one that nothing reads
            array = NOTHING
        cpu = ggml.ggml_backend_dev_by_type(ggml.GGML_BACKEND_DEVICE_TYPE_CPU)
        buffer = ggml.ggml_backend_dev_buffer_from_host_ptr(cpu, array.ctypes.data, array.nbytes, array.nbytes)
        ggml.ggml_backend_buffer_set_usage(buffer, ggml.GGML_BACKEND_BUFFER_USAGE_WEIGHTS)
        ggml.ggml_backend_tensor_alloc(buffer, tensor, array.ctypes.data)
        self.memory.insert(0, (ggml.ggml_backend_buffer_free, buffer))


class BuiltGraph:
    """A program's calls, replayed for one binding of its sizes."""

    def __init__(self, executor: Executor, binding: Mapping[str, int]) -> None:
        program = executor.program
        if binding:
            check_bound(program, binding)
        self.executor = executor
        self.binding = dict(binding)
        count = program.tensor_count + 64
        self.context = new_context(count + 64, graph_size=count)
        self.inputs = [new_tensor(self.context, declared.tensor, binding) for declared in program.inputs]
        self.userdata = [kernel.userdata(binding) for kernel in executor.kernels]
        self.results: list[Any] = []
        for tensor in self.inputs:
            ggml.ggml_set_input(tensor)
            ggml.ggml_set_output(tensor)
        for call in program.calls:
            self.results.append(self._replay(call))
        self.graph = ggml.ggml_new_graph_custom(self.context, count, False)
        self.outputs = [self._tensor(output.tensor) for output in program.outputs]
        for tensor in self.outputs:
            ggml.ggml_set_output(tensor)
            if tensor.contents.view_src:  # the allocator would give a view's memory to later results
                ggml.ggml_set_output(tensor.contents.view_src)
            ggml.ggml_build_forward_expand(self.graph, tensor)
        for tensor in self.inputs:
            ggml.ggml_build_forward_expand(self.graph, tensor)
        self.placement = Placement(self.context, self.graph)

    def run(self, inputs: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        """Upload the inputs, compute, and read the outputs back."""
        program, memory = self.executor.program, self.executor.compute
        memory.place(self.placement)
        for declared, tensor in zip(program.inputs, self.inputs, strict=True):
            upload(tensor, stored(declared, inputs[declared.name]))
        for kernel, userdata in zip(self.executor.kernels, self.userdata, strict=True):
            kernel.reset(userdata)
        status = memory.compute(self.placement)
        if status != ggml.GGML_STATUS_SUCCESS:
            raise GraphcError(f"ggml could not compute the graph (status {status})")
        for kernel, userdata in zip(self.executor.kernels, self.userdata, strict=True):
            fault = kernel.fault(userdata)
            if fault:
                raise InputError(fault)
        results = []
        for output, tensor in zip(program.outputs, self.outputs, strict=True):
            shape = tuple(integer(size, self.binding) for size in output.shape)
            results.append(download(tensor, shape, output.dtype))
        return results

    def free(self) -> None:
        """Give back the description; the memory of the results is the executor's."""
        ggml.ggml_free(self.context)

    def _tensor(self, tensor: Tensor) -> Any:
        if tensor.call >= 0:
            return self.results[tensor.call]
        return self.inputs[tensor.input] if tensor.input >= 0 else self.executor.weights[tensor.weight]

    def _replay(self, call: Call) -> Any:
        if call.kernel >= 0:
            return self._replay_kernel(call, self.executor.kernels[call.kernel])
        args = [self._argument(arg) for arg in call.args]
        result = getattr(ggml, call.function)(self.context, *args)
        if not result:
            raise GraphcError(f"{call.function} failed for {call.source or 'a node'}")
        return result

    def _replay_kernel(self, call: Call, kernel: LoadedKernel) -> Any:
        count = len(call.args)
        args = (ctypes.POINTER(ggml.ggml_tensor) * max(count, 1))(*map(self._argument, call.args))
        type = getattr(ggml, f"GGML_TYPE_{call.result.type}")
        ne = [integer(size, self.binding) for size in call.result.ne]
        userdata = ctypes.cast(self.userdata[call.kernel], ctypes.c_void_p)
        return ggml.ggml_custom_4d(self.context, type, *ne, args, count, kernel.function, -1, userdata)

    def _argument(self, arg: Any) -> Any:
        match arg:
            case Tensor():
                return self._tensor(arg)
            case Constant(name):
                return getattr(ggml, name)
            case bool() | float() | None:
                return arg
        return integer(arg, self.binding)


def open_backends(device: str, threads: int) -> list[Any]:
    """The device's backend, and the CPU's behind it where they differ. Raises GraphcError if there is no such device."""
    ggml.ggml_backend_load_all()
    cpu = ggml.ggml_backend_cpu_init()
    ggml.ggml_backend_cpu_set_n_threads(cpu, threads)
    if device.lower() in ("cpu", ""):
        return [cpu]
    names = [
        ggml.ggml_backend_dev_name(ggml.ggml_backend_dev_get(index)).decode()
        for index in range(ggml.ggml_backend_dev_count())
    ]
    wanted = [name for name in names if name.lower() in (device.lower(), f"{device.lower()}0")]
    if not wanted:
        raise GraphcError(f"no device {device!r}; there is {', '.join(names)}")
    chosen = ggml.ggml_backend_dev_by_name(wanted[0].encode())
    if ggml.ggml_backend_dev_type(chosen) == ggml.GGML_BACKEND_DEVICE_TYPE_CPU and wanted[0] == "CPU":
        return [cpu]
    backend = ggml.ggml_backend_dev_init(chosen, None)
    if not backend:
        raise GraphcError(f"device {wanted[0]} could not be opened")
    return [backend, cpu]


def new_context(tensors: int, graph_size: int = 0) -> Any:
    """A ggml context for descriptions of tensors (and a graph), without their data."""
    size = tensors * ggml.ggml_tensor_overhead()
    if graph_size:
        size += ggml.ggml_graph_overhead_custom(graph_size, False)
    return ggml.ggml_init(ggml.ggml_init_params(mem_size=size, mem_buffer=None, no_alloc=True))


def new_tensor(context: Any, tensor: Tensor, binding: Mapping[str, int]) -> Any:
    """A tensor of the declared type and size."""
    ne = [integer(size, binding) for size in tensor.ne]
    return ggml.ggml_new_tensor_4d(context, getattr(ggml, f"GGML_TYPE_{tensor.type}"), *ne)


def stored(declared: Input, array: np.ndarray) -> np.ndarray:
    """An input's elements as its tensor holds them. Raises InputError for a value out of the declared range."""
    if declared.low is not None and declared.high is not None and array.size:
        outside = np.flatnonzero((array < declared.low) | (array >= declared.high))
        if outside.size:
            where = tuple(int(i) for i in np.unravel_index(outside[0], array.shape))
            value = array.reshape(-1)[outside[0]]
            raise InputError(f"{declared.name}: {value} at {where} is not in {declared.low}..{declared.high - 1}")
    if declared.tensor.type == STORAGE[declared.dtype]:
        return array
    return array.astype({"I32": np.int32}[declared.tensor.type])


def upload(tensor: Any, array: np.ndarray) -> None:
    """Copy an array's bytes to a tensor."""
    array = np.ascontiguousarray(array)
    if array.nbytes:
        ggml.ggml_backend_tensor_set(tensor, array.ctypes.data, 0, array.nbytes)


def download(tensor: Any, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Copy a tensor's bytes to a new array."""
    array = np.empty(shape, dtype)
    if array.nbytes:
        ggml.ggml_backend_tensor_get(tensor, array.ctypes.data, 0, array.nbytes)
    return array


def aligned_copy(array: np.ndarray) -> np.ndarray:
    """A copy whose first byte is aligned."""
    raw = np.empty(array.nbytes + ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT
    copy = raw[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


NOTHING = aligned_copy(np.zeros(ALIGNMENT, np.uint8))
"""Where tensors without elements lie."""


def _free(graphs: OrderedDict, memory: list[Any], backends: list[Any]) -> None:
    for graph in graphs.values():
        graph.free()
    graphs.clear()
    for release, handle in memory:
        release(handle)
    memory.clear()
    for backend in backends:
        ggml.ggml_backend_free(backend)
