"""The memory of intermediate results: one for all graphs of a context, as large as the largest needs.

Graphs of a context run one after the other, and nothing of a run is needed in the next, so all of them use the same memory.
What ggml writes into a graph's tensors when it gives them their places is undone by putting back the bytes of their
descriptions as they were when the graph was built.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from graphc.backends.generated import check_devices
from graphc.errors import GraphcError
from graphc.ggml_library import ggml
from graphc.once import once
from graphc.targets.ggml.run.choose.library import Own
from graphc.targets.ggml.run.choose.runner import Runner
from graphc.targets.ggml.run.device.computing import compute
from graphc.targets.ggml.run.device.tensors import NOTHING, VIEW_OPS, address, prefer_huge_pages
from graphc.targets.ggml.run.memory.limits import Fitting
from graphc.targets.ggml.run.memory.weights import SOMEWHERE, Weights, move

if TYPE_CHECKING:
    from graphc.targets.ggml.run.memory.streams import Streams

NO_CALLBACK = ggml.ggml_backend_sched_eval_callback()


class Listener(Protocol):
    """What the scheduler tells of the nodes of a graph."""

    def wants(self, tensor: Any) -> bool:
        """True if it is to be told when a node is computed, which then is not computed together with the next."""
        ...

    def computed(self, tensor: Any) -> bool:
        """A node is computed. The graph goes on if it is true."""
        ...


Watch: TypeAlias = "Callable[[Streams | None], Listener]"
"""Makes what listens to a run; the streams that are given have to be told what they want to know."""


class Placement:
    """A graph whose tensors have been described in a context, and its places in a `ComputeMemory`. `pinned` are tensors, each
    with the backend that computes or holds it whatever the scheduler thinks. `kept_bytes` are on the first device beside. The
    tensors that are `lent` may lie in arrays of whoever runs the graph, others in each run."""

    def __init__(
        self,
        context: Any,
        graph: Any,
        pinned: Sequence[tuple[Any, Any]] = (),
        kept_bytes: int = 0,
        lent: Sequence[Any] = (),
    ) -> None:
        byte = ggml.ggml_new_tensor_1d(context, ggml.GGML_TYPE_I8, 1)  # ggml cannot place a graph that has no bytes
        ggml.ggml_set_input(byte)
        ggml.ggml_build_forward_expand(graph, byte)
        self.graph, self.pinned = graph, list(pinned)
        self.turn = -1
        self.needed: int | None = None
        self.kept_bytes = kept_bytes
        self.lent, self._addresses = list(lent), list[int]()
        self.runner: Runner | None = None  # on the CPU alone, once it has its places
        self._context = context
        self._address = ggml.ggml_get_mem_buffer(context)
        self._untouched = ctypes.string_at(self._address, ggml.ggml_used_mem(context))

    @property
    def nodes(self) -> Iterator[Any]:
        """What the graph computes, in order."""
        return (ggml.ggml_graph_node(self.graph, index) for index in range(ggml.ggml_graph_n_nodes(self.graph)))

    def reset(self, addresses: Sequence[int] = ()) -> None:
        """Make the tensors what they were when the graph was built, but for those that are lent, if there are addresses for
        them."""
        ctypes.memmove(self._address, self._untouched, len(self._untouched))
        self._addresses = list(addresses)
        for tensor, place in zip(self.lent, addresses, strict=False):
            move(tensor, elsewhere(), place)

    def lies_at(self, addresses: Sequence[int]) -> bool:
        """Have the tensors that are lent lie there, and what are views of them. False if they have other places than arrays, or
        have to get some."""
        if len(addresses) != len(self._addresses):
            return False
        if self._addresses != addresses:
            for tensor, place in zip(self.lent, addresses, strict=False):
                tensor.contents.data = place
            for view in self.views:
                found = view.contents
                found.data = found.view_src.contents.data + found.view_offs
            self._addresses = list(addresses)
        return True

    @cached_property
    def views(self) -> list[Any]:
        """The tensors that are views of those that are lent."""
        lent, found = set(map(address, self.lent)), []
        tensor = ggml.ggml_get_first_tensor(self._context)
        while tensor:
            if tensor.contents.view_src and address(tensor.contents.view_src) in lent:
                found.append(tensor)
            tensor = ggml.ggml_get_next_tensor(self._context, tensor)
        return found


@once
def elsewhere() -> Any:
    """A buffer of the CPU's for tensors that lie anywhere in its memory."""
    cpu = ggml.ggml_backend_dev_by_type(ggml.GGML_BACKEND_DEVICE_TYPE_CPU)
    return ggml.ggml_backend_dev_buffer_from_host_ptr(cpu, NOTHING.ctypes.data, NOTHING.nbytes, NOTHING.nbytes)


