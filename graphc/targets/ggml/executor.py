"""Runs a program in this process, through ggml's C interface.

The calls of a section of the program are replayed for the sizes at hand into a ggml graph, which is kept for the next run
with the same sizes; what the host does between two sections is in `host.py`. Where weights lie is decided in `fitting.py`.
ggml's scheduler moves to the CPU what the device cannot compute.
"""

from __future__ import annotations

import ctypes
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from graphc.backends.guard import ServerLost
from graphc.backends.rpc import Servers
from graphc.errors import GraphcError, InputError
from graphc.ggml_library import ggml
from graphc.ops.control import settle
from graphc.shapes import Dim, integer
from graphc.targets.ggml.adapt import Adapter
from graphc.targets.ggml.apart import expand_apart
from graphc.targets.ggml.assign import assign
from graphc.targets.ggml.bound import check_bound
from graphc.targets.ggml.choices import choices_for
from graphc.targets.ggml.devices import default_threads, open_backends
from graphc.targets.ggml.fitting import Fitting
from graphc.targets.ggml.host import perform
from graphc.targets.ggml.memory import ComputeMemory, Placement
from graphc.targets.ggml.place import Limit, names_cpu, split_devices
from graphc.targets.ggml.placed import Weights
from graphc.targets.ggml.products import Own, load_products
from graphc.targets.ggml.program import STORAGE, Call, Constant, Input, Program, Tensor
from graphc.targets.ggml.replace import find_own
from graphc.targets.ggml.sections import Section, sections
from graphc.targets.ggml.tensors import address, download, new_context, new_tensor, upload
from graphc.targets.kernels.native import LoadedKernel, load_kernels

KEPT_SIZES = 8
"""Graphs of recent sizes that an executor keeps; the least recently used one goes first."""


class Executor:
    """A program with its weights on a device. Not for use by two threads at once.

    `weights` holds one array for each of the program's weights. `device` may name several, with commas between; `memory` are the
    bytes that each may use, None for what is free. While `planning`, devices get nothing, and nothing can be run. Raises
    GraphcError if a device is unknown or has too little memory.
    """

    def __init__(
        self,
        program: Program,
        weights: Iterable[np.ndarray],
        device: str = "cpu",
        threads: int | None = None,
        memory: Sequence[Limit] = (),
        planning: bool = False,
    ) -> None:
        self.program = program
        self.threads = threads or default_threads()
        self.kernels = load_kernels(program.kernels)
        self.graphs: OrderedDict[Any, BuiltGraph] = OrderedDict()
        self.steps: dict[Program, list[Section | Call]] = {}
        self.observer: Callable[[BuiltGraph], None] | None = None
        self.servers = Servers(split_devices(device))
        self.servers.call(lambda: self._open(weights, device, memory, planning))
        self.products = load_products() if len(self.backends) == 1 else None
        self.adapter = Adapter(self.backends)
        self._finalizer = weakref.finalize(self, _free, self.servers, self.graphs, self.compute, self.weights)
        # at exit no thread can be started any more, and a server notices by itself
        self._finalizer.atexit = not self.servers.addresses

    def _open(self, weights: Iterable[np.ndarray], device: str, memory: Sequence[Limit], planning: bool) -> None:
        """Nothing is left on devices if it fails."""
        with ExitStack() as undo:
            self.backends = open_backends(device, self.threads)
            undo.callback(_close, self.backends)
            undo.callback(self.servers.release)
            self.servers.hold(self.backends)
            self.choices = choices_for(self.backends, self.threads)
            self.weights = Weights(self.program, weights, self.backends)
            undo.callback(self.weights.free)
            self.fitting = Fitting(self.program, self.weights, memory, names_cpu(device), planning)
            self.compute = ComputeMemory(self.weights, self.fitting, 2 * self.program.tensor_count + 64)
            undo.pop_all()

    def close(self) -> None:
        """Free the device's memory; the executor cannot be used afterwards."""
        self._finalizer()

    def run(self, inputs: Mapping[str, np.ndarray], binding: Mapping[str, int]) -> list[np.ndarray]:
        """The outputs, in order, for inputs that fit the program's declarations under `binding` of its size symbols.

        Raises GraphcError if they do not fit into memory, or a server is lost."""
        arrays = [inputs[declared.name] for declared in self.program.inputs]
        return self.servers.call(lambda: Run(self, self.program, arrays, dict(binding)).results())

    def graph(self, program: Program, section: Section, binding: Mapping[str, int]) -> BuiltGraph:
        """The graph of a section for certain sizes: one that is kept, or a new one."""
        sizes = {name: binding[name] for name in sorted(section.symbols)}
        key = (section, *sizes.items())
        graph = self.graphs.pop(key, None) or BuiltGraph(self, program, section, sizes)
        self.graphs[key] = graph
        while len(self.graphs) > KEPT_SIZES * sum(map(len, self.steps.values())):
            self.graphs.popitem(last=False)[1].free()
        return graph

    def compute_graph(self, graph: BuiltGraph) -> int:
        """Run a graph that has its places; ggml's status. An observer does it in its own way."""
        if self.observer is None:
            return self.compute.compute(graph.placement)
        self.observer(graph)
        return int(ggml.GGML_STATUS_SUCCESS)

    def replace_weights(self, arrays: Iterable[np.ndarray]) -> None:
        """Use other arrays, of the same dtypes and shapes, from the next run on. On an error the old ones stay."""
        self.servers.call(lambda: self.weights.replace(arrays))
        self.compute.forget()
        if len(self.backends) == 1:  # graphs hold views of the old weights
            for graph in self.graphs.values():
                graph.free()
            self.graphs.clear()

    @property
    def arrays(self) -> list[np.ndarray]:
        """The weights' arrays, as they are used."""
        return self.weights.arrays

    @property
    def compute_bytes(self) -> int:
        """Bytes that are reserved for intermediate results: what the largest of the sizes so far needs."""
        return self.compute.nbytes

    def placed(self, arrays: Iterable[np.ndarray]) -> list[np.ndarray]:
        """The arrays as they are used; each is copied, if it has to be, before the next is made."""
        return self.weights.kept(arrays)


