"""Which weights lie in the memory of which device, and which stay on the host, to be copied when their turn comes. What a program
reads of its weights is found here; where they then lie, `residence.c` says.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Collection, Sequence
from typing import TypeAlias

from graphc.errors import GraphcError
from graphc.records import dataclass
from graphc.targets.ggml.program.calls import VIEWS
from graphc.targets.ggml.program.program import Program, with_blocks
from graphc.targets.ggml.program.tensor import Tensor
from graphc.targets.ggml.run.choose.library import Own

HOST = -1
"""Stands for a device where a weight stays on the host and what reads it runs there."""

PRODUCTS = ("ggml_mul_mat", "graphc_linear")

SLOTS = 2
"""Places on a device for weights that are streamed: one is read while the other is filled."""


@dataclass(frozen=True)
class Reads:
    """What a program reads of its weights: `together`, for each call that reads any, in order, their indices; `by_rows`,
    those of which only rows are looked up; `by_host`, those that only kernels read, which no device runs but the CPU."""

    together: tuple[tuple[int, ...], ...]
    by_rows: frozenset[int]
    by_host: frozenset[int]

    @property
    def order(self) -> list[int]:
        """The weights that are read, by first use."""
        return list(dict.fromkeys(index for each in self.together for index in each))


@dataclass(frozen=True)
class Residence:
    """For each weight its device, or HOST; those that are streamed through slots; the bytes of a slot, for each device."""

    device: Sequence[int]
    streamed: frozenset[int] = frozenset()
    slots: Sequence[int] = ()

    def resident(self, device: int) -> list[int]:
        """The weights that lie on a device all the time."""
        return [index for index, each in enumerate(self.device) if each == device and index not in self.streamed]


Room: TypeAlias = tuple[str, int, int]


class Plan:
    """Where weights are thought to lie: `graphc_residence`. `devices` are names, limits (0 for none) and free bytes; of the
    weights, which take `sizes`, some stay on the `host`."""

    def __init__(
        self, own: Own, devices: Sequence[Room], sizes: Sequence[int], reads: Reads, host: Collection[int], spill: bool
    ) -> None:
        self.library, self.weights, self.devices = own.library, range(len(sizes)), range(len(devices))
        self.pointer = self.library.graphc_residence_new(len(sizes), spill)
        enough = bool(self.pointer)
        weakref.finalize(self, self.library.graphc_residence_free, self.pointer)
        for name, limit, free in devices if enough else ():
            self.library.graphc_residence_device(self.pointer, name.encode(), limit, free)
        for index in reads.order if enough else ():
            kind = index in reads.by_rows, index in host
            enough &= self.library.graphc_residence_weight(self.pointer, index, sizes[index], *kind)
        for each in reads.together:
            enough = enough and self.library.graphc_residence_together(self.pointer, _sizes(each), len(each))
        if not enough:
            raise GraphcError("not enough memory for weights")
        self.bounded = bool(self.library.graphc_residence_bounded(self.pointer))
        """True if graphs have to be measured: weights do not fit easily."""

    def fits(self, results: Sequence[int], displaced: Collection[int]) -> bool:
        """True if a graph that needs this leaves weights where they are thought to lie; else they are thought to lie elsewhere.
        Raises GraphcError if that cannot be."""
        needs = _sizes(results), _sizes(displaced), len(displaced)
        fits = bool(self.library.graphc_residence_fits(self.pointer, *needs))
        if problem := self.library.graphc_residence_problem(self.pointer):
            raise GraphcError(problem.decode())
        return fits

    @property
    def residence(self) -> Residence:
        """Where they are thought to lie now."""
        of, streamed, slot = (getattr(self.library, f"graphc_residence_{name}") for name in ("of", "streamed", "slot"))
        return Residence(
            [of(self.pointer, index) for index in self.weights],
            frozenset(index for index in self.weights if streamed(self.pointer, index)),
            [slot(self.pointer, number) for number in self.devices],
        )

    def text(self) -> list[str]:
        """A line for each device, and the CPU if it holds any: what of its memory holds what."""
        lines = (self.library.graphc_residence_text(self.pointer, number).decode() for number in (*self.devices, HOST))
        return [line for line in lines if line]


def _sizes(numbers: Collection[int]) -> ctypes.Array[ctypes.c_size_t]:
    return (ctypes.c_size_t * len(numbers))(*numbers)


def weights_read(program: Program) -> Reads:
    """What a program, and the programs inside it, read of the weights that they share."""
    together, rows, host, others = [], set[int](), set[int](), set[int]()
    for each in with_blocks(program):
        roots: dict[int, int] = {}
        for call in each.calls:
            found = [_root(arg, roots) for arg in call.args if isinstance(arg, Tensor)]
            if call.function in VIEWS:
                roots[call.result.call] = found[0]
                continue
            read = [index for index in found if index >= 0]
            if read:
                together.append(tuple(dict.fromkeys(read)))
            table = read[:1] if call.function == "ggml_get_rows" and found[0] >= 0 else []
            rows.update(table)
            (host if call.kernel >= 0 or call.host is not None else others).update(read[len(table) :])
    return Reads(tuple(together), frozenset(rows - others - host), frozenset(host - others - rows))


def matrices_of_products(program: Program) -> set[int]:
    """The weights of two axes that products alone read, as their first operand. ggml and our own code take those whose rows lie
    apart."""
    found, others = set[int](), set[int]()
    for each in with_blocks(program):
        others.update(output.tensor.weight for output in each.outputs)
        for call in each.calls:
            for place, arg in enumerate(call.args):
                if isinstance(arg, Tensor):
                    (found if call.function in PRODUCTS and place == 0 else others).add(arg.weight)
    return {index for index in found - others if index >= 0 and len(program.weights[index].shape) == 2}


def _root(tensor: Tensor, roots: dict[int, int]) -> int:
    """The weight whose memory a tensor reads; -1 if it is none's."""
    return tensor.weight if tensor.weight >= 0 else roots.get(tensor.call, -1)
