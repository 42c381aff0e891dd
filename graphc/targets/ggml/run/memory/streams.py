"""Weights that stay on the host and are copied to a device while a graph runs, shortly before they are read.

A device has two slots for them. While a stretch of the graph reads one, a thread fills the other with what the next stretch
reads. The scheduler says when a stretch is done: it asks after which nodes it should wait.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from graphc.ggml_library import ggml
from graphc.targets.ggml.run.device.tensors import VIEW_OPS, address, upload
from graphc.targets.ggml.run.memory.residence import SLOTS
from graphc.targets.ggml.run.memory.weights import Weights, move, room_of


@dataclass(eq=False)
class Stretch:
    """Consecutive nodes whose streamed weights fit into a slot: where in the slot each lies, and the last of the nodes."""

    offsets: dict[int, int] = field(default_factory=dict)
    nbytes: int = 0
    last: int = 0


class Stream:
    """The stretches of a graph on one device, in order."""

    def __init__(self, weights: Weights, device: int) -> None:
        self.weights, self.device = weights, device
        self.size = weights.residence.slots[device] if weights.residence else 0
        self.kind = ggml.ggml_backend_get_default_buffer_type(weights.backends[device])
        self.stretches = [Stretch()]
        self.views: dict[int, list[Any]] = {}
        self.turn = 0
        self.coming: Future | None = None

    def read(self, reads: list[int], before: int) -> None:
        """The next node reads these weights; `before` is the address of the node before it."""
        sizes = {index: room_of(self.kind, self.weights.tensors[index]) for index in reads}
        current = self.stretches[-1]
        if current.nbytes + sum(size for index, size in sizes.items() if index not in current.offsets) > self.size:
            current.last = before
            current = Stretch()
            self.stretches.append(current)
        for index, size in sizes.items():
            if index not in current.offsets:
                current.offsets[index] = current.nbytes
                current.nbytes += size

    def fill(self, number: int) -> None:
        """Copy the weights of a stretch into its slot, unless they are there."""
        if number >= len(self.stretches):
            return
        stretch, slot = self.stretches[number], number % SLOTS
        if self.weights.filled.get((self.device, slot)) is stretch:
            return
        self.weights.filled.pop((self.device, slot), None)
        buffer, base = self.weights.slots[self.device][slot]
        for index, offset in stretch.offsets.items():
            target = ggml.ggml_tensor.from_buffer_copy(self.weights.tensors[index].contents)
            tensor = ctypes.pointer(target)
            move(tensor, buffer, base + offset)
            ggml.ggml_backend_buffer_init_tensor(buffer, tensor)  # some pad rows of blocks with zeros
            upload(tensor, self.weights.streamed(index))
        self.weights.filled[self.device, slot] = stretch

    def point(self, number: int) -> None:
        """Let the tensors of a stretch's weights, and their views, lie in its slot."""
        buffer, base = self.weights.slots[self.device][number % SLOTS]
        for index, offset in self.stretches[number].offsets.items():
            move(self.weights.tensors[index], buffer, base + offset)
            for view in self.views.get(index, ()):
                move(view, buffer, base + offset + view.contents.view_offs)


class Streams:
    """What a graph streams, on all devices. The graph has its places; `weights` have a residence."""

    def __init__(self, weights: Weights, graph: Any) -> None:
        self.worker = ThreadPoolExecutor(1, "graphc-weights")
        assert weights.residence is not None
        self.streams = {number: Stream(weights, number) for number, size in enumerate(weights.residence.slots) if size}
        self.ends: dict[int, list[Stream]] = {}
        self.error: BaseException | None = None
        self._walk(weights, graph)

    def _walk(self, weights: Weights, graph: Any) -> None:
        assert weights.residence is not None
        streamed = {address(weights.tensors[index]): index for index in weights.residence.streamed}
        before = 0
        for place in range(ggml.ggml_graph_n_nodes(graph)):
            node = ggml.ggml_graph_node(graph, place)
            reads = self._reads(node, streamed)
            if node.contents.op in VIEW_OPS:
                continue
            for number, stream in self.streams.items():
                if own := [index for index in reads if weights.residence.device[index] == number]:
                    stream.read(own, before)
            before = address(node)
        for stream in self.streams.values():
            for stretch in stream.stretches[:-1]:
                self.ends.setdefault(stretch.last, []).append(stream)

    def _reads(self, node: Any, streamed: dict[int, int]) -> list[int]:
        """The streamed weights whose memory a node reads; notes views of them."""
        found = []
        for each in (*node.contents.src, node):
            if not each:
                continue
            root = each.contents.view_src or each
            index = streamed.get(address(root))
            if index is None:
                continue
            found.append(index)
            if each.contents.view_src:
                for stream in self.streams.values():
                    views = stream.views.setdefault(index, [])
                    if all(address(view) != address(each) for view in views):
                        views.append(each)
        return list(dict.fromkeys(found))

    def compute(self, run: Callable[[], int]) -> int:
        """Run the graph, with the weights copied as they are needed; what `run` returns. Raises what copying raised."""
        self.error = None
        for stream in self.streams.values():
            stream.turn = 0
            stream.fill(0)
            stream.point(0)
            stream.coming = self._ahead(stream, 1)
        try:
            status = run()
        finally:
            for stream in self.streams.values():
                if stream.coming is not None:
                    stream.coming.result()
        if self.error is not None:
            raise self.error
        return status

    def close(self) -> None:
        """End the thread."""
        self.worker.shutdown()

    def wants(self, tensor: Any) -> bool:
        """True if a node is the last of a stretch, so that it must be told when it is computed."""
        return address(tensor) in self.ends

    def computed(self, tensor: Any) -> bool:
        """Go on to the next stretch, if a node was the last of one. What it raises, `compute` raises later."""
        try:
            for stream in self.ends.get(address(tensor), ()):
                self._advance(stream)
        except BaseException as error:  # ctypes would drop it
            self.error = self.error or error
        return True

    def _advance(self, stream: Stream) -> None:
        if stream.coming is not None:
            stream.coming.result()
        stream.turn += 1
        stream.point(stream.turn)
        stream.coming = self._ahead(stream, stream.turn + 1)

    def _ahead(self, stream: Stream, number: int) -> Future | None:
        """Begin to fill the other slot: in the thread, or at once where the device does one thing at a time."""
        if not is_async(stream.weights.backends[stream.device]):
            stream.fill(number)
            return None
        return self.worker.submit(stream.fill, number)


def is_async(backend: Any) -> bool:
    """True if a backend's device can be given data while it computes."""
    props = ggml.ggml_backend_dev_props()
    ggml.ggml_backend_dev_get_props(ggml.ggml_backend_get_device(backend), ctypes.byref(props))
    return bool(getattr(props.caps, "async"))
