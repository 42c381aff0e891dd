"""Kernels that are made wrong, in many ways and places drawn by a seed, and whether that is found: by the verifier, by the
interpreter, whose numbers must be those of the right kernel, or by the emulator, whose numbers and counters must be.

`python tests/gpu/test_seeded_faults.py` tells of every fault how it was found.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from faults import TILE_OPERATORS, in_text
from test_contraction import M, drawn, product
from test_weights_in_blocks import multiplied
from tile_runs import empty, launch, steps_of

from graphc.errors import BuildError, GraphcError
from graphc.ir.types import F16, F32
from graphc.kernels.gpu.emulate import Counters, Emulated, compile_emulated
from graphc.kernels.gpu.interpret import interpret
from graphc.kernels.gpu.render.cuda import Rendered, file_of, render
from graphc.kernels.gpu.skeletons.attention import Attention, attention
from graphc.kernels.gpu.skeletons.contraction import Contraction
from graphc.kernels.gpu.skeletons.operands import Window, images, kernels, matrix
from graphc.kernels.gpu.skeletons.reduction import Stage, reduction
from graphc.kernels.gpu.tile import TileKernel
from graphc.kernels.gpu.verify import verify, verify_order
from graphc.kernels.scalar import Scalar, make
from graphc.shapes import symbol

SEED = 1
EACH = 1
"""Places of each operator in each kernel."""
TOGETHER = 40
"""Texts that are compiled at once."""

NOTHING_CHANGES = {
    r"blocks: .* Map b_buffer_next where": "what is beyond the ends is multiplied by 0, or is no part of the result",
    r"blocks: no condition: .* Map b_buffer_next": "the same",
    r"convolution: .*: 1\.0 Copy a_buffer a where .* (9|13|0), now": "the first piece does not reach the image's end",
    r"convolution: .*: 1\.0 Copy a_buffer a offset .* % 3, now": "the first piece is of the first tap",
    r"together: .*: 1\.1 Copy b_buffer b where": "the first piece does not reach the end",
    r"float16: a condition is missing: 1\.0 Copy a_buffer a where": "the first pieces do not reach the end",
    r"float32: a bound that is one off: 1\.[01] Copy .* column < 104": "the first piece does not reach the end",
    r"float32: .*: 5\.4 Load residual_here residual offset": "a tile is one strip, and a row the sum of its parts",
    r"attention: to the first bound: 12": "no tile's fourth quarter has the last key",
    r"rows of \d+: a statement is missing: \d Map total_\d": "what becomes of a total is the total",
    r"rows of \d+: a loop runs once more or less: .* \+1": "a step beyond the end adds nothing",
    r"rows of 5000: .* Store result total_\d( where .* block_|$)": "there is a block for each row",
    r"rows of 5000: a bound that is one off: .* Load .* where .* block_x": "there is a block for each row",
    r"rows of \d+: blocks are exchanged: .* where .* block_x": "there is a block for each row",
    r"parts: a fence of each thread": "a barrier stands before it too",
    r"parts: (no wait: 1|two statements are exchanged: 5 Wait)": "the last copies, of nothing, go where no sums lie",
    r"attention: a bound that is one off: .* column < 24, now column <= 24": "a tile has 24 columns",
    r"attention: sums do not begin with 0: .* Map (sum|total)": "what was before the first tile is multiplied by 0",
    r"attention: no condition: \d Copy k_buffer": "the first tile has all its keys",
    r"attention: (no wait: [1-9]|two statements are exchanged: 8 Wait)": "nothing touches shared memory behind the last copies",
}
"""What is no fault, because the kernel does the same: patterns of names, and why."""

UNFOUND: dict[str, str] = {}
"""Faults that are not found: patterns of names, and why."""


@dataclass(frozen=True)
class Subject:
    """A kernel that is right, and what it is tried with."""

    name: str
    kernel: TileKernel
    arrays: Sequence[np.ndarray]
    symbols: dict[str, int]


def subjects() -> Iterator[Subject]:
    """A kernel of each kind, with sizes that no tile fits."""
    yield multiply("float16", "m64n32k32 w32x16 s3 z1 m16n8k16_half", F16, 70, 40, 72)
    yield multiply("float32", "m32n32k32 w16x32 s2 z1 fma_4x4", F32, 37, 36, 104)
    yield multiply("parts", "m64n32k32 w32x16 s2 z3 m16n8k16_half", F16, 70, 40, 200)
    steps, _ = multiplied("Q8_0", "m64n32k32 w32x16 s2 z1 m16n8k16_half", 70, 33, 128)
    yield Subject("blocks", *steps[0], {"m": 70})
    yield Subject("convolution", *convolution())
    yield Subject("attention", *attended())
    for columns, rows in ((300, 9), (5000, 2)):
        x = drawn((rows, columns), F32, 0) - 5  # below the zeros that stand for what there is not

        def value(row: Scalar, column: Scalar, *before: Scalar, width: int = columns) -> Scalar:
            found = make("element", F32, (row * width + column,), 0)
            return found - before[0] if before else found

        kernel = reduction(
            f"rows_{columns}", rows, columns, [(F32, rows * columns)], [Stage("max", value), Stage("sum", value)]
        )
        yield Subject(f"rows of {columns}", kernel, [x, np.zeros((2, rows), F32)], {})
    yield multiply("together", "m128n32k64 w16x32 s3 z1 wgmma_half", F16, 140, 40, 200)


def multiply(name: str, schedule: str, dtype: np.dtype, rows: int, columns: int, channels: int) -> Subject:
    """A product."""
    arrays = [drawn(shape, dtype, seed) for seed, shape in enumerate(((1, rows, channels), (1, columns, channels)))]
    arrays += [drawn((columns,), F32, 2), drawn((1, rows, columns), dtype, 3), np.zeros((1, rows, columns), dtype)]
    ((kernel, arrays),) = steps_of(product(columns, channels, dtype), schedule, arrays, {"m": rows})
    return Subject(name, kernel, arrays, {"m": rows})


def convolution() -> tuple[TileKernel, list[np.ndarray], dict[str, int]]:
    """3 x 3, with a stride of 2 and zeros around."""
    n, high, wide = symbol("n"), 5, 7
    windows = Window(9, 3, high, 2, 1), Window(13, 3, wide, 2, 1)
    what = Contraction(
        "convolution", n * high * wide, 36, 24, images(F16, n, *windows, 24), kernels(F16, 36, 9, 24), F32, n * high * wide * 36,
        lambda batch, row, column: row * 36 + column, taps=9,
    )  # fmt: skip
    arrays = [drawn((2, 9, 13, 24), F16, 0), drawn((36, 3, 3, 24), F16, 1), np.zeros((2, high, wide, 36), F32)]
    ((kernel, arrays),) = steps_of(what, "m64n32k16 w32x16 s2 z1 m16n8k16_half", arrays, {"n": 2})
    return kernel, arrays, {"n": 2}


def attended() -> tuple[TileKernel, list[np.ndarray], dict[str, int]]:
    """Attention with a mask."""
    n = symbol("n")
    what = Attention(
        "attention", 2, M, n, 16, 24, 0.3, matrix(F16, M, 16, 2), matrix(F16, n, 16, 2), matrix(F16, n, 24, 2), 2 * M * 24, F32,
        lambda number, row, column: (number * M + row) * 24 + column, ((F32, M * n),),
        lambda number, row, key: make("element", F32, (row * n + key,), 3),
    )  # fmt: skip
    arrays = [drawn(shape, F16, seed) for seed, shape in enumerate(((2, 140, 16), (2, 70, 16), (2, 70, 24)))]
    return attention(what), [*arrays, drawn((140, 70), F32, 3), np.zeros((2, 140, 24), F32)], {"m": 140, "n": 70}


def wrong_kernels(subject: Subject, draw: random.Random) -> Iterator[tuple[str, TileKernel]]:
    """Some faults of the program of tiles."""
    for name, operator in TILE_OPERATORS.items():
        every = list(operator(subject.kernel))
        for place, kernel in draw.sample(every, min(len(every), EACH)):
            yield f"{subject.name}: {name}: {place}", kernel


def wrong_texts(subject: Subject, rendered: Rendered, draw: random.Random) -> Iterator[tuple[str, Rendered]]:
    """Some faults of the text."""
    every: dict[str, list[tuple[str, str]]] = {}
    for name, place, text in in_text(rendered.text):
        every.setdefault(name, []).append((place, text))
    for name, found in every.items():
        for place, text in draw.sample(found, min(len(found), EACH)):
            yield f"{subject.name}: {name}: {place}", replace(rendered, text=text)


def emptied(subject: Subject) -> list[np.ndarray]:
    """The arrays, of which those that are written have nothing of it."""
    arrays = [array.copy() for array in subject.arrays]
    empty([(subject.kernel, arrays)])
    return arrays


def written(subject: Subject, arrays: Sequence[np.ndarray]) -> bytes:
    """The bits of what the kernel writes."""
    return b"".join(arrays[each.number].tobytes() for each in subject.kernel.tensors if each.written)


def interpreted(kernel: TileKernel, subject: Subject) -> bytes:
    """What the interpreter makes of a kernel."""
    arrays = emptied(subject)
    interpret(kernel, arrays, subject.symbols)
    return written(subject, arrays)


def emulated(library: Emulated, rendered: Rendered, subject: Subject, seed: int) -> tuple[bytes, Counters]:
    """What the emulator makes of a text."""
    arrays = emptied(subject)
    counters = launch(library, rendered, arrays, subject.symbols, seed)
    return written(subject, arrays), counters


def without_running(wrong: TileKernel, subject: Subject, expected: bytes) -> str:
    """How a fault is found that is one of the program of tiles; empty if it is not."""
    try:
        verify(wrong)
        verify_order(wrong, subject.symbols)
    except (GraphcError, ValueError, ZeroDivisionError):
        return "verifier"
    try:
        return "" if interpreted(wrong, subject) == expected else "interpreter's numbers"
    except (GraphcError, ValueError, TypeError, ZeroDivisionError):
        return "interpreter"


def by_running(library: Emulated, wrong: Rendered, subject: Subject, right: Any) -> str:
    """How a fault is found by the emulator; empty if it is not."""
    expected, usual = right
    for seed in range(2):
        try:
            found, counters = emulated(library, wrong, subject, seed)
        except GraphcError:
            return "emulator"
        if found != expected:
            return "emulator's numbers"
        if counters != usual:
            return "emulator's counters"
    return ""


def all_found() -> dict[str, str]:
    """How each fault is found."""
    draw, found, left = random.Random(SEED), {}, []
    for subject in subjects():
        rendered = render(subject.kernel)
        right = emulated(compile_emulated(file_of([rendered])), rendered, subject, 0)
        expected = interpreted(subject.kernel, subject)
        for name, kernel in wrong_kernels(subject, draw):
            found[name] = without_running(kernel, subject, expected)
            if not found[name]:
                try:
                    left.append((name, render(kernel), subject, right))
                except (GraphcError, ValueError, AssertionError):
                    found[name] = "renderer"
        left += [(name, wrong, subject, right) for name, wrong in wrong_texts(subject, rendered, draw)]
    for first in range(0, len(left), TOGETHER):
        part = [
            (name, wrong.named(f"wrong_{first + place}"), subject, right)
            for place, (name, wrong, subject, right) in enumerate(left[first : first + TOGETHER])
        ]
        try:
            library: Emulated | None = compile_emulated(file_of([wrong for _, wrong, *_ in part]))
        except BuildError:
            library = None
        for name, wrong, subject, right in part:
            try:
                own = library or compile_emulated(file_of([wrong]))
            except BuildError:
                found[name] = "compiler"
                continue
            found[name] = by_running(own, wrong, subject, right)
    return found


def fits(name: str, patterns: Iterable[str]) -> bool:
    """True if one of the patterns is of a fault."""
    return any(re.match(each, name) for each in patterns)


def test_right_kernels_are_not_accused() -> None:
    for subject in subjects():
        assert without_running(subject.kernel, subject, interpreted(subject.kernel, subject)) == ""
        rendered = render(subject.kernel)
        library = compile_emulated(file_of([rendered]))
        assert by_running(library, rendered, subject, emulated(library, rendered, subject, 7)) == ""


def test_faults_are_found() -> None:
    found = all_found()
    missed = {name for name, means in found.items() if not means and not fits(name, NOTHING_CHANGES)}
    faults = len([name for name, means in found.items() if means or name in missed])
    assert faults >= 100
    assert not [name for name in missed if not fits(name, UNFOUND)]
    assert len(missed) <= 0.02 * faults
    assert {"verifier", "interpreter", "interpreter's numbers", "emulator", "emulator's numbers"} <= set(found.values())


if __name__ == "__main__":
    every = all_found()
    for name, means in every.items():
        print(f"{means or ('nothing changes' if fits(name, NOTHING_CHANGES) else 'NOT FOUND'):22} {name}")
    print(len(every), Counter(every.values()))
