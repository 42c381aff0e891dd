"""Faults that are put into kernels that are right: into the program of tiles, by what it says, and into its text, by what stands
there. Each operator gives all places where it can be applied."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace

from graphc.kernels.gpu.tile import (
    Barrier,
    Commit,
    Copy,
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
    Statement,
    Store,
    TileKernel,
    Wait,
)
from graphc.kernels.nest import walk
from graphc.kernels.scalar import Scalar, constant, make

Path = tuple[int, ...]
Wrong = Iterator[tuple[str, TileKernel]]
TILE_OPERATORS: dict[str, Callable[[TileKernel], Wrong]] = {}
"""What gives kernels with one fault each, and says where it is."""


def operator(name: str) -> Callable[[Callable[[TileKernel], Wrong]], Callable[[TileKernel], Wrong]]:
    """Register an operator."""

    def register(body: Callable[[TileKernel], Wrong]) -> Callable[[TileKernel], Wrong]:
        TILE_OPERATORS[name] = body
        return body

    return register


def places(body: Sequence[Statement], path: Path = ()) -> Iterator[tuple[Path, Statement]]:
    """Every statement, and where it stands."""
    for number, statement in enumerate(body):
        yield (*path, number), statement
        if isinstance(statement, Loop | If | Last):
            yield from places(statement.body, (*path, number))


def changed(kernel: TileKernel, path: Path, *instead: Statement, behind: int = 0) -> TileKernel:
    """The kernel with other statements in the place of one, and of so many behind it."""

    def inner(body: tuple[Statement, ...], rest: Path) -> tuple[Statement, ...]:
        number = rest[0]
        if len(rest) == 1:
            return (*body[:number], *instead, *body[number + 1 + behind :])
        it = body[number]
        assert isinstance(it, Loop | If | Last)
        return (*body[:number], replace(it, body=inner(it.body, rest[1:])), *body[number + 1 :])

    return replace(kernel, body=inner(kernel.body, path))


def where(path: Path, it: Statement) -> str:
    """What a place is called."""
    names = [getattr(getattr(it, each.name), "name", "") for each in fields(it)]
    return f"{'.'.join(map(str, path))} {type(it).__name__} {' '.join(filter(None, names))}".strip()


def each(*kinds: type) -> Callable[[TileKernel], Iterator[tuple[Path, Statement]]]:
    """The statements of some kinds."""
    return lambda kernel: ((path, it) for path, it in places(kernel.body) if isinstance(it, kinds))


@operator("a statement is missing")
def _missing(kernel: TileKernel) -> Wrong:
    for path, it in each(Barrier, Wait, Commit, Copy, Put, Get, Map, Multiply, MultiplyShared, Store, Load, Reduce)(
        kernel
    ):
        yield where(path, it), changed(kernel, path)


@operator("two statements are exchanged")
def _exchanged(kernel: TileKernel) -> Wrong:
    every = dict(places(kernel.body))
    for path, it in every.items():
        behind = every.get((*path[:-1], path[-1] + 1))
        ordered = isinstance(it, Barrier | Wait | Put) or (isinstance(it, Copy) and isinstance(behind, Commit))
        if behind is not None and ordered and type(it) is not type(behind):
            yield where(path, it), changed(kernel, path, behind, it, behind=1)


@operator("waits for a group too few")
def _waits(kernel: TileKernel) -> Wrong:
    for path, it in each(Wait)(kernel):
        assert isinstance(it, Wait)
        yield where(path, it), changed(kernel, path, replace(it, pending=it.pending + 1))


@operator("another stage")
def _stage(kernel: TileKernel) -> Wrong:
    for path, it in each(Copy, Get, Put, MultiplyShared)(kernel):
        assert isinstance(it, Copy | Get | Put | MultiplyShared)
        array = it.source if isinstance(it, Get) else it.b if isinstance(it, MultiplyShared) else it.target
        if array.stages > 1:
            name = "b_stage" if isinstance(it, MultiplyShared) else "stage"
            other = (getattr(it, name) + 1) % array.stages
            yield where(path, it), changed(kernel, path, replace(it, **{name: other}))  # type: ignore[arg-type]


@operator("another place in shared memory")
def _place(kernel: TileKernel) -> Wrong:
    for path, it in each(Get)(kernel):
        assert isinstance(it, Get)
        for name, value in (("row", it.row), ("column", it.column)):
            if value:
                yield f"{where(path, it)} {name}", changed(kernel, path, replace(it, **{name: 0}))
        yield f"{where(path, it)} transposed", changed(kernel, path, replace(it, transposed=not it.transposed))


@operator("arrays lie in one place")
def _overlap(kernel: TileKernel) -> Wrong:
    for before, it in itertools.pairwise(kernel.shared):
        if it.offset >= before.offset + before.nbytes:
            yield it.name, replaced_object(kernel, it, replace(it, offset=before.offset))


def replaced_object(kernel: TileKernel, old: object, new: object) -> TileKernel:
    """The kernel with another array or tile in the place of one."""

    def inner(body: Sequence[Statement]) -> tuple[Statement, ...]:
        found = []
        for it in body:
            others = {each.name: new for each in fields(it) if getattr(it, each.name) is old}
            if isinstance(it, Loop | If | Last):
                others["body"] = inner(it.body)
            found.append(replace(it, **others) if others else it)  # type: ignore[arg-type]
        return tuple(found)

    shared = tuple(new if each is old else each for each in kernel.shared)
    return replace(kernel, shared=shared, body=inner(kernel.body))  # type: ignore[arg-type]


@operator("operands are exchanged")
def _operands(kernel: TileKernel) -> Wrong:
    for path, it in each(Multiply, MultiplyShared)(kernel):
        assert isinstance(it, Multiply | MultiplyShared)
        yield where(path, it), changed(kernel, path, replace(it, a=it.b, b=it.a))


@operator("another tile")
def _tile(kernel: TileKernel) -> Wrong:
    for path, it in each(Get, Store, Load, Multiply, MultiplyShared, Reduce)(kernel):
        for name in ("tile", "source", "a", "b", "total"):
            own = getattr(it, name, None)
            for other in kernel.tiles:
                if own in kernel.tiles and other is not own and other.layout == own.layout and other.dtype == own.dtype:  # type: ignore[union-attr]
                    yield f"{where(path, it)}: {other.name}", changed(kernel, path, replace(it, **{name: other}))  # type: ignore[arg-type]


@operator("another reduction")
def _reduction(kernel: TileKernel) -> Wrong:
    for path, it in each(Reduce)(kernel):
        assert isinstance(it, Reduce)
        for kind in {"sum", "max", "min"} - {it.kind}:
            yield f"{where(path, it)} {kind}", changed(kernel, path, replace(it, kind=kind))
        yield f"{where(path, it)} axis", changed(kernel, path, replace(it, axis=1 - it.axis))
        if it.scratch is not None:
            yield f"{where(path, it)} scratch", changed(kernel, path, replace(it, scratch=None))


@operator("a loop runs once more or less")
def _loop(kernel: TileKernel) -> Wrong:
    for path, it in each(Loop)(kernel):
        assert isinstance(it, Loop)
        for step in (-1,) if it.unrolled else (-1, 1):
            index = make("variable", it.index.dtype, (), (it.index.data[0], it.count + step))  # type: ignore[index]
            if not any(isinstance(inner, Loop | If | Last) for inner in it.body):
                body = tuple(with_index(inner, it.index, index) for inner in it.body)
                yield f"{where(path, it)} {step:+}", changed(kernel, path, Loop(index, body, it.unrolled))


def with_index(it: Statement, old: Scalar, new: Scalar) -> Statement:
    """A statement where a loop has another index."""
    found = {}
    for each in fields(it):
        value = getattr(it, each.name)
        if isinstance(value, Scalar):
            found[each.name] = replaced(value, old, new)
        if isinstance(value, Part):
            found[each.name] = replace(value, index=replaced(value.index, old, new))
    return replace(it, **found)  # type: ignore[arg-type]


@operator("another number of blocks that come")
def _count(kernel: TileKernel) -> Wrong:
    for path, it in each(Last)(kernel):
        assert isinstance(it, Last)
        for count in (it.count - 1, it.count + 1):
            yield f"{where(path, it)} {count}", changed(kernel, path, replace(it, count=count))
        yield f"{where(path, it)}: all do it", changed(kernel, path, *it.body)


@operator("fewer blocks")
def _grid(kernel: TileKernel) -> Wrong:
    for axis in range(3):
        if kernel.grid[axis] != 1:
            x, y, z = (count - (number == axis) for number, count in enumerate(kernel.grid))
            yield "xyz"[axis], replace(kernel, grid=(x, y, z))


@operator("as a wider vector")
def _vector(kernel: TileKernel) -> Wrong:
    for path, it in each(Load, Store, Copy, Map)(kernel):
        assert isinstance(it, Load | Store | Copy | Map)
        memory = it.tile if isinstance(it, Map) else it.target if isinstance(it, Store) else it.source
        alone = isinstance(it, Map) and it.value.kind == "constant"
        if not alone and it.vector * memory.dtype.itemsize < 16:  # more is never read or written at once
            yield where(path, it), changed(kernel, path, replace(it, vector=2 * it.vector))


def replaced(value: Scalar, old: Scalar, new: Scalar) -> Scalar:
    """A value with another node in the place of one."""
    if value is old:
        return new
    args = tuple(replaced(each, old, new) for each in value.args)
    return value if args == value.args else make(value.kind, value.dtype, args, value.data)


def short(value: Scalar) -> str:
    """A value in a few words."""
    names = ["…" if each.args else str(each) for each in value.args]
    if value.kind == "operate" and len(names) == 2:
        return f"{names[0]} {value.data} {names[1]}"
    return value.kind if names else str(value)


def in_values(name: str, change: Callable[[Scalar], list[Scalar]], only: Sequence[str]) -> None:
    """Register an operator that changes a node of the values that some fields of statements have."""

    @operator(name)
    def found(kernel: TileKernel) -> Wrong:
        for path, it in places(kernel.body):
            for field in only:
                value = getattr(it, field, None)
                if not isinstance(value, Scalar):
                    continue
                for number, node in enumerate(walk(value)):
                    for other in change(node):
                        wrong = changed(kernel, path, replace(it, **{field: replaced(value, node, other)}))  # type: ignore[arg-type]
                        yield f"{where(path, it)} {field} {number}: {short(node)}, now {short(other)}", wrong


def _of(kind: str, others: dict[str, str]) -> Callable[[Scalar], list[Scalar]]:
    def change(node: Scalar) -> list[Scalar]:
        if node.kind != "operate" or node.data not in others or (kind == "f") != (node.args[0].dtype.kind == "f"):
            return []
        return [make("operate", node.dtype, node.args, others[str(node.data)])]

    return change


def _one_more(node: Scalar) -> list[Scalar]:
    is_index = node.kind == "constant" and node.dtype.kind == "i"
    return [constant(node.value + 1, node.dtype)] if is_index else []


def _half(node: Scalar) -> list[Scalar]:
    """One side of what must both hold, or of what is added."""
    return list(node.args) if node.kind == "operate" and node.data in ("and", "+") else []


def _crossed(node: Scalar) -> list[Scalar]:
    names = {"block_x": "block_y", "block_y": "block_x"}
    if node.kind != "variable" or node.data[0] not in names:  # type: ignore[index]
        return []
    return [make("variable", node.dtype, (), (names[node.data[0]], node.data[1]))]  # type: ignore[index]


in_values("a bound that is one off", _of("i", {"<": "<=", ">=": ">", "<=": "<", ">": ">="}), ("where",))
in_values("a condition is missing", _half, ("where",))
in_values("a term is missing", _half, ("offset",))
in_values("a number is one off", _one_more, ("offset",))
in_values("a wrong operator of indices", _of("i", {"//": "%", "%": "//", "*": "+", "+": "-"}), ("offset",))
in_values("blocks are exchanged", _crossed, ("offset", "where"))
in_values(
    "a wrong operator", _of("f", {"+": "-", "-": "+", "*": "+", "max": "min", "min": "max", "/": "*"}), ("value",)
)


@operator("no condition")
def _always(kernel: TileKernel) -> Wrong:
    for path, it in places(kernel.body):
        if getattr(it, "where", None) is not None:
            yield where(path, it), changed(kernel, path, replace(it, where=None))  # type: ignore[arg-type]


@operator("sums do not begin with 0")
def _begin(kernel: TileKernel) -> Wrong:
    for path, it in each(Map)(kernel):
        assert isinstance(it, Map)
        if it.value.kind == "constant":
            yield where(path, it), changed(kernel, path, replace(it, value=constant(9.0, it.value.dtype)))


@dataclass(frozen=True)
class Edit:
    """A fault of a text: what stands in the place of what a pattern finds."""

    pattern: str
    instead: str


TEXT_OPERATORS = {
    "no barrier": Edit(r"\bbarrier\(\);", ""),
    "no wait": Edit(r"copy_wait<\d+>\(\);", ""),
    "no commit": Edit(r"copy_commit\(\);", ""),
    "products are not waited for": Edit(r"wgmma_wait<\d+>\(\);", ""),
    "products without an end": Edit(r"wgmma_commit\(\);", ""),
    "what was written is not shown": Edit(r"wgmma_publish\(\);", ""),
    "it is shown too late": Edit(r"wgmma_publish\(\);(\s*barrier\(\);)", r"\1 wgmma_publish();"),
    "rows of other warps": Edit(r"warp / 4 \* 64", "warp % 2 * 64"),
    "the same piece of an operand": Edit(r"([ab]) \+ k \* 2", r"\1"),
    "a piece too far": Edit(r"([ab]) \+ k \* 2", r"\1 + k * 4"),
    "no swizzle on one side": Edit(r"\((column / \d+) \^ [^;]*?\)\) \* 16", r"(\1) * 16"),
    "another swizzle on one side": Edit(r"\(row >> 1 & 3\)", "(row & 3)"),
    "lanes of other matrices": Edit(r"lane >> 3\b", "lane >> 2"),
    "lanes in another order": Edit(r"lane >> 2 & 7", "lane >> 3 & 3"),
    "lanes of a row": Edit(r"lane % 8\b", "lane % 4"),
    "columns of lanes": Edit(r"\(lane & 3\) \* 2", "(lane & 1) * 2"),
    "warps below each other": Edit(r"warp / 2 % 2", "warp % 2"),
    "one warp for all": Edit(r"warp % (\d+)", r"0 % \1"),
    "the first registers alone": Edit(r" \+ j \* 2\)", ")"),
    "the first of neighbours": Edit(r"\[e \+ v\]", "[e]"),
    "half a register's place": Edit(r"e >> 1 & 1", "e & 1"),
    "pitch of a row": Edit(r"row \* 64\b", "row * 32"),
    "another stage": Edit(r"step % 3", "step % 2"),
    "stages too close": Edit(r"\) \* (2048|4096) \+", r") * 1024 +"),
    "other lanes": Edit(r"shuffle_xor\((\w+\[e\]), (\d)\)", r"shuffle_xor(\1, \2 * 2)"),
    "one product": Edit(r"fmaf\((.+?), (.+?), sum\)", r"fmaf(\1, \1, sum)"),
    "from two threads": Edit(r"= thread / (\d+) \+ i", r"= thread / 2 / \1 + i"),
    "to the first bound": Edit(r"< (m|n)\b", r"<= \1"),
    "no bound": Edit(r"if \((\w+ < \w+)[^)]*\) store", "store"),
    "the sign of an offset": Edit(r"(result|x\d|a|b) \+ ", r"\1 - "),
    "half a copy": Edit(r"copy_async_16\(", "copy_async_8("),
    "no first fence": Edit(r"device_fence\(\);(?=\s*const unsigned)", ""),
    "no second fence": Edit(r"device_fence\(\);(?=\s*if)", ""),
    "a fence of each thread": Edit(
        r"barrier\(\);(\s*if \(thread == 0\) \{)\s*device_fence\(\);", r"device_fence(); barrier();\1"
    ),
    "from a cache that is not told": Edit(r"load_global_16\(", "load_readonly_16("),
    "counters are not set back": Edit(r"if \(before == \d+\) store_global\(.*?, 0u\);", ""),
    "counters are set back by all": Edit(r"if \(before == \d+\) (?=store_global)", ""),
    "another counter": Edit(r"atomic_add_global\((.*?), 1u\)", r"atomic_add_global(\1 / 2, 1u)"),
    "counted twice": Edit(r", 1u\)", ", 2u)"),
    "each thread comes": Edit(r"if \(thread == 0\)", "if (thread % 32 == 0)"),
    "a narrow write": Edit(r"store_global_16\(", "store_global_8("),
}
"""By what they are called."""


def in_text(text: str) -> Iterator[tuple[str, str, str]]:
    """Every fault of a text: the operator, which of its places, and the text that has it."""
    for name, edit in TEXT_OPERATORS.items():
        for number, found in enumerate(re.finditer(edit.pattern, text)):
            yield name, str(number), text[: found.start()] + found.expand(edit.instead) + text[found.end() :]
