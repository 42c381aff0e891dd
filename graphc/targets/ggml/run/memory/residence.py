"""Which weights lie in the memory of which device, and which stay on the host, to be copied when their turn comes.

Pure arithmetic over bytes. Weights are taken in the order in which a run reads them, so that each device computes a stretch of
the model and activations cross from one to the next once.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Sequence
from itertools import accumulate

from graphc.records import dataclass
from graphc.targets.ggml.program.calls import VIEWS
from graphc.targets.ggml.program.program import Program, with_blocks
from graphc.targets.ggml.program.tensor import Tensor

HOST = -1
"""Stands for a device where a weight stays on the host and what reads it runs there."""

SLOTS = 2
"""Places on a device for weights that are streamed: one is read while the other is filled."""


class TooSmall(Exception):
    """A device does not have the bytes that weights need at least: its number, and the bytes."""

    def __init__(self, device: int, nbytes: int) -> None:
        super().__init__(device, nbytes)
        self.device, self.nbytes = device, nbytes


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

    device: tuple[int, ...]
    streamed: frozenset[int]
    slots: tuple[int, ...]

    def resident(self, device: int) -> list[int]:
        """The weights that lie on a device all the time."""
        return [index for index, each in enumerate(self.device) if each == device and index not in self.streamed]


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


def _root(tensor: Tensor, roots: dict[int, int]) -> int:
    """The weight whose memory a tensor reads; -1 if it is none's."""
    return tensor.weight if tensor.weight >= 0 else roots.get(tensor.call, -1)


def devices_of_weights(
    order: Sequence[int], sizes: Sequence[int], room: Sequence[float], host: Collection[int], spill: bool
) -> tuple[int, ...]:
    """The device of each weight, HOST for those of `host` and those that nothing reads.

    `room` are the bytes that devices have for weights: each gets a share in proportion, in order. With `spill`, no more than
    there is room for, and the host computes the rest.
    """
    device = [HOST] * len(sizes)
    moved = [index for index in order if index not in host]
    left = [max(each, 0.0) for each in room]
    total, space = sum(sizes[index] for index in moved), sum(left)
    if not space:
        left, space = ([0.0] if spill else [1.0]) * len(left), float(len(left))
    scale = total / space if total < space or not spill else 1.0
    ends = list(accumulate(each * scale for each in left))
    passed = 0.0
    for index in moved:
        place = min(bisect_left(ends, passed + sizes[index] / 2), len(ends) - 1)
        passed += sizes[index]
        if not spill or sizes[index] <= left[place]:
            left[place] -= sizes[index]
            device[index] = place
    return tuple(device)


def residence_for(device: Sequence[int], reads: Reads, sizes: Sequence[int], room: Sequence[float]) -> Residence:
    """Which weights of each device are streamed: as few bytes as `room` allows, the largest first; those of which only rows
    are read stay on the host instead. Raises TooSmall."""
    places, streamed, slots = list(device), set[int](), []
    for number, space in enumerate(room):
        own = [index for index in reads.order if places[index] == number]
        if sum(sizes[index] for index in own) > space:
            for index in reads.by_rows.intersection(own):
                places[index] = HOST
            own = [index for index in own if places[index] == number]
        rest = _too_many(number, own, reads, sizes, space)
        streamed |= rest
        slots.append(_slot(rest, reads, sizes))
    return Residence(tuple(places), frozenset(streamed), tuple(slots))


def _too_many(device: int, own: Sequence[int], reads: Reads, sizes: Sequence[int], space: float) -> set[int]:
    """Those of a device's `own` weights that are streamed. Raises TooSmall."""
    if not own or sum(sizes[index] for index in own) <= space:
        return set()
    least = SLOTS * _slot(set(own), reads, sizes)
    if least > space:
        raise TooSmall(device, least)
    left = space - least
    rest = set(own)
    for index in sorted(own, key=lambda each: sizes[each]):
        left -= sizes[index]
        if left < 0:
            break
        rest.remove(index)
    return rest


def _slot(streamed: set[int], reads: Reads, sizes: Sequence[int]) -> int:
    """Bytes that hold what any call reads of the streamed weights."""
    return max((sum(sizes[index] for index in each if index in streamed) for each in reads.together), default=0)
