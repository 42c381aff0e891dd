"""Execution contexts: what each of the runs that happen at once needs for itself.

A program, its weights and its kernels are shared. A context has the graphs, the memory of their results and a backend of the CPU.
"""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from graphc.errors import GraphcError
from graphc.forking import renew_in_child
from graphc.ggml_library import ggml
from graphc.targets.ggml.program.program import Program
from graphc.targets.ggml.program.sections import Section
from graphc.targets.ggml.run.device.devices import open_cpu
from graphc.targets.ggml.run.device.tensors import context_bytes
from graphc.targets.ggml.run.graph import BuiltGraph, most_tensors
from graphc.targets.ggml.run.memory.results import ComputeMemory
from graphc.targets.ggml.run.steady import SteadyResults

if TYPE_CHECKING:
    from graphc.targets.ggml.run.executor import Executor

KEPT_SIZES = 8
"""Graphs of recent sizes that a context keeps; the least recently used one goes first."""

KEPT_BYTES = 32 << 20
"""Bytes that graphs may take on the CPU alone, however many they are: a loop may have new sizes in each step."""


class Context:
    """What one run at a time uses of an executor. Its graphs live no longer than the executor, which therefore is not kept alive
    by them: so it is freed as soon as nobody uses it."""

    def __init__(self, executor: Executor) -> None:
        self._executor = weakref.ref(executor)
        self.cpu = open_cpu(executor.threads)
        self.backends = [*executor.backends[:-1], self.cpu]
        self.tensors = most_tensors(executor.program)
        tensors = 2 * self.tensors + 64  # its copies between devices are counted too
        self.compute = ComputeMemory(
            executor.weights, executor.fitting, self.backends, tensors, executor.own, executor.threads
        )
        self.small = 0 if len(self.backends) > 1 else KEPT_BYTES // context_bytes(self.tensors, self.tensors)
        self.graphs: OrderedDict[Any, BuiltGraph] = OrderedDict()
        self.steady = SteadyResults()

    @property
    def executor(self) -> Executor:
        """Whose context it is."""
        found = self._executor()
        assert found is not None
        return found

    def graph(self, program: Program, section: Section, binding: Mapping[str, int]) -> BuiltGraph:
        """The graph of a section for certain sizes: one that is kept, or a new one."""
        replay = self.executor.replay(program, section)
        key = (section, replay.key(binding))
        graph = self.graphs.get(key)
        if graph is not None:
            self.graphs.move_to_end(key)
            graph.tell(binding)
            return graph
        for other in [other for other in self.graphs if section.kept and other[0] is section]:
            self.graphs.pop(other).free()  # what it keeps is beside the memory that graphs share
        graph = BuiltGraph(self, program, section, replay.known(binding))
        while len(self.graphs) >= max(KEPT_SIZES * self.executor.section_count, self.small):
            self.graphs.popitem(last=False)[1].free()
        self.graphs[key] = graph
        return graph

    @contextmanager
    def until(self, stopped: Callable[[], bool]) -> Iterator[None]:
        """Have what is computed in a block end once `stopped()` is true; it is asked after each operation of the CPU."""
        callback = self.compute.stopped = ggml.ggml_abort_callback(lambda _: bool(stopped()))
        ggml.ggml_backend_cpu_set_abort_callback(self.cpu, callback, None)
        try:
            yield
        finally:
            self.compute.stopped = None
            ggml.ggml_backend_cpu_set_abort_callback(self.cpu, ggml.ggml_abort_callback(), None)

    def use_threads(self, count: int) -> None:
        """Compute what comes next with so many threads of the CPU."""
        if count != self.compute.threads:
            ggml.ggml_backend_cpu_set_n_threads(self.cpu, count)
            self.compute.threads = count

    def forget(self) -> None:
        """The weights have moved: graphs that hold views of them are built anew, others get places anew."""
        self.compute.forget()
        self.steady.clear()
        if len(self.backends) == 1:
            self._drop()

    def page_out(self) -> None:
        """Let the system have the memory of results, and of weights that stay rounded: their graphs hold that, and go with it."""
        self.compute.page_out()
        if self.executor.rounds:
            self._drop()

    def free(self) -> None:
        """Give back everything."""
        self._drop()
        self.compute.free()
        ggml.ggml_backend_free(self.cpu)

    def _drop(self) -> None:
        for graph in self.graphs.values():
            graph.free()
        self.graphs.clear()


class Contexts:
    """The contexts of an executor: as many as there ever were runs at once. The one that was used last is taken first.

    Threads need no lock for it: what they do to the list and the set are single steps.
    """

    def __init__(self, on_devices: bool) -> None:
        self.idle: list[Context] = []
        self.busy: set[Context] = set()
        self.on_devices, self.foreign = on_devices, False
        self.closed = ""
        renew_in_child(self)

    def renew(self) -> None:
        """See `Renewed`. What other threads were using is left as it is; devices do not know the child."""
        self.busy.clear()
        self.foreign = self.on_devices
        if self.foreign:
            self.closed = "the model was loaded on a device before this process was forked: load it in this process"

    def take(self, executor: Executor) -> Context:
        """A context that nobody else uses until it is given back. Raises GraphcError if they are closed."""
        self.check()
        try:
            context = self.idle.pop()
        except IndexError:
            context = Context(executor)
        self.busy.add(context)
        return context

    def give_back(self, context: Context) -> None:
        """Let others have it."""
        self.busy.discard(context)
        self.idle.append(context)

    @contextmanager
    def one(self, executor: Executor) -> Iterator[Context]:
        """A context for a block. Raises GraphcError if they are closed."""
        context = self.take(executor)
        try:
            yield context
        finally:
            self.give_back(context)

    def check(self) -> None:
        """Raises GraphcError if the contexts cannot be used any more."""
        if self.closed:
            raise GraphcError(self.closed)

    def release(self) -> None:
        """Give back those that are not in use; others are made when they are needed."""
        while self.idle:
            self.idle.pop().free()

    def page_out(self) -> None:
        """Let the system have the memory of those that are not in use, but for graphs that hold none."""
        taken = []
        with suppress(IndexError):  # other threads take some meanwhile
            while True:
                taken.append(self.idle.pop())
        for context in reversed(taken):
            context.page_out()
            self.idle.append(context)

    def free(self) -> None:
        """Give back all of them, when none is in use, and make no others."""
        self.closed = "the model is closed"
        self.release()
