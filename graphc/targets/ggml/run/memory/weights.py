"""The weights of a program as ggml's tensors: used where their arrays lie on the host, copied to devices, or streamed there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from graphc.backends.generated import device_error
from graphc.errors import GraphcError
from graphc.ggml_library import ggml
from graphc.ggml_types import has_rows_apart
from graphc.shapes import Values
from graphc.targets.ggml.program.program import Program
from graphc.targets.ggml.run.device.devices import device_name
from graphc.targets.ggml.run.device.tensors import (
    ALIGNMENT,
    NOTHING,
    extent,
    give_back,
    in_place,
    new_context,
    new_tensor,
    upload,
)
from graphc.targets.ggml.run.memory.residence import HOST, SLOTS, Residence, matrices_of_products

SOMEWHERE = 1 << 12
"""An address for tensors that have no place yet; nothing reads it."""


class Weights:
    """Tensors of a program's weights, with `arrays` for them, on backends of which the last is the CPU's.

    They have no places until `place` or `pretend` gives them some.
    """

    def __init__(self, program: Program, arrays: Iterable[np.ndarray], backends: Sequence[Any]) -> None:
        self.backends = list(backends)
        self.packings = [weight.packing for weight in program.weights]
        self.matrices = matrices_of_products(program)
        self.arrays = self.kept(arrays)
        self.context = new_context(len(program.weights) + 1)
        values = Values({})
        self.tensors = [new_tensor(self.context, weight.tensor, values) for weight in program.weights]
        for tensor in self.tensors:  # building a graph names what has no name, and several are built at once
            ggml.ggml_set_name(tensor, b"weight")
        self.residence: Residence | None = None
        self.slots: list[list[tuple[Any, int]]] = []
        self.filled: dict[tuple[int, int], object] = {}
        self._buffers: list[Any] = []
        self._mapped: dict[int, Any] = {}
        self._held: dict[int, np.ndarray] = {}  # what is mapped, and what is packed and streamed

    def kept(self, arrays: Iterable[np.ndarray]) -> list[np.ndarray]:
        """The arrays as they are used; each is copied, if it has to be, before the next is made."""
        return [self._kept(index, array) for index, array in enumerate(arrays)]

    def _kept(self, index: int, array: np.ndarray) -> np.ndarray:
        """What is copied to a device may have its rows apart, but not what a device copies by itself."""
        apart = index in self.matrices
        if len(self.backends) == 1:
            return in_place(array, apart)
        return array if apart and has_rows_apart(array) else np.asarray(array, order="C")

    def packed(self, index: int) -> np.ndarray:
        """A weight's array as its tensor holds it."""
        packing = self.packings[index]
        return self.arrays[index] if packing is None else packing(self.arrays[index])

    def streamed(self, index: int) -> np.ndarray:
        """The same of a weight that is copied in every run, for which it is packed once."""
        if self.packings[index] is None:
            self.arrays[index] = np.asarray(self.arrays[index], order="C")
            return self.arrays[index]
        if index not in self._held:
            self._held[index] = self.packed(index)
        return self._held[index]

    def sizes(self) -> list[int]:
        """The bytes that each weight takes on a device."""
        kinds = [ggml.ggml_backend_get_default_buffer_type(each) for each in self.backends[:-1]]
        return [max(room_of(kind, tensor) for kind in kinds) for tensor in self.tensors]

    def refused(self) -> set[int]:
        """The weights that one of the devices cannot hold, whatever its memory: some have a largest buffer."""
        return {
            index
            for index, tensor in enumerate(self.tensors)
            if not all(ggml.ggml_backend_supports_op(each, tensor) for each in self.backends[:-1])
        }

    def place(self, residence: Residence) -> None:
        """Give every weight its place, and devices what is theirs. Raises GraphcError if one has too little memory."""
        self.clear()
        for index, device in enumerate(residence.device):
            if device == HOST:
                self._map(index)
        for number, backend in enumerate(self.backends[:-1]):
            own = residence.resident(number)
            self._buffers += allocated(backend, [self.tensors[index] for index in own])
            for index in own:
                upload(self.tensors[index], self.packed(index))
            give_back(self.arrays[index] for index in own)
            slots = [
                whole_buffer(backend, residence.slots[number]) for _ in range(SLOTS * bool(residence.slots[number]))
            ]
            self._buffers += slots
            self.slots.append([(slot, ggml.ggml_backend_buffer_get_base(slot)) for slot in slots])
        for index in residence.streamed:
            move(self.tensors[index], *self.slots[residence.device[index]][0])
        self.residence = residence

    def pretend(self, device: Sequence[int]) -> None:
        """Let the weights look as if they lay on these devices, so that a graph of them can be measured."""
        self.clear()
        for number, backend in enumerate(self.backends[:-1]):
            buffer = pretended(backend, [self.tensors[index] for index, its in enumerate(device) if its == number])
            ggml.ggml_backend_buffer_set_usage(buffer, ggml.GGML_BACKEND_BUFFER_USAGE_WEIGHTS)
            self._buffers.append(buffer)
        for index, number in enumerate(device):
            if number == HOST:
                self._map(index)

    def replace(self, arrays: Iterable[np.ndarray]) -> None:
        """Use other arrays, of the same dtypes and shapes. On an error the old ones stay."""
        before, self.arrays = self.arrays, self.kept(arrays)
        self.filled.clear()
        if self.residence is None:
            return
        for index, old in enumerate(before):
            if self.arrays[index] is old:
                continue
            if index in self.residence.streamed:
                self._held.pop(index, None)
                continue
            if self.residence.device[index] == HOST:
                ggml.ggml_backend_buffer_free(self._mapped.pop(index))
                move(self.tensors[index], None, None)
                self._map(index)
            else:
                upload(self.tensors[index], self.packed(index))

    def clear(self) -> None:
        """Give back the memory on all devices."""
        for buffer in (*self._buffers, *self._mapped.values()):
            ggml.ggml_backend_buffer_free(buffer)
        for tensor in self.tensors:
            move(tensor, None, None)
        self._buffers, self._mapped, self.slots, self.residence = [], {}, [], None
        self._held.clear()
        self.filled.clear()

    def free(self) -> None:
        """Give back everything; there are no tensors afterwards."""
        self.clear()
        give_back(self.arrays)
        self.tensors = []
        ggml.ggml_free(self.context)

    def _map(self, index: int) -> None:
        """Use a weight's array where it lies."""
        alone = len(self.backends) == 1
        array = self._held[index] = in_place(self.packed(index), alone and index in self.matrices)
        if self.packings[index] is None:
            self.arrays[index] = array
        if index in self.matrices and array.nbytes:
            set_step(self.tensors[index], array.strides[0] if has_rows_apart(array) else array.nbytes // len(array))
        if not array.nbytes:  # ggml would look for a place for it in every graph; it gets one that nothing reads
            array = NOTHING
        cpu = ggml.ggml_backend_dev_by_type(ggml.GGML_BACKEND_DEVICE_TYPE_CPU)
        before = array.ctypes.data % ALIGNMENT  # a buffer of ggml's begins at an aligned place, a tensor in it anywhere
        size = before + extent(array)
        buffer = ggml.ggml_backend_dev_buffer_from_host_ptr(cpu, array.ctypes.data - before, size, size)
        ggml.ggml_backend_buffer_set_usage(buffer, ggml.GGML_BACKEND_BUFFER_USAGE_WEIGHTS)
        ggml.ggml_backend_tensor_alloc(buffer, self.tensors[index], array.ctypes.data)
        self._mapped[index] = buffer


def move(tensor: Any, buffer: Any, address: int | None) -> None:
    """Say that a tensor lies there, whatever lies there; nowhere if both are None."""
    tensor.contents.buffer, tensor.contents.data = buffer, address


def set_step(tensor: Any, step: int) -> None:
    """Say how many bytes a matrix has from one row to the next."""
    rows = tensor.contents.ne[1]
    tensor.contents.nb[1:4] = [step, step * rows, step * rows]


def room_of(kind: Any, tensor: Any) -> int:
    """The bytes that a tensor takes in a buffer of a kind, so that another may follow."""
    align = ggml.ggml_backend_buft_get_alignment(kind)
    return int(-(-ggml.ggml_backend_buft_get_alloc_size(kind, tensor) // align) * align)


def allocated(backend: Any, tensors: Sequence[Any]) -> list[Any]:
    """New buffers on a backend, with places for the tensors. Raises GraphcError."""
    kind = ggml.ggml_backend_get_default_buffer_type(backend)
    most = int(ggml.ggml_backend_buft_get_max_size(kind))
    buffers = []
    try:
        for part in _parts([(tensor, room_of(kind, tensor)) for tensor in tensors], most):
            buffers.append(whole_buffer(backend, sum(size for _, size in part)))
            address = ggml.ggml_backend_buffer_get_base(buffers[-1])
            for tensor, size in part:
                ggml.ggml_backend_tensor_alloc(buffers[-1], tensor, address)
                address += size
    except GraphcError:
        for buffer in buffers:
            ggml.ggml_backend_buffer_free(buffer)
        for tensor in tensors:
            move(tensor, None, None)
        raise
    return buffers


def pretended(backend: Any, tensors: Iterable[Any]) -> Any:
    """A new buffer without bytes, in which the tensors look as if they lay, so that a graph of them can be measured."""
    buffer = ggml.ggml_backend_buft_alloc_buffer(ggml.ggml_backend_get_default_buffer_type(backend), 0)
    for tensor in tensors:
        move(tensor, buffer, SOMEWHERE)
    return buffer


def whole_buffer(backend: Any, nbytes: int) -> Any:
    """A new buffer for weights, and for what is kept as they are. Raises GraphcError."""
    buffer = ggml.ggml_backend_buft_alloc_buffer(ggml.ggml_backend_get_default_buffer_type(backend), nbytes)
    if not buffer:
        name, said = device_name(backend), device_error()
        raise GraphcError(
            f"{name} does not have the {nbytes / 2**20:.0f} MiB that the weights need; with a limit (--memory) they are streamed"
            + (f" ({said})" if said else "")
        )
    ggml.ggml_backend_buffer_set_usage(buffer, ggml.GGML_BACKEND_BUFFER_USAGE_WEIGHTS)
    return buffer


def _parts(sized: Sequence[tuple[Any, int]], most: int) -> Iterator[list[tuple[Any, int]]]:
    """Runs of what fits into one buffer; what is larger than a buffer may be is tried by itself."""
    part: list[tuple[Any, int]] = []
    filled = 0
    for each in sized:
        if part and filled + each[1] > most:
            yield part
            part, filled = [], 0
        part.append(each)
        filled += each[1]
    if part:
        yield part
