"""A section of a program as a graph of ggml's, for certain sizes."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from graphc.errors import GraphcError, InputError
from graphc.ggml_library import ggml
from graphc.records import dataclass
from graphc.shapes import Expr, Values
from graphc.targets.ggml.program.composites import COMPOSITES
from graphc.targets.ggml.program.in_c import PRODUCT
from graphc.targets.ggml.program.program import Call, Input, Program
from graphc.targets.ggml.program.sections import Section
from graphc.targets.ggml.program.tensor import STORAGE, Constant, Tensor
from graphc.targets.ggml.run.choose.assign import BROKEN, KEPT, LAUNCHED, assign, order_views
from graphc.targets.ggml.run.choose.building import Building
from graphc.targets.ggml.run.choose.choices import kind_of
from graphc.targets.ggml.run.device.tensors import (
    VIEW_OPS,
    address,
    aligned,
    download,
    new_context,
    new_tensor,
    room_for,
    start_of,
    upload,
)
from graphc.targets.ggml.run.memory.results import Placement
from graphc.targets.ggml.run.native_calls import MadeCalls
from graphc.targets.ggml.run.steady import KeptTensors

if TYPE_CHECKING:
    from graphc.backends.launches import Work
    from graphc.targets.ggml.run.context import Context
    from graphc.targets.ggml.run.executor import Executor


BYTE = np.dtype(np.uint8)


def most_tensors(program: Program) -> int:
    """Tensors of a graph of a program at most, whoever computes it: what calls make (those that a section is given are others'),
    inputs, weights, and the byte of `Placement`. ggml's scheduler has to know of as many: of nodes and of what they read."""
    return program.tensor_count + 1


@dataclass(frozen=True)
class Taken:
    """The way in which a call is computed that there are several for, and what the choice depends on."""

    key: str
    way: str


class BuiltGraph:
    """The calls of a section, replayed for one binding of its sizes. The memory of its results is that of its `owner`."""

    def __init__(self, owner: Context, program: Program, section: Section, binding: Mapping[str, int]) -> None:
        self._replay = owner.executor.replay(program, section)
        if binding:
            self._replay.check(binding)
        self.owner, self.program, self.section = owner, program, section
        self.binding = dict(binding)
        self.values = Values(self.binding)
        self.works: dict[int, Work] = {}
        self.building: Building | None = None
        self.kept = KeptTensors(owner.backends[0], {i: program.calls[i].result for i in section.kept}, self.values)
        count = owner.tensors
        self.context = new_context(count, graph_size=count)
        executor, devices = self.executor, owner.backends[:-1]
        try:
            if executor.own is not None:
                self.building = Building(
                    executor.own,
                    self.context,
                    executor.threads,
                    devices,
                    executor.choices,
                    uses_own=executor.uses_own,
                    fast=executor.fast,
                )
            self._describe()
            self._expand(count)
        except BaseException:
            self.free()
            raise

    def tell(self, binding: Mapping[str, int]) -> None:
        """Have the kernels know these sizes, of which the graph is the same."""
        known = self._replay.known(binding)
        if known == self.binding:
            return
        changed = self._replay.told_others(self.binding, known)
        self.binding, self.values = known, Values(known)
        for kernel in changed:
            told = self.executor.kernels[kernel].userdata(known)
            ctypes.memmove(self.userdata[kernel], told, ctypes.sizeof(told))

    def _describe(self) -> None:
        """Make the tensors: what is given, and the result of each call."""
        program, section = self.program, self.section
        self.inputs = {
            index: new_tensor(self.context, program.inputs[index].tensor, self.values) for index in section.inputs
        }
        self.made = {  # results of calls, which Python has, of others' or its own
            index: new_tensor(self.context, program.calls[index].result, self.values)
            for index in section.reads
            if index not in self.kept.tensors
        }
        self.read = list(self.made)
        self.made |= self.kept.tensors
        self.given = [*self.inputs.values(), *self.made.values()]
        self.userdata = {index: self.executor.kernels[index].userdata(self.binding) for index in section.kernels}
        for tensor in self.given:
            ggml.ggml_set_input(tensor)
            ggml.ggml_set_output(tensor)
        self._decided: list[Call] = []
        self.by_c: MadeCalls | None = None
        self.by_c = self._replay.make(self)

    def _expand(self, count: int) -> None:
        """Make the graph, of at most so many tensors, and say what of it is read later."""
        executor, program, section = self.executor, self.program, self.section
        self.graph = ggml.ggml_new_graph_custom(self.context, count, False)
        self.outputs = [self._tensor(program.outputs[index].tensor) for index in section.outputs]
        written = [self.result(index) for index in section.writes]
        for tensor in (*self.outputs, *written):
            ggml.ggml_set_output(tensor)
            if tensor.contents.view_src:  # the allocator would give a view's memory to later results
                ggml.ggml_set_output(tensor.contents.view_src)
            ggml.ggml_build_forward_expand(self.graph, tensor)
        for tensor in self.given:
            ggml.ggml_build_forward_expand(self.graph, tensor)
        if executor.own is not None and len(executor.servers.addresses) > 1:
            order_views(executor.own, self.graph)
        self._uploaded = [*self.inputs.values(), *(self.result(index) for index in self.read)]
        self._found = [*written, *self.outputs]
        lendable = self._lendable()
        lent = [tensor for tensor in lendable if tensor is not None]
        self.lent = [index for index, tensor in enumerate(lendable) if tensor is not None]
        self._copied_in = [each for each in enumerate(self._uploaded) if lendable[each[0]] is None]
        copied_out = enumerate(self._found, len(self._uploaded))
        self.copied_out = [each for each in copied_out if lendable[each[0]] is None]
        self.output_rooms = [
            (index, tuple(self.values[size] for size in program.outputs[index].shape), program.outputs[index].dtype)
            for index in section.outputs
        ]
        self._later = [
            (index, (ggml.ggml_nbytes(tensor),)) for index, tensor in zip(section.writes, written, strict=True)
        ]
        self.placement = Placement(self.context, self.graph, self._pinned(), self.kept.nbytes, lent)
        self.kept.pretend()  # views that are made of what lies somewhere keep its address

    def _lendable(self) -> list[Any]:
        """Of each tensor that is uploaded or found, that which lies in its array, on the CPU alone: itself, or what it is the
        whole of; none if that is not made here, or lies in another's."""
        if len(self.owner.backends) > 1:
            return [None] * (len(self._uploaded) + len(self._found))
        lent = [tensor if ggml.ggml_nbytes(tensor) else None for tensor in self._uploaded]
        taken = set[int]()
        for tensor in self._found:
            owner = tensor.contents.view_src or tensor
            whole = 0 < ggml.ggml_nbytes(tensor) == ggml.ggml_nbytes(owner) and tensor.contents.view_offs == 0
            fits = whole and owner.contents.op not in VIEW_OPS and address(owner) not in taken
            taken.add(address(owner))
            lent.append(owner if fits else None)
        return lent

    def _pinned(self) -> list[tuple[Any, Any]]:
        """What the scheduler would give another backend than it should, with the right one."""
        own, launched, cpu = self.executor.own, self.executor.launched, self.owner.cpu
        if launched is not None:
            return [(node, launched.backend) for node in (*map(self.results.__getitem__, self.works), *self.given)]
        pinned: dict[int, tuple[Any, Any]] = {}
        for device in self.owner.backends[:-1]:
            assert own is not None
            found = assign(own, device, self.graph)
            for side, backend in ((BROKEN, cpu), (KEPT, cpu), (LAUNCHED, device)):
                pinned |= {address(node): (node, backend) for node in found[side]}
        return list(pinned.values())

    @property
    def results(self) -> Mapping[int, Any]:
        """The tensors that are results of calls, by their numbers: those that are given, then those that are made."""
        for index in self.section.calls:
            self.result(index)
        return self.made

    def result(self, index: int) -> Any:
        """The result of a call."""
        if index not in self.made:
            assert self.by_c is not None
            self.made[index] = self.by_c.result(self.program.calls[index])
        return self.made[index]

    @property
    def own(self) -> dict[int, str]:
        """The functions of ours that compute results of calls."""
        if self.building is None:
            return {}
        found = {index: self.building.own.function_of(self.computed_as(index)) for index in self.results}
        return {index: name for index, name in found.items() if name}

    def computed_as(self, index: int) -> Any:
        """The tensor that is computed for a call's result: that itself, or what it is a view of that was made for the call."""
        tensor = self.result(index)
        made = self.program.calls[index].function in COMPOSITES
        while made and tensor.contents.op in VIEW_OPS and tensor.contents.src[0]:
            tensor = tensor.contents.src[0]
        return tensor

    @property
    def executor(self) -> Executor:
        """What it shares with the graphs of other contexts."""
        return self.owner.executor

    def run(
        self, inputs: Sequence[np.ndarray], made: Mapping[int, np.ndarray], into: Mapping[int, np.ndarray]
    ) -> tuple[dict[int, np.ndarray], dict[int, np.ndarray]]:
        """Compute what the section writes, of what it reads, and the outputs, in arrays that are there for them. On the CPU
        alone, all arrays are used where they lie; else what they hold is copied there and back."""
        if self.kept.tensors:
            self.kept.fill(made)
        later, outputs = self._rooms(into)
        arrays = [*self._arrays(inputs, made), *later.values(), *outputs.values()]
        self.owner.compute.place(self.placement, [start_of(arrays[index]) for index in self.lent])
        for index, tensor in self._copied_in:
            upload(tensor, arrays[index])
        self.compute()
        for index, tensor in self.copied_out:
            download(tensor, arrays[index])
        return later, outputs

    def compute(self, steps: Any = None) -> None:
        """Compute what has its places, for all `steps` of a loop if there are some. Raises InputError for what a kernel refused,
        GraphcError if the run was stopped, or ggml failed."""
        executor = self.executor
        for userdata in self.userdata.values():
            userdata[0] = 0  # the fault of an earlier run
        status = executor.compute_graph(self, steps)
        if status == ggml.GGML_STATUS_ABORTED:
            raise GraphcError("the run was stopped")
        if status != ggml.GGML_STATUS_SUCCESS:
            raise GraphcError(f"ggml could not compute the graph (status {status})")
        for index, userdata in self.userdata.items():
            if userdata[0]:
                raise InputError(executor.kernels[index].fault(userdata))

    def _arrays(self, inputs: Sequence[np.ndarray], made: Mapping[int, np.ndarray]) -> list[np.ndarray]:
        """What is uploaded, or used where it lies."""
        declared = self.program.inputs
        given = [aligned(stored(declared[index], inputs[index])) for index in self.inputs]
        return given + [aligned(made[index]) for index in self.read]

    def _rooms(self, into: Mapping[int, np.ndarray]) -> tuple[dict[int, np.ndarray], dict[int, np.ndarray]]:
        """Arrays for what is read later, in bytes, and for outputs: those that are there already, or new ones."""
        later = {index: room_for(shape, BYTE) for index, shape in self._later}
        outputs = {index: room_for(shape, dtype, into.get(index)) for index, shape, dtype in self.output_rooms}
        return later, outputs

    def free(self) -> None:
        """Give back the description, and what is kept; the memory of other results is the owner's."""
        ggml.ggml_free(self.context)
        self.kept.free()
        if self.building is not None:
            self.building.free()

    def _tensor(self, tensor: Tensor) -> Any:
        if tensor.call >= 0:
            return self.result(tensor.call)
        return self.inputs[tensor.input] if tensor.input >= 0 else self.executor.weights.tensors[tensor.weight]

    def launched(self, call: Call, tensors: Sequence[Any]) -> Any:
        """What generated kernels make of tensors."""
        launched = self.executor.launched
        assert launched is not None
        work = self.works[call.result.call] = launched.work(call, self.binding)
        return launched.node(self.context, work, call, tensors, self.binding)

    def composite(self, call: Call, args: Sequence[Any]) -> Any:
        """What C makes of a composite call, given tensors and numbers, as it decides for the device; or without a C compiler, the
        calls that it stands for."""
        if self.building is None:
            return self.expanded(call)
        result = self.building.call(call.function, args)
        self._decided += [call] * (self.building.decided - len(self._decided))
        return result

    @cached_property
    def _decisions(self) -> list[tuple[int, Taken]]:
        """What was decided, and the numbers of the calls for which it was."""
        if self.building is None:
            return []
        calls = self._decided if self.by_c is None else self.by_c.decided()
        return [(call.result.call, Taken(*each)) for call, each in zip(calls, self.building.taken(), strict=True)]

    @property
    def taken(self) -> dict[int, Taken]:
        """The ways of calls that have several."""
        return {index: taken for index, taken in self._decisions if kind_of(taken.key) != PRODUCT}

    @property
    def products(self) -> list[str]:
        """The products that our own code may round, by the names that choices have for them."""
        return [taken.key for _, taken in self._decisions if kind_of(taken.key) == PRODUCT]

    def expanded(self, call: Call) -> Any:
        """What ggml makes of the calls that a composite stands for; null where it fails."""
        made: dict[Any, Any] = {}
        for step in COMPOSITES[call.function].expansion(call.args):
            args = [made[arg] if arg in made else self._argument(arg) for arg in step.args]
            if step.kernel >= 0:
                made[step.result] = self.by_kernel(step.kernel, args, step.result)
            else:
                made[step.result] = getattr(ggml, step.function)(self.context, *args)
            if not made[step.result]:
                break
        return made[step.result]

    def by_kernel(self, kernel: int, tensors: Sequence[Any], result: Tensor) -> Any:
        """What a kernel of the program makes of tensors."""
        args = (ctypes.POINTER(ggml.ggml_tensor) * max(len(tensors), 1))(*tensors)
        type = getattr(ggml, f"GGML_TYPE_{result.type}")
        ne = map(self.values.__getitem__, result.ne)
        userdata = ctypes.cast(self.userdata[kernel], ctypes.c_void_p)
        function = self.executor.kernels[kernel].function
        return ggml.ggml_custom_4d(self.context, type, *ne, args, len(tensors), function, -1, userdata)

    def _argument(self, arg: Any) -> Any:
        """What ggml is given for an argument of a call."""
        match arg:
            case Tensor():
                return self._tensor(arg)
            case Expr():
                return self.values[arg]
            case Constant(name):
                return getattr(ggml, name)
        return arg


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
