"""What the host does between two graphs of a backend: it reads a size, takes a branch, or repeats a block."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Protocol

import numpy as np

from graphc.ops.control import iterate, measured, partly_bound, settle
from graphc.targets.ggml.program.program import Host, Program


class Blocks(Protocol):
    """Runs the programs inside a call of the host."""

    def block(self, block: Program, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """What a program gives."""
        ...

    def repeated(self, block: Program, args: Sequence[np.ndarray], carried: int) -> list[np.ndarray] | None:
        """What a loop gives that makes a step, if there is a quicker way than step by step."""
        ...


def perform(host: Host, args: Sequence[np.ndarray], run: Blocks, binding: dict[str, int]) -> list[np.ndarray]:
    """The results; sizes that are known with them are added to `binding`. Raises InputError for what does not fit."""
    results = WAYS[host.operator](host, args, run, binding)
    for type, array in zip(host.results, results, strict=True):
        settle(binding, type.shape, array, f"a result of {host.operator}")
    return results


def _measure(host: Host, args: Sequence[np.ndarray], run: Blocks, binding: dict[str, int]) -> list[np.ndarray]:
    measured(host.size, host.what, int(args[0].item()), binding)
    return []


def _if(host: Host, args: Sequence[np.ndarray], run: Blocks, binding: dict[str, int]) -> list[np.ndarray]:
    return run.block(host.blocks[0 if args[0].item() else 1], args[1:])


def _loop(host: Host, args: Sequence[np.ndarray], run: Blocks, binding: dict[str, int]) -> list[np.ndarray]:
    (block,) = host.blocks
    if args[1].item() and args[0].item() > 0 and (found := run.repeated(block, args, host.carried)) is not None:
        return found
    return iterate(partial(run.block, block), args, host.carried, partly_bound(host.results, binding))


WAYS: Mapping[str, Callable[[Host, Sequence[np.ndarray], Blocks, dict[str, int]], list[np.ndarray]]] = {
    "Measure": _measure,
    "If": _if,
    "Loop": _loop,
}
"""How each operator of `ops/control.py` is done."""
