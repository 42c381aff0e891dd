"""What a tile kernel computes, in NumPy, one block after the other: the reference for every renderer.

It holds promises to account: that what is read lies within its tensor, that `vector` is true, that copies are waited for before
they are read (what is on its way is NaN), that registers were written before. What only threads can get wrong, barriers above
all, the emulator finds.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import numpy as np

from graphc.kernels.gpu.evaluate import COMPUTED, Evaluation, KernelFault, identity
from graphc.kernels.gpu.layout import register_map
from graphc.kernels.gpu.tile import (
    BLOCKS,
    LINE,
    Barrier,
    Commit,
    Copy,
    Discard,
    Get,
    If,
    Last,
    Load,
    Loop,
    Map,
    Multiply,
    MultiplyShared,
    Part,
    Put,
    Reduce,
    Shared,
    Statement,
    Store,
    Tile,
    TileKernel,
    Wait,
    place,
    walk,
)
from graphc.kernels.scalar import Scalar
from graphc.shapes import integer


def interpret(kernel: TileKernel, arrays: Sequence[np.ndarray], symbols: Mapping[str, int]) -> None:
    """Run a kernel on arrays, one for each of its tensors, for these sizes; those that it writes change. Raises KernelFault."""
    flat = [each.reshape(-1) for each in arrays]
    for tensor, array in zip(kernel.tensors, flat, strict=True):
        if array.dtype != tensor.dtype or array.size != integer(tensor.size, symbols):
            raise KernelFault(f"{kernel.name}: {tensor.name} is not {tensor.dtype}[{tensor.size}]")
    counts = [integer(count, symbols) for count in kernel.grid]
    for z, y, x in itertools.product(*map(range, reversed(counts))):
        _Block(kernel, flat, symbols, (x, y, z)).run(kernel.body)
    for it in walk(kernel.body):
        if isinstance(it, Last) and flat[it.counters.number].any():
            raise KernelFault(f"{kernel.name}: {it.counters.name} wait for blocks that do not come")


class _Block:
    def __init__(
        self, kernel: TileKernel, arrays: Sequence[np.ndarray], symbols: Mapping[str, int], block: tuple[int, int, int]
    ) -> None:
        self.kernel, self.arrays, self.symbols = kernel, arrays, symbols
        self.uniform: dict[Scalar, np.ndarray] = {axis: np.asarray(at) for axis, at in zip(BLOCKS, block, strict=True)}
        self.tiles: dict[Tile, np.ndarray] = {}
        self.memory = np.full(kernel.shared_bytes, 0xFF, np.uint8)
        self.open: list[tuple[np.ndarray, np.ndarray]] = []
        self.groups: list[list[tuple[np.ndarray, np.ndarray]]] = []

    def run(self, body: Sequence[Statement]) -> None:
        for statement in body:
            getattr(self, f"_{type(statement).__name__.lower()}")(statement)

    # Values

    def at(self, shape: tuple[int, int]) -> Evaluation:
        """Values at every place of a tile."""
        row, column = place(shape)
        variables = self.uniform | {row: np.arange(shape[0])[:, None], column: np.arange(shape[1])[None, :]}
        return Evaluation(variables, self.symbols, self.elements, self.element)

    def elements(self, tile: Tile) -> np.ndarray:
        if tile not in self.tiles:
            raise KernelFault(f"{self.kernel.name}: {tile.name} is read before it is written")
        return self.tiles[tile]

    def element(self, number: int, offset: np.ndarray, where: np.ndarray | None) -> np.ndarray:
        array = self.arrays[number]
        if where is None:
            self.check_within(number, offset)
        else:
            offsets, needed = np.broadcast_arrays(offset, where)
            self.check_within(number, offsets[needed])
        found: np.ndarray = (
            array[np.clip(offset, 0, max(array.size - 1, 0))] if array.size else np.zeros(offset.shape, array.dtype)
        )
        return found

    def check_within(self, number: int, offset: np.ndarray) -> None:
        size = self.arrays[number].size
        if offset.size and (offset.min() < 0 or offset.max() >= size):
            name = self.kernel.tensors[number].name
            raise KernelFault(f"{self.kernel.name}: {name}[{offset.min()} … {offset.max()}] of {size}")

    def places(
        self, number: int, shape: tuple[int, int], offset: Scalar, where: Scalar | None, vector: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Offsets, and where they hold, for every place of a tile; promises are checked."""
        evaluation = self.at(shape)
        valid = np.broadcast_to(evaluation(where) if where is not None else np.asarray(True), shape)
        offsets = np.broadcast_to(evaluation(offset), shape)
        self.check_within(number, offsets[valid])
        if vector > 1:
            groups, held = offsets.reshape(-1, vector), valid.reshape(-1, vector)
            steady = (groups == groups[:, :1] + np.arange(vector)).all(1) & (groups[:, 0] % vector == 0)
            if not (held == held[:, :1]).all() or not steady[held[:, 0]].all():
                raise KernelFault(
                    f"{self.kernel.name}: {self.kernel.tensors[number].name} is not read or written by {vector}"
                )
        return offsets, valid

    def uniform_value(self, node: Scalar) -> int:
        return int(Evaluation(self.uniform, self.symbols, self.elements, self.element)(node))

    def stage(self, shared: Shared, stage: Scalar) -> np.ndarray:
        """A stage of shared memory as an array that can be changed."""
        number = self.uniform_value(stage)
        if not 0 <= number < shared.stages:
            raise KernelFault(f"{self.kernel.name}: stage {number} of {shared.name}, which has {shared.stages}")
        begin = shared.offset + number * shared.nbytes // shared.stages
        rows = (
            self.memory[begin : begin + shared.nbytes // shared.stages].view(shared.dtype).reshape(shared.shape[0], -1)
        )
        return rows[:, : shared.shape[1]]

    def narrowed(self, values: np.ndarray, dtype: np.dtype) -> np.ndarray:
        with np.errstate(all="ignore"):
            return values.astype(dtype)

    # Statements

    def _load(self, it: Load) -> None:
        offsets, valid = self.places(it.source.number, it.tile.shape, it.offset, it.where, it.vector)
        found = np.zeros(it.tile.shape, it.source.dtype)
        found[valid] = self.arrays[it.source.number][offsets[valid]]
        self.tiles[it.tile] = self.narrowed(found, it.tile.dtype)

    def _store(self, it: Store) -> None:
        offsets, valid = self.places(it.target.number, it.tile.shape, it.offset, it.where, it.vector)
        values = self.narrowed(self.elements(it.tile), it.target.dtype)
        self.arrays[it.target.number][offsets[valid]] = values[valid]

    def _discard(self, it: Discard) -> None:
        first, array = self.uniform_value(it.offset), self.arrays[it.target.number]
        self.check_within(it.target.number, np.asarray([first, first + it.count - 1]))
        if first * array.itemsize % LINE or it.count * array.itemsize % LINE:
            raise KernelFault(f"{self.kernel.name}: {it.target.name} is not discarded by whole lines")
        array[first : first + it.count].view(np.uint8)[...] = 0xFF

    def _copy(self, it: Copy) -> None:
        offsets, valid = self.places(it.source.number, it.target.shape, it.offset, it.where, it.vector)
        found = np.zeros(it.target.shape, it.source.dtype)
        found[valid] = self.arrays[it.source.number][offsets[valid]]
        target = self.stage(it.target, it.stage)
        target.view(np.uint8)[...] = 0xFF
        self.open.append((target, found))

    def _commit(self, it: Commit) -> None:
        if it.what == "copies":
            self.groups.append(self.open)
            self.open = []

    def _wait(self, it: Wait) -> None:
        while it.what == "copies" and len(self.groups) > it.pending:
            for target, found in self.groups.pop(0):
                target[...] = found

    def _barrier(self, it: Barrier) -> None:
        pass

    def _put(self, it: Put) -> None:
        values = self.part(it.tile) if isinstance(it.tile, Part) else self.elements(it.tile)
        self.stage(it.target, it.stage)[: values.shape[0], : values.shape[1]] = self.narrowed(values, it.target.dtype)

    def part(self, part: Part) -> np.ndarray:
        """The rows, or columns, of some repetitions, those of all warps together."""
        layout, axis = part.tile.layout, part.axis
        values = self.elements(part.tile).swapaxes(0, axis)
        size, times = layout.atom.shape[axis] * part.count, layout.repeat[axis] // part.count
        found = values.reshape(-1, times, size, values.shape[1])[:, self.uniform_value(part.index)]
        return found.reshape(-1, values.shape[1]).swapaxes(0, axis)

    def _get(self, it: Get) -> None:
        rows, columns = it.tile.shape
        stage = self.stage(it.source, it.stage)
        stage = stage.T if it.transposed else stage
        found = stage[it.row : it.row + rows, it.column : it.column + columns]
        if found.shape != (rows, columns):
            raise KernelFault(f"{self.kernel.name}: {it.tile.name} does not lie within {it.source.name}")
        self.tiles[it.tile] = self.narrowed(found, it.tile.dtype)

    def _map(self, it: Map) -> None:
        evaluation = self.at(it.tile.shape)
        values = np.broadcast_to(evaluation(it.value), it.tile.shape)
        if it.where is not None:
            valid = np.broadcast_to(evaluation(it.where), it.tile.shape)
            groups = valid.reshape(-1, it.vector)
            if not (groups == groups[:, :1]).all():
                raise KernelFault(f"{self.kernel.name}: {it.tile.name} is not computed by {it.vector}")
            values = np.where(valid, values, np.zeros_like(values))
        self.tiles[it.tile] = self.narrowed(values, it.tile.dtype)

    def _reduce(self, it: Reduce) -> None:
        values, source, target = self.elements(it.source), it.source.layout, it.tile.layout
        combine = {"sum": np.add, "max": np.maximum, "min": np.minimum}[it.kind]
        if it.tile.shape[it.axis] == 1:
            self.tiles[it.tile] = combine.reduce(values, axis=it.axis, keepdims=True).astype(it.tile.dtype)
            return
        registers = register_map(target.without(it.axis), source)
        reduced = np.zeros((*it.source.shape, 2), np.int64)  # where each element goes
        reduced[_index(source.places())] = target.places()[:, registers]
        found = np.full(it.tile.shape, identity(it.kind, it.tile.dtype), it.tile.dtype)
        combine.at(found, _index(reduced), values)
        self.tiles[it.tile] = found

    def _multiply(self, it: Multiply) -> None:
        total, a, b = (self.elements(each) for each in (it.total, it.a, it.b))
        a, b = (each.astype(COMPUTED.get(each.dtype, each.dtype)) for each in (a, b))
        with np.errstate(all="ignore"):
            if it.instruction.parts == 2:
                (a_high, a_low), (b_high, b_low) = split_tf32(a), split_tf32(b)
                sums = np.zeros_like(total)
                for pair in ((a_low, b_high), (a_high, b_low), (a_high, b_high)):
                    sums = self.multiplied(sums, *pair, True)
                self.tiles[it.total] = total + sums
                return
            if it.instruction.parts == 1:
                a, b = split_tf32(a)[0], split_tf32(b)[0]
            self.tiles[it.total] = self.multiplied(total, a, b, bool(it.instruction.function))

    def _multiplyshared(self, it: MultiplyShared) -> None:
        """At once: what else happens until it is waited for changes nothing of it, as `verify.py` proves."""
        a = self.elements(it.a) if isinstance(it.a, Tile) else self.stage(it.a, it.a_stage)
        b, (_, columns) = self.stage(it.b, it.b_stage), it.total.shape
        b = b[: it.depth, :columns].T if isinstance(it.a, Tile) else b[:, : it.depth]
        a, b = (each.astype(COMPUTED.get(each.dtype, each.dtype)) for each in (a[:, : it.depth], b))
        total = np.zeros(it.total.shape, it.total.dtype) if it.fresh else self.elements(it.total)
        with np.errstate(all="ignore"):
            self.tiles[it.total] = self.multiplied(total, a, b, True)

    def multiplied(self, total: np.ndarray, a: np.ndarray, b: np.ndarray, twice: bool) -> np.ndarray:
        """A total plus products, in order; rounded as product and as sum, or once as by fmaf."""
        for k in range(a.shape[1]):
            if twice:
                total = total + a[:, k : k + 1] * b[None, :, k]
            else:
                total = (total + a[:, k : k + 1].astype(np.float64) * b[None, :, k]).astype(total.dtype)
        return total

    def _loop(self, it: Loop) -> None:
        for step in range(integer(it.count, self.symbols)):
            self.uniform[it.index] = np.asarray(step)
            self.run(it.body)
        self.uniform.pop(it.index, None)

    def _if(self, it: If) -> None:
        if it.tile is None:
            if self.uniform_value(it.condition):
                self.run(it.body)
            return
        layout, before = it.tile.layout, dict(self.tiles)
        holds = np.broadcast_to(self.at(it.tile.shape)(it.condition), it.tile.shape)
        own = holds[_index(layout.places())]
        threads = own.reshape(-1, layout.lanes * layout.registers).any(1).repeat(layout.lanes)
        self.run(it.body)
        for tile, values in self.tiles.items():
            if values is not before.get(tile):
                kept = before.get(tile, np.full(tile.shape, np.nan)).astype(tile.dtype)
                there = _index(tile.layout.places()[threads])
                kept[there] = values[there]
                self.tiles[tile] = kept

    def _last(self, it: Last) -> None:
        number, counters = self.uniform_value(it.offset), self.arrays[it.counters.number]
        self.check_within(it.counters.number, np.asarray(number))
        counters[number] += 1
        if counters[number] == it.count:
            counters[number] = 0
            self.run(it.body)


def split_tf32(numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """float32 numbers rounded to 11 binary digits, ties away from zero, as tensor cores take them; and so what is left over."""
    high = _tf32(numbers)
    return high, _tf32(numbers - high)


def _tf32(numbers: np.ndarray) -> np.ndarray:
    rounded = ((numbers.view(np.uint32) + np.uint32(0x1000)) & np.uint32(0xFFFFE000)).view(np.float32)
    return np.where(np.isfinite(numbers), rounded, numbers)


def _index(places: np.ndarray) -> tuple[np.ndarray, ...]:
    """Coordinates, the last axis of an array, as what indexes a tile."""
    return tuple(np.moveaxis(places, -1, 0))
