"""Runs tile kernels for tests: by the interpreter, and their text in the emulator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from graphc.kernels.gpu.emulate import Counters, Emulated, compile_emulated
from graphc.kernels.gpu.interpret import interpret
from graphc.kernels.gpu.launch import arguments, grid
from graphc.kernels.gpu.render.cuda import Rendered, file_of, render
from graphc.kernels.gpu.schedule import parsed
from graphc.kernels.gpu.skeletons.contraction import Contraction, contraction
from graphc.kernels.gpu.tile import U32, TileKernel
from graphc.kernels.gpu.verify import verify, verify_order
from graphc.shapes import integer

Steps = list[tuple[TileKernel, list[np.ndarray]]]


def launch(
    emulated: Emulated, rendered: Rendered, arrays: Sequence[np.ndarray], symbols: Mapping[str, int], seed: int = 0
) -> Counters:
    """Run a kernel's text; a fault that it reports is an assertion's."""
    fault = np.zeros(1, np.int32)
    given = arguments(rendered, list(arrays), symbols, fault)
    kernel = rendered.kernel
    counters = emulated.launch(kernel.name, grid(rendered, symbols), kernel.shared_bytes, given, seed=seed)
    assert not fault[0], rendered.faults[fault[0] - 1]
    return counters


def steps_of(
    what: Contraction, schedule: str, arrays: Sequence[np.ndarray], symbols: Mapping[str, int], others: Sequence[Contraction] = ()
) -> Steps:  # fmt: skip
    """The kernel of a contraction, and of others with it, with its arrays: what it writes before the result has one too."""
    kernel = contraction(what, parsed(schedule), others)
    own = [np.zeros(integer(each.size, symbols), each.dtype) for each in kernel.tensors if each.written][:-1]
    return [(kernel, [*arrays[:-1], *own, arrays[-1]])]


def empty(steps: Steps) -> None:
    """What kernels write has nothing of it, and counters are 0."""
    for kernel, arrays in steps:
        for tensor, array in zip(kernel.tensors, arrays, strict=True):
            if tensor.written:
                array.reshape(-1).view(np.uint8)[:] = 0 if tensor.dtype == U32 else 0xFF


def both_ways(steps: Steps, symbols: Mapping[str, int], seed: int = 0) -> tuple[np.ndarray, np.ndarray, list[Counters]]:
    """What the interpreter and the emulator write to the last array of the last step, and what the latter counted."""
    result = steps[-1][1][-1]
    empty(steps)
    for kernel, arrays in steps:
        verify(kernel)
        verify_order(kernel, symbols)
        interpret(kernel, arrays, symbols)
    interpreted = result.copy()
    empty(steps)
    rendered = [render(kernel) for kernel, _ in steps]
    emulated = compile_emulated(file_of(rendered))
    counters = [
        launch(emulated, each, arrays, symbols, seed) for each, (_, arrays) in zip(rendered, steps, strict=True)
    ]
    return interpreted, result.copy(), counters
