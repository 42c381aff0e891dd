"""A section's calls as C makes them (`choose/calls.c`): the list that has their arguments is one of C's, as are the calls."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from graphc.errors import GraphcError
from graphc.ggml_library import ggml
from graphc.targets.ggml.program.composites import COMPOSITES
from graphc.targets.ggml.program.program import Call
from graphc.targets.ggml.program.tensor import Constant
from graphc.targets.ggml.run.choose.building import maker
from graphc.targets.ggml.run.choose.kinds import KERNEL, kind_of, kinds
from graphc.targets.ggml.run.choose.library import Own
from graphc.targets.ggml.run.device.tensors import address
from graphc.targets.ggml.run.places import Places, told_args

if TYPE_CHECKING:
    from graphc.targets.ggml.run.graph import BuiltGraph
    from graphc.targets.ggml.run.kernels import LoadedKernel

BY_ITSELF = -1
"""Tasks of a kernel: as many as ggml likes."""


class CallInC(ctypes.Structure):
    """`graphc_call`."""

    _fields_ = (
        ("function", ctypes.c_void_p),
        ("kind", ctypes.c_int),
        ("first", ctypes.c_int),
        ("count", ctypes.c_int),
        ("result", ctypes.c_int),
    )


class MadeCalls:
    """What C made of calls in a graph: the list, and how many choices had been made after each call."""

    def __init__(self, calls: NativeCalls, filled: Any, decided: Any) -> None:
        self._calls, self._filled, self._decided = calls, filled, decided

    def result(self, call: Call) -> Any:
        """The tensor that a call made."""
        place = self._calls.places.of(call.result)
        return ctypes.cast(self._filled[place], ctypes.POINTER(ggml.ggml_tensor))

    def decided(self) -> list[Call]:
        """For each choice that was made, in order, the call that it was made for."""
        found: list[Call] = []
        for call, count in zip(self._calls.calls, self._decided, strict=True):
            found += [call] * (count - len(found))
        return found


class NativeCalls:
    """The calls of a section, for graphs of any sizes. `own` functions make composites."""

    def __init__(
        self, own: Own, calls: Sequence[Call], kernels: Sequence[LoadedKernel], weights: Sequence[Any]
    ) -> None:
        self.calls = calls
        self.places = Places(calls)
        self._own, self._kernels = own, kernels
        self._context, self._builder = self.places.new(None), self.places.new(None)
        self._userdata: dict[int, int] = {}
        told = [self._told(call) for call in calls]
        firsts = [0]
        for _, _, args in told:
            firsts.append(firsts[-1] + len(args))
        self._calls = (CallInC * len(calls))(
            *(
                CallInC(function, kinds()[kind], first, len(args), self.places.of(call.result))
                for call, first, (function, kind, args) in zip(calls, firsts, told, strict=False)
            )
        )
        self._args = (ctypes.c_int * firsts[-1])(*(place for _, _, args in told for place in args))
        self._list = (ctypes.c_int64 * len(self.places.fixed))(*map(_in_c, self.places.fixed))
        for place, weight in self.places.weights:
            self._list[place] = address(weights[weight])

    def _told(self, call: Call) -> tuple[int, str, list[int]]:
        """The function of a call, its kind, and the places of its arguments in the order in which C takes them."""
        args = list(map(self.places.of, told_args(call)))
        if call.function in COMPOSITES:
            return _address(maker(self._own.library, call.function)), kind_of(call.function), [self._builder, *args]
        if call.kernel < 0:
            return _address(getattr(ggml, call.function)), kind_of(call.function), [self._context, *args]
        if call.kernel not in self._userdata:
            self._userdata[call.kernel] = self.places.new(None)
        type = self.places.of(Constant(f"GGML_TYPE_{call.result.type}"))
        sizes = map(self.places.of, call.result.ne)
        function = self.places.of(_address(self._kernels[call.kernel].function))
        tasks = self.places.of(BY_ITSELF)
        first = [self._context, type, *sizes, function, tasks, self._userdata[call.kernel]]
        return _address(getattr(ggml, KERNEL)), kind_of(KERNEL), [*first, *args]

    def make(self, graph: BuiltGraph) -> MadeCalls:
        """Make the results of all calls in a graph that has what the section is given. Raises GraphcError where ggml fails."""
        building = graph.building
        assert building is not None
        filled = type(self._list).from_buffer_copy(self._list)
        filled[self._context], filled[self._builder] = graph.context, building.address
        for place, index in self.places.inputs:
            filled[place] = address(graph.inputs[index])
        for place, index in self.places.reads:
            filled[place] = address(graph.made[index])
        for place, size in self.places.sizes:
            filled[place] = graph.values[size]
        for place, activation in self.places.activations:
            filled[place] = building.activation(activation)
        for kernel, place in self._userdata.items():
            filled[place] = ctypes.addressof(graph.userdata[kernel])
        decided = (ctypes.c_int * len(self._calls))()
        count = self._own.library.graphc_make_calls(
            filled, self._calls, len(self._calls), self._args, building.decided_at, decided
        )
        if count < len(self._calls):
            call = self.calls[count]
            raise GraphcError(f"{call.function} failed for {call.source or 'a node'}")
        return MadeCalls(self, filled, decided)


def _address(function: Any) -> int:
    """Where a function is."""
    return ctypes.cast(function, ctypes.c_void_p).value or 0


def _in_c(value: Any) -> int:
    """The bits of what a list has at a place: nothing, a whole number, or a number."""
    if isinstance(value, float):
        (bits,) = struct.unpack("q", struct.pack("d", value))
        return int(bits)
    return int(value) if isinstance(value, int) else 0