class Run:
    """One run of a program: the sections one after the other, and what the host does between them."""

    def __init__(
        self, executor: Executor, program: Program, inputs: Sequence[np.ndarray], binding: dict[str, int]
    ) -> None:
        self.executor, self.program, self.inputs, self.binding = executor, program, inputs, binding
        if program not in executor.steps:
            executor.steps[program] = sections(program)
        self.steps = executor.steps[program]
        self.made: dict[int, np.ndarray] = {}

    def results(self) -> list[np.ndarray]:
        """The program's outputs. Raises InputError for what does not fit."""
        outputs: dict[int, np.ndarray] = {}
        for step in self.steps:
            if isinstance(step, Call):
                self._host(step)
                continue
            graph = self.executor.graph(self.program, step, self.binding)
            made, found = graph.run(self.inputs, self.made)
            self.made.update(made)
            outputs.update(found)
        return [
            outputs[index] if index in outputs else self._array(output.tensor, output.dtype, output.shape)
            for index, output in enumerate(self.program.outputs)
        ]

    def _host(self, call: Call) -> None:
        assert call.host is not None
        args = [
            self._array(tensor, type.dtype, type.shape)
            for tensor, type in zip(call.args, call.host.inputs, strict=True)
            if isinstance(tensor, Tensor)
        ]
        results = perform(call.host, args, self._block, self.binding)
        for number, array in enumerate(results):
            self.made[call.result.call + 1 + number] = array

    def _block(self, block: Program, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        binding = dict(self.binding)
        for declared, array in zip(block.inputs, arrays, strict=True):
            settle(binding, declared.shape, array, declared.name)
        return Run(self.executor, block, arrays, binding).results()

    def _array(self, tensor: Tensor, dtype: np.dtype, shape: Sequence[Dim]) -> np.ndarray:
        """A tensor that is an input, or the result of an earlier call, in the model's terms."""
        array = self.inputs[tensor.input] if tensor.input >= 0 else self.made[tensor.call]
        sizes = [integer(size, self.binding) for size in shape]
        return np.ascontiguousarray(array).reshape(-1).view(dtype).reshape(sizes)


@dataclass(frozen=True)
class Taken:
    """The way in which a call is computed that there are several for, and what the choice depends on."""

    key: str
    way: str


class BuiltGraph:
    """The calls of a section, replayed for one binding of its sizes."""

    def __init__(self, executor: Executor, program: Program, section: Section, binding: Mapping[str, int]) -> None:
        if binding:
            check_bound(program, section.calls, binding)
        self.executor, self.program, self.section = executor, program, section
        self.binding = dict(binding)
        count = 2 * program.tensor_count + len(section.calls) + 64
        self.context = new_context(count + 64, graph_size=count)
        self.inputs = {
            index: new_tensor(self.context, program.inputs[index].tensor, binding) for index in section.inputs
        }
        self.results = {
            index: new_tensor(self.context, program.calls[index].result, binding) for index in section.reads
        }
        self.given = [*self.inputs.values(), *self.results.values()]
        calls = [program.calls[index] for index in section.calls]
        kernels = sorted({call.kernel for call in calls if call.kernel >= 0})
        self.userdata = {index: executor.kernels[index].userdata(binding) for index in kernels}
        self.own: dict[int, Own] = {}
        self.taken: dict[int, Taken] = {}
        for tensor in self.given:
            ggml.ggml_set_input(tensor)
            ggml.ggml_set_output(tensor)
        for call in calls:
            self.results[call.result.call] = self._replay(call)
        self.graph = ggml.ggml_new_graph_custom(self.context, count, False)
        if len(executor.servers.addresses) > 1:
            expand_apart(self.context, self.graph, self.results.values(), executor.weights.tensors)
        self.outputs = [self._tensor(program.outputs[index].tensor) for index in section.outputs]
        for tensor in (*self.outputs, *(self.results[index] for index in section.writes)):
            ggml.ggml_set_output(tensor)
            if tensor.contents.view_src:  # the allocator would give a view's memory to later results
                ggml.ggml_set_output(tensor.contents.view_src)
            ggml.ggml_build_forward_expand(self.graph, tensor)
        for tensor in self.given:
            ggml.ggml_build_forward_expand(self.graph, tensor)
        pinned = {address(node): node for each in executor.backends[:-1] for node in assign(each, self.graph).pinned}
        self.placement = Placement(self.context, self.graph, list(pinned.values()))

    def run(
        self, inputs: Sequence[np.ndarray], made: Mapping[int, np.ndarray]
    ) -> tuple[dict[int, np.ndarray], dict[int, np.ndarray]]:
        """Upload what the section reads, compute, and read back: results of calls that are read later, and outputs."""
        program, memory, kernels = self.program, self.executor.compute, self.executor.kernels
        memory.place(self.placement)
        for index, tensor in self.inputs.items():
            upload(tensor, stored(program.inputs[index], inputs[index]))
        for index in self.section.reads:
            upload(self.results[index], made[index])
        for index, userdata in self.userdata.items():
            kernels[index].reset(userdata)
        status = self.executor.compute_graph(self)
        if status != ggml.GGML_STATUS_SUCCESS:
            raise GraphcError(f"ggml could not compute the graph (status {status})")
        for index, userdata in self.userdata.items():
            if fault := kernels[index].fault(userdata):
                raise InputError(fault)
        later = {
            index: download(self.results[index], (ggml.ggml_nbytes(self.results[index]),), np.dtype(np.uint8))
            for index in self.section.writes
        }
        outputs = {}
        for index, tensor in zip(self.section.outputs, self.outputs, strict=True):
            output = program.outputs[index]
            shape = tuple(integer(size, self.binding) for size in output.shape)
            outputs[index] = download(tensor, shape, output.dtype)
        return later, outputs

    def free(self) -> None:
        """Give back the description; the memory of the results is the executor's."""
        ggml.ggml_free(self.context)

    def _tensor(self, tensor: Tensor) -> Any:
        if tensor.call >= 0:
            return self.results[tensor.call]
        return self.inputs[tensor.input] if tensor.input >= 0 else self.executor.weights.tensors[tensor.weight]

    def _replay(self, call: Call) -> Any:
        if not all(integer(size, self.binding) for size in call.result.ne):
            empty = new_tensor(self.context, call.result, self.binding)
            ggml.ggml_set_input(empty)  # a scheduler wants to know of everything where it comes from
            return empty
        if call.kernel >= 0:
            return self._replay_kernel(call, self.executor.kernels[call.kernel])
        args = [self.argument(arg) for arg in call.args]
        result = self._replaced(call, args) or self.executor.adapter.adapted(self, call, args)
        result = result or getattr(ggml, call.function)(self.context, *args)
        if not result:
            raise GraphcError(f"{call.function} failed for {call.source or 'a node'}")
        return result

    def _replaced(self, call: Call, args: Sequence[Any]) -> Any:
        """The tensor of a call that is left to code of our own instead of ggml's; None for others."""
        products = self.executor.products
        own = None if products is None else find_own(self, products, call, args)
        if products is None or not isinstance(own, Own):
            return own
        self.own[call.result.call] = own
        ne = [integer(size, self.binding) for size in call.result.ne]
        return products.tensor(self.context, own, ne, self.executor.threads)

    def choose(self, call: Call, key: str, ways: Mapping[str, Callable[[], Any]], order: Sequence[str]) -> Any:
        """What computes a call: by the way that was chosen for the key, else the first in `order`; None if none of them can."""
        for name in (self.executor.choices.get(key, ""), *order):
            if name in ways and (made := ways[name]()):
                self.taken[call.result.call] = Taken(key, name)
                return made
        return None

    def _replay_kernel(self, call: Call, kernel: LoadedKernel) -> Any:
        count = len(call.args)
        args = (ctypes.POINTER(ggml.ggml_tensor) * max(count, 1))(*map(self.argument, call.args))
        type = getattr(ggml, f"GGML_TYPE_{call.result.type}")
        ne = [integer(size, self.binding) for size in call.result.ne]
        userdata = ctypes.cast(self.userdata[call.kernel], ctypes.c_void_p)
        return ggml.ggml_custom_4d(self.context, type, *ne, args, count, kernel.function, -1, userdata)

    def argument(self, arg: Any) -> Any:
        """What ggml is given for an argument of a call."""
        match arg:
            case Tensor():
                return self._tensor(arg)
            case Constant(name):
                return getattr(ggml, name)
            case bool() | float() | None:
                return arg
        return integer(arg, self.binding)


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


def _free(servers: Servers, graphs: OrderedDict, compute: ComputeMemory, weights: Weights) -> None:
    """What belongs to a server that is lost is left as it is."""
    for graph in graphs.values():
        graph.free()
    graphs.clear()
    with suppress(ServerLost):
        servers.call(lambda: _free_devices(servers, compute, weights))


def _free_devices(servers: Servers, compute: ComputeMemory, weights: Weights) -> None:
    compute.free()
    weights.free()
    servers.release()
    _close(weights.backends)


def _close(backends: Iterable[Any]) -> None:
    for backend in backends:
        ggml.ggml_backend_free(backend)
