"""What the host does between two graphs of a backend: it reads a size, takes a branch, or repeats a block."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeAlias

import numpy as np

from graphc.ops.control import iterate, measured, partly_bound, settle
from graphc.targets.ggml.program.program import Host, Program

RunBlock: TypeAlias = Callable[[Program, Sequence[np.ndarray]], list[np.ndarray]]


def perform(host: Host, args: Sequence[np.ndarray], run: RunBlock, binding: dict[str, int]) -> list[np.ndarray]:
    """The results; sizes that are known with them are added to `binding`. Raises InputError for what does not fit."""
    results = WAYS[host.operator](host, args, run, binding)
    for type, array in zip(host.results, results, strict=True):
        settle(binding, type.shape, array, f"a result of {host.operator}")
    return results


def _measure(host: Host, args: Sequence[np.ndarray], run: RunBlock, binding: dict[str, int]) -> list[np.ndarray]:
    measured(host.size, host.what, int(args[0].item()), binding)
    return []


def _if(host: Host, args: Sequence[np.ndarray], run: RunBlock, binding: dict[str, int]) -> list[np.ndarray]:
    return run(host.blocks[0 if args[0].item() else 1], args[1:])


def _loop(host: Host, args: Sequence[np.ndarray], run: RunBlock, binding: dict[str, int]) -> list[np.ndarray]:
    return iterate(partial(run, host.blocks[0]), args, host.carried, partly_bound(host.results, binding))


WAYS: Mapping[str, Callable[[Host, Sequence[np.ndarray], RunBlock, dict[str, int]], list[np.ndarray]]] = {
    "Measure": _measure,
    "If": _if,
    "Loop": _loop,
}
"""How each operator of `ops/control.py` is done."""
