"""Schedules of contractions that GPUs may have, each with sizes that no tile fits: what the text computes in the emulator is what
the interpreter says, without conflicts of banks. A part of them is drawn for every run; `pytest -m thorough` has more."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest
from test_contraction import STEP, drawn, product
from tile_runs import empty, launch, steps_of

from graphc.ir.types import F16, F32
from graphc.kernels.gpu.candidates import candidates
from graphc.kernels.gpu.devices import GPUS
from graphc.kernels.gpu.emulate import compile_emulated
from graphc.kernels.gpu.interpret import interpret
from graphc.kernels.gpu.render.cuda import file_of, render

ROWS, COLUMNS, CHANNELS, BATCHES, PARTS = (1, 127, 129), (8, 136), (3, 4, 72), (1, 2), (1, 2, 3)
TOGETHER = 12
"""Kernels that are compiled at once."""


def every_schedule() -> list[tuple[str, np.dtype]]:
    """All schedules of all GPUs of which there is a data sheet, with sums in so many parts."""
    found = {
        (str(each).replace(" z1 ", f" z{parts} "), dtype)
        for gpu, dtype, parts in itertools.product(GPUS.values(), (F16, F32), PARTS)
        for each in candidates(dtype, gpu)
    }
    return sorted(found, key=str)


def channels_of(arrays: list[np.ndarray]) -> int:
    """The length of sums: where it is odd, rows are copied in pieces of fewer than 16 bytes, which may meet in banks."""
    return arrays[0].shape[2]


def agree(seed: int, count: int) -> None:
    """Some schedules, drawn by a seed, each with sizes that are drawn too."""
    draw = random.Random(seed)
    every = draw.sample(every_schedule(), count)
    for first in range(0, count, TOGETHER):
        cases = []
        for number, (schedule, dtype) in enumerate(every[first : first + TOGETHER]):
            rows, columns, channels, batch = map(draw.choice, (ROWS, COLUMNS, CHANNELS, BATCHES))
            shapes = ((batch, rows, channels), (batch, columns, channels))
            arrays = [*(drawn(shape, dtype, place) for place, shape in enumerate(shapes)), drawn((columns,), F32, 2)]
            arrays += [drawn((batch, rows, columns), dtype, 3), np.zeros((batch, rows, columns), dtype)]
            ((kernel, arrays),) = steps_of(
                product(columns, channels, dtype, batch), schedule, arrays, symbols := {"m": rows}
            )
            cases.append((schedule, render(kernel).named(f"kernel_{number}"), kernel, arrays, symbols))
        library = compile_emulated(file_of([rendered for _, rendered, *_ in cases]))
        for schedule, rendered, kernel, arrays, symbols in cases:
            empty([(kernel, arrays)])
            interpret(kernel, arrays, symbols)
            expected = arrays[-1].astype(np.float64)
            empty([(kernel, arrays)])
            counters = launch(library, rendered, arrays, symbols, seed)
            error = np.abs(arrays[-1].astype(np.float64) - expected).max() / np.abs(expected).max()
            assert error < STEP[arrays[-1].dtype], (schedule, symbols)
            assert counters.conflicts == 0 or channels_of(arrays) % 8, (schedule, symbols)


@pytest.mark.usefixtures("every_instruction")
def test_some_schedules_agree() -> None:
    assert len(every_schedule()) >= 200
    agree(0, 24)


@pytest.mark.thorough
@pytest.mark.usefixtures("every_instruction")
@pytest.mark.parametrize("seed", range(1, 11))
def test_schedules_agree(seed: int) -> None:
    agree(seed, 24)
