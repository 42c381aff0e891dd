"""What is computed of steady inputs alone (see `sections.py`): kept from run to run, for the last few values that they had.

The results are arrays of the host. The graph that reads them has memory of its own for them on the device, to which they are
copied when they are others than those of the run before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from graphc.errors import GraphcError
from graphc.ggml_library import ggml
from graphc.records import dataclass
from graphc.shapes import Values
from graphc.targets.ggml.run.device.tensors import new_context, new_tensor, upload
from graphc.targets.ggml.run.memory.weights import allocated, move, pretended, room_of

KEPT_VALUES = 4
"""Of so many values of the inputs results are kept: a prompt and its negative one, each in parts."""

Arrays: TypeAlias = Mapping[int, np.ndarray]
Results: TypeAlias = tuple[Arrays, Arrays]
"""What a section gives: results of calls that are read later, and outputs, by their indices."""


@dataclass(frozen=True, eq=False)
class Kept:
    """What was computed for certain sizes and values of inputs."""

    sizes: Mapping[str, int]
    inputs: Sequence[np.ndarray]
    results: Results

    def serves(self, sizes: Mapping[str, int], inputs: Sequence[np.ndarray]) -> bool:
        """True if that is what would be computed for these."""
        return self.sizes == sizes and all(map(_same, self.inputs, inputs))


class SteadyResults:
    """The results that a context keeps, those that were used last at the end."""

    def __init__(self) -> None:
        self._kept: list[Kept] = []

    def of(self, sizes: Mapping[str, int], inputs: Sequence[np.ndarray], compute: Callable[[], Results]) -> Results:
        """What `compute` gives for these sizes and inputs, or gave. Nobody may change the arrays."""
        found = next((each for each in self._kept if each.serves(sizes, inputs)), None)
        if found is None:
            found = Kept(dict(sizes), [array.copy() for array in inputs], compute())
        else:
            self._kept.remove(found)
        self._kept = [*self._kept, found][-KEPT_VALUES:]
        return found.results

    def clear(self) -> None:
        """Keep nothing, because weights are others."""
        self._kept.clear()


class KeptTensors:
    """Tensors of a graph, in memory of their own on a backend, for results that are kept. `nbytes` is what they take there."""

    def __init__(self, backend: Any, tensors: Mapping[int, Any], values: Values) -> None:
        self._context = new_context(len(tensors))
        self._backend, self._buffers = backend, list[Any]()
        self._there: dict[int, np.ndarray] | None = None
        self.tensors = {index: new_tensor(self._context, each, values) for index, each in tensors.items()}
        kind = ggml.ggml_backend_get_default_buffer_type(backend)
        self.nbytes = sum(room_of(kind, tensor) for tensor in self.tensors.values())

    def pretend(self) -> None:
        """Let the tensors look as if they lay on the backend, so that the graph can be measured before any results are there."""
        if self.tensors:
            self._buffers = [pretended(self._backend, self.tensors.values())]

    def fill(self, arrays: Arrays) -> None:
        """Have the tensors hold these results; those that are there are not copied. Raises GraphcError if memory is out."""
        if self._there is None:
            self._place()
            self._there = {}
        for index, tensor in self.tensors.items():
            if self._there.get(index) is not arrays[index]:
                self._there.pop(index, None)
                upload(tensor, arrays[index])
                self._there[index] = arrays[index]

    def free(self) -> None:
        """Give back the memory."""
        self._clear()
        ggml.ggml_free(self._context)

    def _place(self) -> None:
        self._clear()
        if self.tensors:
            try:
                self._buffers = allocated(self._backend, list(self.tensors.values()))
            except GraphcError:
                self.pretend()
                raise

    def _clear(self) -> None:
        for buffer in self._buffers:
            ggml.ggml_backend_buffer_free(buffer)
        for tensor in self.tensors.values():
            move(tensor, None, None)
        self._buffers = []


def _same(one: np.ndarray, other: np.ndarray) -> bool:
    """True if two arrays have the same bits."""
    return one is other or (
        one.shape == other.shape and one.dtype == other.dtype and np.array_equal(_bytes(one), _bytes(other))
    )


def _bytes(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)
