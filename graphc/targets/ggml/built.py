"""A section of a program as a graph of ggml's, for certain sizes."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from graphc.errors import GraphcError, InputError
from graphc.ggml_library import ggml
from graphc.shapes import integer
from graphc.targets.ggml.apart import expand_apart
from graphc.targets.ggml.assign import assign
from graphc.targets.ggml.bound import check_bound
from graphc.targets.ggml.memory import Placement
from graphc.targets.ggml.products import Own
from graphc.targets.ggml.program import STORAGE, Call, Constant, Input, Program, Tensor
from graphc.targets.ggml.replace import find_own
from graphc.targets.ggml.sections import Section
from graphc.targets.ggml.tensors import address, download, new_context, new_tensor, upload
from graphc.targets.kernels.native import LoadedKernel

if TYPE_CHECKING:
    from graphc.targets.ggml.context import Context
    from graphc.targets.ggml.executor import Executor


@dataclass(frozen=True)
class Taken:
    """The way in which a call is computed that there are several for, and what the choice depends on."""

    key: str
    way: str


class BuiltGraph:
    """The calls of a section, replayed for one binding of its sizes. The memory of its results is that of its `owner`."""

    def __init__(self, owner: Context, program: Program, section: Section, binding: Mapping[str, int]) -> None:
        if binding:
            check_bound(program, section.calls, binding)
        self.owner, self.program, self.section = owner, program, section
        self.binding = dict(binding)
        self.own: dict[int, Own] = {}
        self.taken: dict[int, Taken] = {}
        count = 2 * program.tensor_count + len(section.calls) + 64
        self.context = new_context(count + 64, graph_size=count)
        try:
            self._describe()
            self._expand(count)
        except BaseException:
            self.free()
            raise

    def _describe(self) -> None:
        """Make the tensors: what is given, and the result of each call."""
        program, section = self.program, self.section
        self.inputs = {
            index: new_tensor(self.context, program.inputs[index].tensor, self.binding) for index in section.inputs
        }
        self.results = {
            index: new_tensor(self.context, program.calls[index].result, self.binding) for index in section.reads
        }
        self.given = [*self.inputs.values(), *self.results.values()]
        calls = [program.calls[index] for index in section.calls]
        kernels = sorted({call.kernel for call in calls if call.kernel >= 0})
        self.userdata = {index: self.executor.kernels[index].userdata(self.binding) for index in kernels}
        for tensor in self.given:
            ggml.ggml_set_input(tensor)
            ggml.ggml_set_output(tensor)
        for call in calls:
            self.results[call.result.call] = self._replay(call)

    def _expand(self, count: int) -> None:
        """Make the graph, of at most so many tensors, and say what of it is read later."""
        executor, section = self.executor, self.section
        self.graph = ggml.ggml_new_graph_custom(self.context, count, False)
        if len(executor.servers.addresses) > 1:
            expand_apart(self.context, self.graph, self.results.values(), executor.weights.tensors)
        self.outputs = [self._tensor(self.program.outputs[index].tensor) for index in section.outputs]
        for tensor in (*self.outputs, *(self.results[index] for index in section.writes)):
            ggml.ggml_set_output(tensor)
            if tensor.contents.view_src:  # the allocator would give a view's memory to later results
                ggml.ggml_set_output(tensor.contents.view_src)
            ggml.ggml_build_forward_expand(self.graph, tensor)
        for tensor in self.given:
            ggml.ggml_build_forward_expand(self.graph, tensor)
        devices = self.owner.backends[:-1]
        pinned = {address(node): node for each in devices for node in assign(each, self.graph).pinned}
        self.placement = Placement(self.context, self.graph, list(pinned.values()))

    @property
    def executor(self) -> Executor:
        """What it shares with the graphs of other contexts."""
        return self.owner.executor

    def run(
        self, inputs: Sequence[np.ndarray], made: Mapping[int, np.ndarray]
    ) -> tuple[dict[int, np.ndarray], dict[int, np.ndarray]]:
        """Upload what the section reads, compute, and read back: results of calls that are read later, and outputs."""
        program, kernels = self.program, self.executor.kernels
        self.owner.compute.place(self.placement)
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
        """Give back the description; the memory of the results is the owner's."""
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
