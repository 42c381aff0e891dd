"""Writes a tile kernel as text of the dialect (`dialect/README.md`), which nvcc, clang and the emulator understand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from graphc.ir.types import BF16, F16
from graphc.kernels.c.emit import indented
from graphc.kernels.c.language import PRODUCT, SUM, computed_type
from graphc.kernels.gpu.layout import register_map
from graphc.kernels.gpu.render.products import Products
from graphc.kernels.gpu.render.values import NARROW, Parameter
from graphc.kernels.gpu.render.writer import (
    chosen,
    converted,
    memory_type,
    place_names,
    plus,
    scalars,
    times,
    zero,
)
from graphc.kernels.gpu.tile import (
    BLOCKS,
    CHUNK,
    LINE,
    Barrier,
    Commit,
    Copy,
    Discard,
    Get,
    Global,
    If,
    Load,
    Loop,
    Map,
    MultiplyShared,
    Part,
    Put,
    Statement,
    Store,
    Tile,
    TileKernel,
    Wait,
    neighbours,
    place,
)
from graphc.kernels.linear import Linear, linear
from graphc.kernels.nest import name
from graphc.kernels.scalar import Scalar


@dataclass(frozen=True)
class Rendered:
    """A kernel's text, without the dialect and the `helpers` that it calls, its parameters, and the messages of faults, of which
    the first has number 1."""

    kernel: TileKernel
    text: str
    helpers: tuple[str, ...]
    parameters: tuple[Parameter, ...]
    faults: tuple[str, ...]

    @property
    def code(self) -> str:
        """The text."""
        return self.text

    def named(self, name: str) -> Rendered:
        """The same kernel under another name."""
        text = self.text.replace(f"KERNEL({self.kernel.name},", f"KERNEL({name},", 1)
        return replace(self, kernel=replace(self.kernel, name=name), text=text)


def file_of(kernels: Sequence[Rendered]) -> str:
    """The text of several kernels, with what they call."""
    helpers = dict.fromkeys(helper for each in kernels for helper in each.helpers)
    return "\n".join([*helpers, *(each.text for each in kernels)])


def render(kernel: TileKernel) -> Rendered:
    """The text of a kernel. Raises GraphcError for what a device cannot do."""
    return _Writer(kernel).written()


class _Writer(Products):
    def written(self) -> Rendered:
        """The whole kernel."""
        kernel = self.kernel
        self.statements(kernel.body)
        tensors = [Parameter("tensor", each.name, each.number) for each in kernel.tensors]
        sizes = [Parameter(kind, written, dim) for (kind, dim), written in self.parameters.names.items()]
        fault = [Parameter("fault", "fault", 0)] if self.values.faults else []
        declared = [
            *map(_declared, kernel.tensors),
            *(f"{each.kind} {each.name}" for each in sizes),
            *(["int32_t *fault"] * len(fault)),
        ]
        used = set().union(*(value.free for value in scalars(kernel)))
        numbers = [f"block_index_{axis}()" for axis in "xyz"]
        if kernel.across:
            numbers[:2] = (f"(block_index_x() {by} {kernel.grid[1]}u)" for by in "/%")
        blocks = [
            f"const int {name(each)} = (int) {one};" for each, one in zip(BLOCKS, numbers, strict=True) if each in used
        ]
        tiles = [f"{_register_type(each)} {each.name}[{_register_count(each)}];" for each in kernel.tiles]
        start = ["const int thread = thread_index(), lane = lane_index(), warp = warp_index();", *blocks]
        if kernel.shared:
            start.append("shared_byte *const memory = shared_memory();")
        start.append("await_kernels_before();")
        head = f"KERNEL({', '.join([kernel.name, str(kernel.threads), str(kernel.blocks), *declared])}) {{"
        lines = [head, *indented([*start, *tiles, *self.block.lines]), "}", ""]
        helpers, faults = tuple(self.values.definitions.values()), tuple(self.values.faults)
        return Rendered(kernel, "\n".join(lines), helpers, (*tensors, *sizes, *fault), faults)

    def statements(self, body: Sequence[Statement]) -> None:
        """Statements in the block at hand. Before a barrier in front of products that read shared memory, they are shown it."""
        shown = any(isinstance(each, MultiplyShared) for each in body)
        for statement in body:
            if shown and isinstance(statement, Barrier):
                self.say("wgmma_publish();")
            getattr(self, f"_{type(statement).__name__.lower()}")(statement)

    # Memory

    def _copy(self, it: Copy) -> None:
        rows, columns = it.target.shape
        width = min(it.vector, CHUNK // it.target.dtype.itemsize)
        total, nbytes = rows * columns // width, width * it.target.dtype.itemsize
        threads, across = self.kernel.threads, columns // width
        row, column = place(it.target.shape)
        with self.inside(f"UNROLL for (int i = 0; i < {-(-total // threads)}; i++)", [row, column]):
            if threads % across == 0:
                down = threads // across
                self.say(f"const int row = thread / {across} + i * {down}, column = thread % {across} * {width};")
                source = self.address_by_rows(it.source, it.offset, row, f"thread / {across}", down)
            else:
                self.say(f"const int chunk = thread + i * {threads};")
                self.say(f"const int row = chunk / {across}, column = chunk % {across} * {width};")
                source = self.address(it.source, it.offset)
            valid = "true" if it.where is None else self.text(it.where)
            target = self.shared_place(it.target, it.stage, "row", "column")
            if nbytes >= 4:
                line = f"copy_async_{nbytes}({target}, {source}, {valid});"
            else:
                kind = memory_type(it.source.dtype)
                line = f"store_shared<{kind}>({target}, {valid} ? load_global({source}) : {zero(it.source.dtype)});"
            self.say(line if total % threads == 0 else f"if (thread + i * {threads} < {total}) {line}")

    def address_by_rows(self, tensor: Global, offset: Scalar, row: Scalar, first: str, step: int) -> str:
        """The address of an element of the row that is `i` steps below a thread's first one. What no loop changes is added up
        first, and what is a number last: compilers do not add up integers in another order, but pointers they do."""
        form, loops = linear(offset), self.block.loops_around()
        if any(row in each.free for each in form.terms if each is not row):
            return self.address(tensor, offset)
        each_row = self.values.dim(form.terms.get(row, 0), self.block).within(PRODUCT + 1)
        varying = {each: times for each, times in form.terms.items() if each.free & loops}
        same = {each: times for each, times in form.terms.items() if each is not row and each not in varying}
        before, within = (
            self.values.value(each.scalar(), self.block).within(SUM)
            for each in (Linear(same, form.constant), Linear(varying, 0))
        )
        return plus(tensor.name, before, f"{first} * {each_row}", within, f"i * {step} * {each_row}")

    def _commit(self, it: Commit) -> None:
        self.say(f"{FUNCTIONS[it.what]}_commit();")

    def _wait(self, it: Wait) -> None:
        self.say(f"{FUNCTIONS[it.what]}_wait<{it.pending}>();")
        self.say(*(f"wgmma_arrived<{each.layout.registers}>({each.name});" for each in it.totals))

    def _barrier(self, it: Barrier) -> None:
        self.say("barrier();")

    def _load(self, it: Load) -> None:
        kind, name = it.source.dtype, it.tile.name
        width = min(it.vector, it.tile.layout.vector(), CHUNK // kind.itemsize)
        with self.groups(it.tile, width, it.offset, it.where):
            valid = None if it.where is None else self.text(it.where)
            source = self.address(it.source, it.offset)
            if width == 1:
                value = converted(f"load_global({source})", kind, it.tile.dtype)
                self.say(f"{name}[e] = {chosen(valid, value)};")
                return
            if valid is not None and not valid.isidentifier():
                self.say(f"const bool valid = {valid};")
                valid = "valid"
            self.say(f"{memory_type(kind)} read[{width}];")
            memory = "global" if it.source.written else "readonly"
            line = f"load_{memory}_{width * kind.itemsize}(read, {source});"
            self.say(line if valid is None else f"if ({valid}) {line}")
            self.each(width, f"{name}[e + v] = {chosen(valid, converted('read[v]', kind, it.tile.dtype))};")

    def _store(self, it: Store) -> None:
        kind, name = it.target.dtype, it.tile.name
        width = min(it.vector, it.tile.layout.vector(), CHUNK // kind.itemsize)
        with self.groups(it.tile, width, it.offset, it.where):
            valid = None if it.where is None else self.text(it.where)
            target = self.address(it.target, it.offset)
            if width == 1:
                line = f"store_global({target}, {converted(f'{name}[e]', it.tile.dtype, kind)});"
            else:
                self.say(f"{memory_type(kind)} written[{width}];")
                self.each(width, f"written[v] = {converted(f'{name}[e + v]', it.tile.dtype, kind)};")
                line = f"store_global_{width * kind.itemsize}({target}, written);"
            self.say(line if valid is None else f"if ({valid}) {line}")

    def _discard(self, it: Discard) -> None:
        each = LINE // it.target.dtype.itemsize
        first = self.address(it.target, it.offset)
        loop = f"for (int i = thread; i < {it.count // each}; i += {self.kernel.threads})"
        self.say(f"{loop} discard_global({first} + i * {each});")

    def _put(self, it: Put) -> None:
        part = isinstance(it.tile, Part)
        tile = it.tile.tile if isinstance(it.tile, Part) else it.tile
        layout, kind = it.tile.layout, it.target.dtype
        first = times(self.text(it.tile.index), layout.registers) if isinstance(it.tile, Part) else "0"
        width = min(layout.vector(), CHUNK // kind.itemsize)
        with self.groups(it.tile, width):
            self.say(f"{memory_type(kind)} written[{width}];")
            source = f"{tile.name}[{plus(first, 'e', 'v') if part else 'e + v'}]"
            self.each(width, f"written[v] = {converted(source, tile.dtype, kind)};")
            target = self.shared_place(it.target, it.stage, *place_names(it.tile.shape))
            self.say(f"store_shared_{width * kind.itemsize}({target}, written);")

    def _get(self, it: Get) -> None:
        if _is_packed(it.tile):
            self.matrices(it)
            return
        kind = it.source.dtype
        width = 1 if it.transposed else min(it.tile.layout.vector(), CHUNK // kind.itemsize)
        with self.groups(it.tile, width):
            row, column = place_names(it.tile.shape)
            row, column = plus(row, str(it.row)), plus(column, str(it.column))
            self.say(f"{memory_type(kind)} read[{width}];")
            source = self.shared_place(it.source, it.stage, *((column, row) if it.transposed else (row, column)))
            self.say(f"load_shared_{width * kind.itemsize}(read, {source});")
            self.each(width, f"{it.tile.name}[e + v] = {converted('read[v]', kind, it.tile.dtype)};")

    # Arithmetic

    def _map(self, it: Map) -> None:
        tile = it.tile
        if it.vector > 1:
            self.side_by_side(it)
            return
        self.values.register = lambda source: self.register(source, tile)
        if not _is_packed(tile):
            self.one_by_one(it)
            return
        row, column = place(tile.shape)
        with self.inside(f"UNROLL for (int w = 0; w < {_register_count(tile)}; w++)"):
            self.say("float pair[2];")
            with self.inside("UNROLL for (int h = 0; h < 2; h++)", [row, column]):
                self.say("const int e = w * 2 + h;")
                self.place(tile.layout, tile.shape, "e", it.value, it.where)
                self.say(f"pair[h] = {self.mapped(it)};")
            self.say(f"{tile.name}[w] = pack_{NARROW[tile.dtype]}(pair[0], pair[1]);")

    def one_by_one(self, it: Map) -> None:
        """Compute the elements of a tile of which each has a register."""
        with self.groups(it.tile, 1, it.value, it.where):
            self.say(f"{it.tile.name}[e] = {self.mapped(it)};")

    def side_by_side(self, it: Map) -> None:
        """Compute neighbours in statements of their own, so that what they share is read and computed once."""
        group, values = neighbours(it)
        self.values.expect(values)
        with self.groups(it.tile, it.vector) as block:
            if group.kind == "variable":
                block.variables |= {group}
                self.say(f"const int {name(group)} = column / {it.vector};")
            texts = [self.text(each) for each in values]
            valid = None if it.where is None else texts.pop()
            for place, text in enumerate(texts):
                self.say(f"{it.tile.name}[e + {place}] = {chosen(valid, text)};")

    def mapped(self, it: Map) -> str:
        """The value at the place at hand."""
        return chosen(None if it.where is None else self.text(it.where), self.text(it.value))

    def register(self, source: Tile, target: Tile) -> str:
        """The register of a tile that holds what belongs to register `e` of another."""
        found = register_map(source.layout, target.layout)
        if found is None:
            raise ValueError(f"{target.name} reads {source.name}, which other threads hold")
        count = len(found)
        steps = [2**power for power in range(11) if 2**power <= count]
        for divisor in steps:
            for modulus in (count, *steps):
                if found == tuple(e // divisor % modulus for e in range(count)):
                    text = f"e / {divisor}" if divisor > 1 else "e"
                    return text if modulus == count else f"{text} % {modulus}"
        name = f"{source.name}_of_{target.name}"
        table = f"const int {name}[] = {{{', '.join(map(str, found))}}};"
        if table not in self.block.lines:
            self.say(table)
        return f"{name}[e]"

    # Control

    def _loop(self, it: Loop) -> None:
        name = it.index.data[0]  # type: ignore[index]
        count = self.values.dim(it.count, self.block).text
        word = "UNROLL" if it.unrolled else "NO_UNROLL"
        with self.inside(f"{word} for (int {name} = 0; {name} < {count}; {name}++)", [it.index]):
            self.statements(it.body)

    def _if(self, it: If) -> None:
        if it.tile is not None:
            self.in_warps(it, it.tile)
            return
        condition = self.text(it.condition)
        with self.inside(f"if ({condition})", barrier=True):
            self.statements(it.body)

    def in_warps(self, it: If, tile: Tile) -> None:
        """Statements for the warps that hold an element for which a condition holds."""
        with self.inside("", barrier=True):
            self.say("bool holds = false;")
            self.values.register = lambda source: self.register(source, tile)
            with self.groups(tile, 1, it.condition):
                self.say(f"holds |= {self.text(it.condition)};")
            with self.inside("if (vote_any(holds))", barrier=True):
                self.statements(it.body)


FUNCTIONS = {"copies": "copy", "products": "wgmma"}
"""What the names of functions begin with that end groups, and wait for them."""


def _declared(tensor: Global) -> str:
    return f"{'' if tensor.written else 'const '}{memory_type(tensor.dtype)} *{tensor.name}"


def _is_packed(tile: Tile) -> bool:
    """True for a tile of which two elements share a register: an operand of 16 bits."""
    return tile.dtype in (F16, BF16)


def _register_type(tile: Tile) -> str:
    return "unsigned" if _is_packed(tile) else computed_type(tile.dtype)


def _register_count(tile: Tile) -> int:
    return tile.layout.registers // (2 if _is_packed(tile) else 1)
