"""The steps of a loop whose body is one graph that stays the same: C makes them one after the other (`choose/repeat.c`).

A carried value has two arrays, of which a step reads one and writes the other; what steps collect is written to its row. Where a
step has sizes of its own, or the host acts within it, steps are runs (`run.py`).
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from graphc.ggml_library import ggml
from graphc.records import dataclass
from graphc.targets.ggml.program.program import Call, Program
from graphc.targets.ggml.program.sections import Section
from graphc.targets.ggml.program.tensor import STORAGE
from graphc.targets.ggml.run.device.tensors import address, aligned, room_for, start_of
from graphc.targets.ggml.run.graph import stored

if TYPE_CHECKING:
    from graphc.targets.ggml.run.graph import BuiltGraph

MOST_ROWS = 1024
"""Steps for which there is room at a time for what they collect."""


class Lying(ctypes.Structure):
    """`graphc_lying`."""

    _fields_ = (
        ("tensor", ctypes.c_void_p),
        ("even", ctypes.c_void_p),
        ("odd", ctypes.c_void_p),
        ("further", ctypes.c_size_t),
        ("nbytes", ctypes.c_size_t),
    )


class Steps(ctypes.Structure):
    """`graphc_steps`."""

    _fields_ = (
        ("lent", ctypes.POINTER(Lying)),
        ("copied", ctypes.POINTER(Lying)),
        ("views", ctypes.POINTER(ctypes.c_void_p)),
        ("faults", ctypes.POINTER(ctypes.c_void_p)),
        ("number", ctypes.c_void_p),
        ("going", ctypes.c_void_p),
        ("lent_count", ctypes.c_size_t),
        ("copied_count", ctypes.c_size_t),
        ("view_count", ctypes.c_size_t),
        ("fault_count", ctypes.c_size_t),
        ("most", ctypes.c_size_t),
        ("made", ctypes.c_size_t),
    )


@dataclass(frozen=True)
class Place:
    """An array for even steps and one for odd ones; in each step so many bytes further."""

    even: np.ndarray
    odd: np.ndarray
    further: int = 0

    @property
    def turned(self) -> Place:
        """The same after an odd number of steps."""
        return Place(self.odd, self.even, self.further)


def only_section(program: Program, steps: Sequence[Section | Call], carried: int) -> Section | None:
    """The graph of a loop's body, if that is all of it, and nobody looks at what steps carry before they are given it."""
    changing = program.inputs[: 2 + carried]
    if len(steps) > 1 or any(each.low is not None or each.tensor.type != STORAGE[each.dtype] for each in changing):
        return None
    return steps[0] if isinstance(steps[0], Section) else None


def keeps_sizes(graph: BuiltGraph, state: Sequence[np.ndarray]) -> bool:
    """True if a step gives values of the sizes of those that it carries on."""
    given = [(shape, dtype) for _, shape, dtype in graph.output_rooms[1 : 1 + len(state)]]
    return given == [(each.shape, each.dtype) for each in state]


class Repetition:
    """The steps of a loop by a graph, from a state on; what is captured stays. `again` is whether the last step wants another."""

    def __init__(self, graph: BuiltGraph, state: Sequence[np.ndarray], captured: Sequence[np.ndarray]) -> None:
        self.graph = graph
        self.number, self.going, self.again = np.zeros((), np.int64), np.ones((), np.bool_), np.ones((), np.bool_)
        self.state = [Place(np.array(each, order="C"), np.empty(each.shape, each.dtype)) for each in state]
        declared = graph.program.inputs[2 + len(state) :]
        self.captured = [aligned(stored(each, array)) for each, array in zip(declared, captured, strict=True)]
        self.made = 0
        self._rows = [(shape, dtype) for _, shape, dtype in graph.output_rooms[1 + len(state) :]]
        self._parts: list[list[np.ndarray]] = [[] for _ in self._rows]

    def run(self, most: int) -> list[np.ndarray]:
        """Make up to so many steps, at least one; the state after them, and what they collected, a row for each. Raises
        InputError for what kernels refuse, GraphcError without memory, or if the run is stopped."""
        while self.again and self.made < most:
            rooms = [room_for((min(most - self.made, MOST_ROWS), *shape), dtype) for shape, dtype in self._rows]
            made = self._some(min(most - self.made, MOST_ROWS), [Place(room, room, room[0].nbytes) for room in rooms])
            for parts, room in zip(self._parts, rooms, strict=True):
                parts.append(room[:made])
            self.made += made
            if made % 2:
                self.state = [place.turned for place in self.state]
        collected = [parts[0] if len(parts) == 1 else np.concatenate(parts) for parts in self._parts]
        return [*(place.even for place in self.state), *collected]

    def _some(self, most: int, rows: Sequence[Place]) -> int:
        """Make up to so many steps more; how many it were."""
        graph = self.graph
        given = [*map(lasting, (self.number, self.going)), *self.state, *map(lasting, self.captured)]
        places = [*given, lasting(self.again), *(place.turned for place in self.state), *rows]
        placement = graph.placement
        graph.owner.compute.place(placement, [start_of(places[index].even) for index in graph.lent])
        lent = [_lying(tensor, places[index]) for index, tensor in zip(graph.lent, placement.lent, strict=True)]
        copied = [_lying(tensor, places[index]) for index, tensor in graph.copied_out]
        faults = [ctypes.addressof(userdata) for userdata in graph.userdata.values()]
        steps = Steps(
            *((Lying * len(each))(*each) for each in (lent, copied)),
            *((ctypes.c_void_p * len(each))(*each) for each in (list(map(address, placement.views)), faults)),
            *map(start_of, (self.number, self.again)),
            *map(len, (lent, copied, placement.views, faults)),
            most,
        )
        graph.compute(steps)
        return int(steps.made)


def lasting(array: np.ndarray) -> Place:
    """The place of what lies where it lies in every step."""
    return Place(array, array)


def _lying(tensor: Any, place: Place) -> Lying:
    return Lying(address(tensor), start_of(place.even), start_of(place.odd), place.further, ggml.ggml_nbytes(tensor))
