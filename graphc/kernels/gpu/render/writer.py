"""What a renderer of text writes with: lines in blocks, and where elements lie in registers and in shared memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from graphc.ir.types import BOOL
from graphc.kernels.c.emit import Block
from graphc.kernels.c.language import PRODUCT, SUM, computed_type
from graphc.kernels.gpu.layout import Layout
from graphc.kernels.gpu.render.values import NARROW, Parameters, Values, bits
from graphc.kernels.gpu.tile import CHUNK, Global, Part, Shared, Tile, TileKernel, place, walk
from graphc.kernels.scalar import Scalar


class Writer:
    """Lines of a kernel, in the block at hand."""

    def __init__(self, kernel: TileKernel) -> None:
        self.kernel, self.parameters = kernel, Parameters()
        roots = scalars(kernel)
        self.values = Values(kernel, roots, self.parameters)
        self.block = Block()
        self.layouts: dict[Layout, tuple[str, str]] = {}

    def say(self, *lines: str) -> None:
        """Add lines."""
        self.block.lines += lines

    @contextmanager
    def inside(self, header: str, variables: Sequence[Scalar] = (), barrier: bool = False) -> Iterator[Block]:
        """A block within that at hand."""
        outer = self.block
        self.block = Block(outer, header, variables, barrier)
        yield self.block
        self.block.close()
        self.block = outer

    def text(self, value: Scalar) -> str:
        """An expression in the block at hand."""
        return self.values.value(value, self.block).text

    # Places

    def place(self, layout: Layout, shape: tuple[int, int], register: str, *values: Scalar | None) -> None:
        """Declare the row and the column that a register has in this thread, if a value needs them, or none is given."""
        atom, count = layout.atom, layout.atom.count
        for axis, variable in enumerate(place(shape)):
            if variable.kind != "variable" or (
                values and not any(value is not None and variable in value.free for value in values)
            ):
                continue
            own = self.thread_place(layout)
            inner = int(np.prod(layout.repeat[axis + 1 :], dtype=int)) * count
            repetition = "0"
            if layout.repeat[axis] > 1:
                repetition = f"{register} / {inner}" if inner > 1 else register
                if int(np.prod(layout.repeat[:axis], dtype=int)) > 1:
                    repetition += f" % {layout.repeat[axis]}"
                repetition += f" * {atom.shape[axis]}" if atom.shape[axis] > 1 else ""
            within = bits([(register, bit, at[axis]) for bit, at in enumerate(atom.registers)])
            self.say(f"const int {variable.data[0]} = {plus(own[axis], within, repetition)};")  # type: ignore[index]

    def thread_place(self, layout: Layout) -> tuple[str, str]:
        """The names of the row and the column at which this thread's part of a layout begins."""
        if layout not in self.layouts:
            number, step = len(self.layouts), list(layout.warp_shape)
            terms: list[list[str]] = [
                [bits([("lane", bit, at[axis]) for bit, at in enumerate(layout.atom.lanes)])] for axis in range(2)
            ]
            inner = 1
            for count, axis in reversed(layout.warps):
                if axis is not None and count > 1:
                    digit = f"warp / {inner} % {count}" if inner > 1 else f"warp % {count}"
                    terms[axis].append(f"{digit} * {step[axis]}")
                    step[axis] *= count
                inner *= count
            root = self.block
            while root.parent is not None:
                root = root.parent
            names = f"row_{number}", f"column_{number}"
            for name, each in zip(names, terms, strict=True):
                if plus(*each) != "0":
                    root.lines.append(f"const int {name} = {plus(*each)};")
            self.layouts[layout] = (
                names[0] if plus(*terms[0]) != "0" else "0",
                names[1] if plus(*terms[1]) != "0" else "0",
            )
        return self.layouts[layout]

    def shared_place(self, shared: Shared, stage: Scalar, row: str, column: str) -> str:
        """The address of an element of shared memory."""
        item, swizzle, line = shared.dtype.itemsize, shared.swizzle, self.shared_line(shared, stage, row)
        panel, between = shared.panel
        if shared.in_panels and shared.shape[1] > panel:
            line, column = plus(line, times(f"({factor(column)} / {panel})", between)), f"{factor(column)} % {panel}"
        if not swizzle.mask and not swizzle.fold:
            return plus(line, times(column, item))
        each = CHUNK // item
        chunk = f"{factor(column)} / {each}"
        if swizzle.mask:
            shifted = (
                f"({factor(row)} >> {swizzle.shift} & {swizzle.mask})"
                if swizzle.shift
                else f"({factor(row)} & {swizzle.mask})"
            )
            chunk += f" ^ {shifted}" + (f" << {swizzle.up}" if swizzle.up else "")
        if swizzle.fold:
            chunk += f" ^ ({factor(column)} / {each} >> {swizzle.fold} & 1)"
        return plus(line, f"({chunk}) * {CHUNK}", f"{factor(column)} % {each} * {item}")

    def shared_line(self, shared: Shared, stage: Scalar, row: str) -> str:
        """The address of a row of shared memory."""
        number = self.values.value(stage, self.block).within(PRODUCT + 1)
        return plus(
            "memory", str(shared.offset), times(number, shared.nbytes // shared.stages), times(row, shared.pitch)
        )

    def address(self, tensor: Global, offset: Scalar) -> str:
        """The address of an element of a tensor."""
        return plus(tensor.name, self.values.value(offset, self.block).within(SUM))

    def each(self, count: int, line: str) -> None:
        """A line for each of some neighbours, `v`."""
        self.say(f"UNROLL for (int v = 0; v < {count}; v++) {line}")

    @contextmanager
    def groups(self, tile: Tile | Part, width: int, *values: Scalar | None) -> Iterator[Block]:
        """A loop over a thread's registers in steps, with the place of the first, as far as values need it (if there are any)."""
        row, column = place(tile.shape)
        layout = tile.layout
        step = "e++" if width == 1 else f"e += {width}"
        with self.inside(f"UNROLL for (int e = 0; e < {layout.registers}; {step})", [row, column]) as block:
            self.place(layout, tile.shape, "e", *values)
            yield block

    def thread_rows(self, layout: Layout) -> str:
        """The row at which this warp's part of an operand begins."""
        inner, step, terms = 1, layout.warp_shape[0], []
        for count, axis in reversed(layout.warps):
            if axis == 0 and count > 1:
                terms.append(f"warp / {inner} % {count} * {step}" if inner > 1 else f"warp % {count} * {step}")
                step *= count
            inner *= count
        return " + ".join(terms) or "0"


def plus(*parts: str) -> str:
    """A sum of texts without those that are 0."""
    return " + ".join(part for part in parts if part != "0") or "0"


def factor(text: str) -> str:
    """A text as a factor."""
    return text if text.isidentifier() or text.isdigit() else f"({text})"


def times(text: str, number: int) -> str:
    """A text times a number, without what says nothing."""
    if text.isdigit():
        return str(int(text) * number)
    return text if number == 1 else f"{factor(text)} * {number}"


def scalars(kernel: TileKernel) -> list[Scalar]:
    """Every value that statements name."""
    return [each for statement in walk(kernel.body) for each in vars(statement).values() if isinstance(each, Scalar)]


def place_names(shape: tuple[int, int]) -> tuple[str, str]:
    """The names of a place's row and column; 0 along an axis of size 1."""
    row, column = ("0" if size == 1 else axis for axis, size in zip(("row", "column"), shape, strict=True))
    return row, column


def memory_type(dtype: np.dtype) -> str:
    """What a number in memory is declared as."""
    if dtype == BOOL:
        return "uint8_t"
    return f"{NARROW[dtype]}_t" if dtype in NARROW else computed_type(dtype)


def zero(dtype: np.dtype) -> str:
    """0 as a number in memory."""
    return f"to_{NARROW[dtype]}(0.0f)" if dtype in NARROW else "0"


def converted(text: str, source: np.dtype, target: np.dtype) -> str:
    """A number of one type in another; narrow floats go through float."""
    if source == target:
        return text
    wide = f"to_float({text})" if source in NARROW else text
    if target in NARROW:
        return f"to_{NARROW[target]}({wide})"
    return wide if target.kind == "f" and source in NARROW else f"({computed_type(target)}) {wide}"


def chosen(condition: str | None, value: str) -> str:
    """A value, and 0 where a condition does not hold."""
    if condition is None or condition == "true":
        return value
    return f"{condition if condition.isidentifier() else f'({condition})'} ? {value} : 0"