def new_allocator(backend: Any) -> Any:
    """What gives graphs their places on one backend; it has reserved nothing."""
    return ggml.ggml_gallocr_new(ggml.ggml_backend_get_default_buffer_type(backend))


class ComputeMemory:
    """Memory on the backends of a context. `tensors` bounds the number of tensors of a graph. Our `own` code computes on the CPU,
    by so many `threads`, until what is `stopped` is true.

    On one backend, graphs keep their places until a larger one comes; the scheduler of several holds one graph at a time, for
    which `fitting` makes room between the weights.
    """

    def __init__(
        self, weights: Weights, fitting: Fitting, backends: Sequence[Any], tensors: int, own: Own | None, threads: int
    ) -> None:
        self._backends, self._own = list(backends), own
        self.threads, self.stopped = threads, None
        self._weights, self._fitting = weights, fitting
        self._streams: Streams | None = None
        self._turn = 0
        if len(self._backends) == 1:
            self._allocator = new_allocator(self._backends[0])
            self._scheduler = None
        else:
            handles = (ctypes.c_void_p * len(self._backends))(*self._backends)
            self._scheduler = ggml.ggml_backend_sched_new(handles, None, len(self._backends), tensors, False, False)

    @property
    def nbytes(self) -> int:
        """Bytes that are reserved, on all backends."""
        if self._scheduler is None:
            return int(ggml.ggml_gallocr_get_buffer_size(self._allocator, 0))
        return sum(ggml.ggml_backend_sched_get_buffer_size(self._scheduler, backend) for backend in self._backends)

    def compute(self, placement: Placement, watch: Watch | None = None, steps: Any = None) -> int:
        """Run a graph that has its places; ggml's status. Our own code runs it for the `steps` of a loop. On devices, what
        `watch` makes listens instead of the streams. Raises DeviceError."""
        if (runner := placement.runner) is not None:
            return compute(partial(runner.run, self.threads, self.stopped, steps))
        streams = self._streams
        if streams is None:
            return self._run(placement, watch and watch(None))
        return streams.compute(lambda: self._run(placement, watch(streams) if watch else streams))

    def place(self, placement: Placement, addresses: Sequence[int] = ()) -> None:
        """Give a graph's tensors their places, unless it still has them; those that are lent lie at the addresses, if there are
        some. Raises GraphcError if memory is out."""
        if placement.turn == self._turn and placement.lies_at(addresses):
            return
        before = self.nbytes
        if not (self._allocate(placement, addresses) if self._scheduler is None else self._schedule(placement)):
            self._turn += 1
            check_devices()
            raise GraphcError("not enough memory for the intermediate results of these sizes")
        if self._scheduler is not None or self.nbytes != before:
            self._turn += 1
        placement.turn = self._turn

    def page_out(self) -> None:
        """Let the system have the memory on the CPU alone until the next run, which gives every graph its places anew."""
        if self._scheduler is None:
            ggml.ggml_gallocr_free(self._allocator)
            self._allocator = new_allocator(self._backends[0])
            self._turn += 1

    def needed(self, placement: Placement) -> int:
        """Bytes that the results of a graph take, on all backends together, with those that are kept; nothing is reserved for
        it."""
        if placement.needed is not None:
            return placement.needed
        if self._scheduler is not None:
            return self._needed_on_devices(placement) + placement.kept_bytes
        placement.reset([SOMEWHERE] * len(placement.lent))
        allocator = new_allocator(self._backends[0])
        size = ctypes.c_size_t()
        ggml.ggml_gallocr_reserve_n_size(allocator, placement.graph, None, None, ctypes.pointer(size))
        ggml.ggml_gallocr_free(allocator)
        placement.turn, placement.needed = -1, int(size.value) + placement.kept_bytes
        return placement.needed

    def _needed_on_devices(self, placement: Placement) -> int:
        """By the scheduler, which then no longer knows the places of any graph."""
        self._stream(None)
        self._turn += 1
        if self._weights.residence is None:
            self._weights.pretend(self._fitting.thought.device)
        self._prepare(placement)
        sizes = (ctypes.c_size_t * len(self._backends))()
        ggml.ggml_backend_sched_reserve_size(self._scheduler, placement.graph, sizes)
        placement.reset()
        return sum(sizes)

    def plan(self, placement: Placement) -> None:
        """Think what would lie where for a graph on several backends; `device_of` knows then who would compute it."""
        self._fitting.planned(lambda: self._measured(placement))
        self._measured(placement)

    def forget(self) -> None:
        """Have every graph placed anew, because weights have moved."""
        self._turn += 1

    def free(self) -> None:
        """Give back the memory."""
        self._stream(None)
        if self._scheduler is None:
            ggml.ggml_gallocr_free(self._allocator)
        else:
            ggml.ggml_backend_sched_free(self._scheduler)

    def _allocate(self, placement: Placement, addresses: Sequence[int]) -> bool:
        placement.reset(addresses)
        before = self.nbytes
        reserved = ggml.ggml_gallocr_reserve(self._allocator, placement.graph)
        placed = bool(reserved and ggml.ggml_gallocr_alloc_graph(self._allocator, placement.graph))
        if placed and self.nbytes != before:
            self._prefer_huge_pages(placement)
        if placed:
            placement.runner = Runner(self._own, self._backends[0], placement.graph)
        return placed

    def _prefer_huge_pages(self, placement: Placement) -> None:
        """For what was just reserved, where a graph has its places now."""
        for node in placement.nodes:
            buffer = node.contents.buffer
            if buffer and ggml.ggml_backend_buffer_get_usage(buffer) == ggml.GGML_BACKEND_BUFFER_USAGE_COMPUTE:
                prefer_huge_pages(ggml.ggml_backend_buffer_get_base(buffer), ggml.ggml_backend_buffer_get_size(buffer))
                return

    def _schedule(self, placement: Placement) -> bool:
        """The scheduler would use the places of the graph before, where they are large enough; but sizes that were
        equal there may differ here, so that a result may not lie where an operand did."""
        self._stream(None)
        self._fitting.fit(lambda: self._measured(placement))
        self._prepare(placement)
        if not ggml.ggml_backend_sched_reserve(self._scheduler, placement.graph):
            return False
        self._prepare(placement)
        if not ggml.ggml_backend_sched_alloc_graph(self._scheduler, placement.graph):
            return False
        if self._weights.residence is not None and self._weights.residence.streamed:
            from graphc.targets.ggml.run.memory.streams import Streams  # what is not streamed starts without it

            self._stream(Streams(self._weights, placement.graph))
        return True

    def _measured(self, placement: Placement) -> tuple[list[int], set[int]]:
        """What `Fitting.fit` asks for."""
        self._prepare(placement)
        sizes = (ctypes.c_size_t * len(self._backends))()
        ggml.ggml_backend_sched_reserve_size(self._scheduler, placement.graph, sizes)
        self._prepare(placement)  # it forgot what is pinned
        ggml.ggml_backend_sched_split_graph(self._scheduler, placement.graph)
        placement.reset()
        weights = {address(tensor): index for index, tensor in enumerate(self._weights.tensors)}
        displaced = set()
        for node in placement.nodes:
            if node.contents.op in VIEW_OPS:
                continue
            runs = ggml.ggml_backend_sched_get_tensor_backend(self._scheduler, node)
            for source in node.contents.src:
                root = source and (source.contents.view_src or source)
                index = weights.get(address(root)) if root else None
                lies = root and ggml.ggml_backend_sched_get_tensor_backend(self._scheduler, root)
                if index is not None and lies != runs:
                    displaced.add(index)
        sizes[0] += placement.kept_bytes
        return list(sizes)[:-1], displaced

    def _prepare(self, placement: Placement) -> None:
        """Make the scheduler forget what it was told of other graphs."""
        placement.reset()
        ggml.ggml_backend_sched_reset(self._scheduler)
        for node, backend in placement.pinned:
            ggml.ggml_backend_sched_set_tensor_backend(self._scheduler, node, backend)

    def device_of(self, tensor: Any) -> Any:
        """Of several backends, that which computes a node, or holds a tensor, of the graph that has its places; or None."""
        found = ggml.ggml_backend_sched_get_tensor_backend(self._scheduler, tensor)
        same = (each for each in self._backends if found and (each - found) % (1 << 32) == 0)
        return next(same, None)  # the bindings drop the upper half of the address

    def _run(self, placement: Placement, listener: Listener | None) -> int:
        def called(tensor: Any, asked: bool, _: Any) -> bool:
            assert listener is not None
            return listener.wants(tensor) if asked else listener.computed(tensor)

        callback = NO_CALLBACK if listener is None else ggml.ggml_backend_sched_eval_callback(called)
        ggml.ggml_backend_sched_set_eval_callback(self._scheduler, callback, None)
        status = int(ggml.ggml_backend_sched_graph_compute(self._scheduler, placement.graph))
        ggml.ggml_backend_sched_set_eval_callback(self._scheduler, NO_CALLBACK, None)
        check_devices()
        return status

    def _stream(self, streams: Streams | None) -> None:
        if self._streams is not None:
            self._streams.close()
        self._streams = streams
