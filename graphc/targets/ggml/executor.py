"""Runs a program in this process, through ggml's C interface.

The calls of a section of the program are replayed for the sizes at hand into a ggml graph (`built.py`), which is kept for the
next run with the same sizes; what the host does between two sections is in `host.py`. Where weights lie is decided in
`fitting.py`. ggml's scheduler moves to the CPU what the device cannot compute.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from typing import Any

import numpy as np

from graphc.backends.guard import ServerLost
from graphc.backends.rpc import Servers
from graphc.errors import InputError
from graphc.ggml_library import ggml
from graphc.ops.control import settle
from graphc.shapes import Dim, integer
from graphc.targets.ggml.adapt import Adapter
from graphc.targets.ggml.built import BuiltGraph
from graphc.targets.ggml.choices import choices_for
from graphc.targets.ggml.context import Context, Contexts
from graphc.targets.ggml.cost import with_blocks
from graphc.targets.ggml.devices import backend_name, check_threads, open_backends
from graphc.targets.ggml.fitting import Fitting
from graphc.targets.ggml.host import perform
from graphc.targets.ggml.place import Limit, names_cpu, split_devices
from graphc.targets.ggml.placed import Weights
from graphc.targets.ggml.products import load_products
from graphc.targets.ggml.program import Call, Program, Tensor
from graphc.targets.ggml.sections import Section, sections
from graphc.targets.kernels.native import load_kernels


class Executor:
    """A program with its weights on a device. Up to `most_runs()` runs may happen at once, each in a context of its own, and none
    while weights are replaced or all is closed: `Model` sees to that.

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
        self.threads = check_threads(threads)
        self.kernels = load_kernels(program.kernels)
        self.steps: dict[Program, list[Section | Call]] = {}
        self.observer: Callable[[BuiltGraph], None] | None = None
        self.servers = Servers(split_devices(device))
        self.servers.call(lambda: self._open(weights, device, memory, planning))
        self.products = load_products() if len(self.backends) == 1 else None
        self.adapter = Adapter(self.backends)
        self._finalizer = weakref.finalize(self, _free, self.servers, self.contexts, self.weights, list(self.backends))
        # at exit threads may still compute on the CPU; and none can be started, which servers need
        self._finalizer.atexit = len(self.backends) > 1 and not self.servers.addresses

    def _open(self, weights: Iterable[np.ndarray], device: str, memory: Sequence[Limit], planning: bool) -> None:
        """Nothing is left on devices if it fails."""
        with ExitStack() as undo:
            self.backends = open_backends(device, self.threads)
            undo.callback(_close, self.backends)
            undo.callback(self.servers.release)
            self.servers.hold(self.backends)
            self.backend_names = [backend_name(each) for each in self.backends]
            self.choices = choices_for(self.backends, self.threads)
            self.weights = Weights(self.program, weights, self.backends)
            undo.callback(self.weights.free)
            self.fitting = Fitting(self.program, self.weights, memory, names_cpu(device), planning)
            self.contexts = Contexts(on_devices=len(self.backends) > 1)
            with self.contexts.one(self):
                undo.pop_all()

    def most_runs(self, wanted: int | None = None) -> int:
        """How many runs may happen at once, where so many are wanted, or as many as threads. The memory of devices is for one.
        Raises InputError for what is no such number."""
        if wanted is not None and (type(wanted) is not int or wanted < 1):
            raise InputError(f"contexts is {wanted!r}, must be a number from 1")
        return 1 if len(self.backends) > 1 else wanted or self.threads

    def close(self) -> None:
        """Free the device's memory; the executor cannot be used afterwards."""
        self._finalizer()

    def check(self) -> None:
        """Raises GraphcError once it is closed, or if it does not belong to this process."""
        self.contexts.check()

    def run(self, inputs: Mapping[str, np.ndarray], binding: Mapping[str, int]) -> list[np.ndarray]:
        """The outputs, in order, for inputs that fit the program's declarations under `binding` of its size symbols.

        Raises GraphcError if they do not fit into memory, a server is lost, or the executor was closed."""
        arrays = [inputs[declared.name] for declared in self.program.inputs]
        return self.servers.call(lambda: self._run(arrays, dict(binding)))

    def _run(self, arrays: Sequence[np.ndarray], binding: dict[str, int]) -> list[np.ndarray]:
        context = self.contexts.take(self)
        try:
            return Run(context, self.program, arrays, binding).results()
        finally:
            self.contexts.give_back(context)

    def context(self) -> AbstractContextManager[Context]:
        """A context that nobody else uses in a block."""
        return self.contexts.one(self)

    def compute_graph(self, graph: BuiltGraph) -> int:
        """Run a graph that has its places; ggml's status. The CPU's threads are shared among the runs that there are now. An
        observer computes it in its own way."""
        graph.owner.use_threads(max(1, self.threads // max(1, len(self.contexts.busy))))
        if self.observer is None:
            return graph.owner.compute.compute(graph.placement)
        self.observer(graph)
        return int(ggml.GGML_STATUS_SUCCESS)

    def replace_weights(self, arrays: Iterable[np.ndarray]) -> None:
        """Use other arrays, of the same dtypes and shapes, from the next run on. On an error the old ones stay."""
        self.check()
        self.servers.call(lambda: self.weights.replace(arrays))
        self.forget()

    def forget(self) -> None:
        """Have graphs built and placed anew, because something that they depend on is not what it was."""
        for context in self.contexts.idle:
            context.forget()

    def sections(self, program: Program) -> list[Section | Call]:
        """What is to be done for the program, or one inside it."""
        if program not in self.steps:
            self.steps.setdefault(program, sections(program))
        return self.steps[program]

    @property
    def section_count(self) -> int:
        """How many graphs there are for each binding of the sizes, as far as is known."""
        return sum(map(len, list(self.steps.values())))

    @property
    def graphs(self) -> list[BuiltGraph]:
        """The graphs that are kept for further runs."""
        return [graph for context in self.contexts.idle for graph in context.graphs.values()]

    @property
    def arrays(self) -> list[np.ndarray]:
        """The weights' arrays, as they are used."""
        return self.weights.arrays

    @property
    def compute_bytes(self) -> int:
        """Bytes that are reserved for intermediate results: in each context what the largest of its sizes so far needs."""
        return sum(context.compute.nbytes for context in self.contexts.idle)

    def bytes_for(self, binding: Mapping[str, int]) -> int:
        """Bytes that a run of these sizes needs for intermediate results, on all devices together, whatever they are allowed;
        nothing is reserved or computed. Sections whose sizes only a run can tell are not counted."""
        return self.servers.call(lambda: self._bytes_for(binding))

    def _bytes_for(self, binding: Mapping[str, int]) -> int:
        parts = [
            (program, step)
            for program in with_blocks(self.program)
            for step in self.sections(program)
            if isinstance(step, Section) and step.symbols <= binding.keys()
        ]
        with self.context() as context:
            return max((context.compute.needed(context.graph(*part, binding).placement) for part in parts), default=0)

    def release(self) -> None:
        """Give back the memory of intermediate results, and the graphs; a run makes them anew."""
        self.check()
        self.servers.call(self.contexts.release)

    def placed(self, arrays: Iterable[np.ndarray]) -> list[np.ndarray]:
        """The arrays as they are used; each is copied, if it has to be, before the next is made."""
        return self.weights.kept(arrays)


class Run:
    """One run of a program, in a context: the sections one after the other, and what the host does between them."""

    def __init__(
        self, context: Context, program: Program, inputs: Sequence[np.ndarray], binding: dict[str, int]
    ) -> None:
        self.context, self.program, self.inputs, self.binding = context, program, inputs, binding
        self.steps = context.executor.sections(program)
        self.made: dict[int, np.ndarray] = {}

    def results(self) -> list[np.ndarray]:
        """The program's outputs. Raises InputError for what does not fit."""
        outputs: dict[int, np.ndarray] = {}
        for step in self.steps:
            if isinstance(step, Call):
                self._host(step)
                continue
            graph = self.context.graph(self.program, step, self.binding)
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
        return Run(self.context, block, arrays, binding).results()

    def _array(self, tensor: Tensor, dtype: np.dtype, shape: Sequence[Dim]) -> np.ndarray:
        """A tensor that is an input, or the result of an earlier call, in the model's terms."""
        array = self.inputs[tensor.input] if tensor.input >= 0 else self.made[tensor.call]
        sizes = [integer(size, self.binding) for size in shape]
        return np.ascontiguousarray(array).reshape(-1).view(dtype).reshape(sizes)


def _free(servers: Servers, contexts: Contexts, weights: Weights, backends: Sequence[Any]) -> None:
    """What belongs to a server that is lost, or to the devices of the process that this one was forked from, is left as it is;
    and everything that is in use, at the end of the process."""
    if contexts.foreign or contexts.busy:
        return
    with suppress(ServerLost):
        servers.call(lambda: _free_devices(servers, contexts, weights, backends))


def _free_devices(servers: Servers, contexts: Contexts, weights: Weights, backends: Sequence[Any]) -> None:
    contexts.free()
    weights.free()
    servers.release()
    _close(backends)


def _close(backends: Iterable[Any]) -> None:
    for backend in backends:
        ggml.ggml_backend_free(backend)
