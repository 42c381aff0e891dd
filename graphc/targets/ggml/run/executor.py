"""Runs a program in this process, through ggml's C interface.

`run.py` has one run, a section of the program after the other. The calls of a section are replayed for the sizes at hand into a
ggml graph (`graph.py`), which is kept for the next run with the same sizes. Where weights lie is decided in `memory/`. ggml's
scheduler moves to the CPU what the device cannot compute.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np

from graphc.backends.guard import ServerLost
from graphc.backends.precision import is_exact
from graphc.backends.rpc import Servers
from graphc.errors import InputError
from graphc.ggml_library import ggml
from graphc.targets.ggml.lowering.compose import composed
from graphc.targets.ggml.program.program import Call, Program, with_blocks
from graphc.targets.ggml.program.sections import Section, sections, steady_inputs
from graphc.targets.ggml.run.choose.choices import choices_for
from graphc.targets.ggml.run.choose.library import load_own
from graphc.targets.ggml.run.context import Context, Contexts
from graphc.targets.ggml.run.device.devices import backend_name, check_threads, is_generated, open_backends
from graphc.targets.ggml.run.device.options import Limit, names_cpu, split_devices
from graphc.targets.ggml.run.device.tensors import give_back
from graphc.targets.ggml.run.graph import BuiltGraph
from graphc.targets.ggml.run.kernels import load_kernels
from graphc.targets.ggml.run.memory.limits import Fitting
from graphc.targets.ggml.run.memory.weights import Weights
from graphc.targets.ggml.run.replay import Replay
from graphc.targets.ggml.run.run import Run

if TYPE_CHECKING:
    from graphc.targets.ggml.run.launches import LaunchedKernels


class Executor:
    """A program with its weights on a device. Up to `most_runs()` runs may happen at once, each in a context of its own, and none
    while weights are replaced or all is closed: `Model` sees to that.

    `weights` holds one array for each of the program's weights. `device` may name several, with commas between; `memory` are the
    bytes that each may use, None for what is free. A device of generated kernels takes the texts of the folder `kernels` instead
    of those that are generated, and if it may `trust` the program, the code there. `steady` are names of inputs that stay the
    same from run to run. While `planning`, devices get nothing, and nothing can be run. Raises GraphcError if a device is unknown
    or has too little memory.
    """

    def __init__(
        self,
        program: Program,
        weights: Iterable[np.ndarray],
        device: str = "cpu",
        threads: int | None = None,
        memory: Sequence[Limit] = (),
        kernels: Path | None = None,
        trust: bool = False,
        steady: Collection[str] = (),
        planning: bool = False,
    ) -> None:
        self.program = program
        self.launched: LaunchedKernels | None = None
        self.folder, self.trust = kernels, trust
        self.threads = check_threads(threads)
        self.steady = steady_inputs(program, steady)
        self.steps: dict[Program, list[Section | Call]] = {}
        self._replays: WeakKeyDictionary[Section, Replay] = WeakKeyDictionary()
        self.observer: Callable[[BuiltGraph], None] | None = None
        self.fast = not is_exact()
        self.own = load_own()
        self.servers = Servers(split_devices(device))
        self.servers.call(lambda: self._open(weights, device, memory, planning))
        self.uses_own = self.own is not None and len(self.backends) == 1
        self._finalizer = weakref.finalize(self, _free, self.servers, self.contexts, self.weights, list(self.backends))
        # at exit threads may still compute on the CPU; and none can be started, which servers need
        self._finalizer.atexit = len(self.backends) > 1 and not self.servers.addresses

    @property
    def rounds(self) -> bool:
        """True if our own code rounds what it multiplies to bfloat16."""
        return self.own is not None and self.uses_own and self.fast and self.own.multiplies_pairs

    def _open(self, weights: Iterable[np.ndarray], device: str, memory: Sequence[Limit], planning: bool) -> None:
        """Nothing is left on devices if it fails."""
        with ExitStack() as undo:
            self.backends = open_backends(device, self.threads)
            undo.callback(_close, self.backends)
            undo.callback(self.servers.release)
            self.servers.hold(self.backends)
            self.backend_names = [backend_name(each) for each in self.backends]
            self._generate()
            self.kernels = load_kernels(self.program.kernels)
            self.choices = choices_for(self.backends, self.threads)
            self.weights = Weights(self.program, weights, self.backends)
            undo.callback(self.weights.free)
            self.fitting = Fitting(self.program, self.weights, memory, names_cpu(device), self.own, planning)
            self.contexts = Contexts(on_devices=len(self.backends) > 1)
            with self.contexts.one(self):
                undo.pop_all()

    def _generate(self) -> None:
        """Have a device of generated kernels compute what it can; else composites are what is computed."""
        own = [each for each in self.backends[:-1] if is_generated(ggml.ggml_backend_get_device(each))]
        if not own:
            self.program = composed(self.program)
            if self.folder is not None:
                raise InputError(
                    f"kernels of {self.folder}: they are for a device of generated kernels (`graphc devices`)"
                )
            return
        if len(self.backends) > 2:
            raise InputError("a device of generated kernels computes a model alone, or with the CPU")
        from graphc.targets.ggml.run.launches import launched  # a CPU's program starts without the generator

        self.launched = launched(self.program, own[0], self.folder, self.trust)
        self.program = self.launched.generated.program

    def most_runs(self, wanted: int | None = None) -> int:
        """How many runs may happen at once, where so many are wanted, or as many as threads. The memory of devices is for one.
        Raises InputError for what is no such number."""
        if wanted is not None and (type(wanted) is not int or wanted < 1):
            raise InputError(f"contexts is {wanted!r}, must be a number from 1")
        return 1 if len(self.backends) > 1 else wanted or self.threads

    def close(self) -> None:
        """Free the device's memory; the executor cannot be used afterwards."""
        self._finalizer()
        if self.launched is not None:
            self.launched.free()

    def check(self) -> None:
        """Raises GraphcError once it is closed, or if it does not belong to this process."""
        self.contexts.check()

    def run(
        self,
        inputs: Mapping[str, np.ndarray],
        binding: Mapping[str, int],
        into: Mapping[int, np.ndarray] | None = None,
        stopped: Callable[[], bool] | None = None,
    ) -> list[np.ndarray]:
        """The outputs, in order, for inputs that fit the program's declarations under `binding` of its size symbols. An output
        that a section makes is written `into` the array of its number, which is contiguous, if it has its type and sizes. Once
        `stopped()` is true, the run ends with a GraphcError.

        Raises GraphcError if they do not fit into memory, a server is lost, or the executor was closed."""
        arrays = [inputs[declared.name] for declared in self.program.inputs]
        return self.servers.call(lambda: self._run(arrays, dict(binding), into or {}, stopped))

    def _run(
        self,
        arrays: Sequence[np.ndarray],
        binding: dict[str, int],
        into: Mapping[int, np.ndarray],
        stopped: Callable[[], bool] | None,
    ) -> list[np.ndarray]:
        context = self.contexts.take(self)
        try:
            run = Run(context, self.program, arrays, binding, into)
            if stopped is None:
                return run.results()
            with context.until(stopped):
                return run.results()
        finally:
            self.contexts.give_back(context)

    def context(self) -> AbstractContextManager[Context]:
        """A context that nobody else uses in a block."""
        return self.contexts.one(self)

    def compute_graph(self, graph: BuiltGraph, steps: Any = None) -> int:
        """Run a graph that has its places, or all `steps` of a loop by it; ggml's status. The CPU's threads are shared
        among the runs that there are now. An observer computes it in its own way."""
        graph.owner.use_threads(max(1, self.threads // max(1, len(self.contexts.busy))))
        if self.observer is None:
            return graph.owner.compute.compute(graph.placement, steps=steps)
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
            self.steps.setdefault(program, sections(program, self.steady if program is self.program else ()))
        return self.steps[program]

    @property
    def repeats(self) -> bool:
        """True if our own code makes the steps of loops."""
        return self.uses_own and self.observer is None

    def replay(self, program: Program, section: Section) -> Replay:
        """What makes a section's calls in graphs."""
        if section not in self._replays:
            self._replays[section] = Replay(self, program, section)
        return self._replays[section]

    def source(self, program: Program) -> Program:
        """What a program, or one inside it, was made of, if kernels were generated for it; else itself."""
        return program if self.launched is None else self.launched.generated.sources[program]

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

    @functools.cached_property
    def programs(self) -> list[Program]:
        """The program, and those inside it."""
        return [*with_blocks(self.program)]

    def bytes_for(self, binding: Mapping[str, int]) -> int:
        """Bytes that a run of these sizes needs for intermediate results, on all devices together, whatever they are allowed;
        nothing is reserved or computed. Sections whose sizes only a run can tell are not counted."""
        return self.servers.call(lambda: self._bytes_for(binding))

    def _bytes_for(self, binding: Mapping[str, int]) -> int:
        parts = [
            (program, step)
            for program in self.programs
            for step in self.sections(program)
            if isinstance(step, Section) and step.symbols <= binding.keys()
        ]
        with self.context() as context:
            return max((context.compute.needed(context.graph(*part, binding).placement) for part in parts), default=0)

    def release(self) -> None:
        """Give back the memory of intermediate results, and the graphs; a run makes them anew."""
        self.check()
        self.servers.call(self.contexts.release)

    def page_out(self) -> None:
        """Give back the memory of intermediate results on the CPU, and of weights that lie in mapped files; a run reserves the
        former anew and reads the latter again."""
        self.check()
        self.servers.call(self.contexts.page_out)
        give_back(self.weights.arrays)

    def placed(self, arrays: Iterable[np.ndarray]) -> list[np.ndarray]:
        """The arrays as they are used; each is copied, if it has to be, before the next is made."""
        return self.weights.kept(arrays)


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
