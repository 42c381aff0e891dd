"""Row numbers below 0, which count from a table's end: `ggml_get_rows` knows none, so they are replaced before a run."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from graphc.targets.ggml.program.calls import VIEWS
from graphc.targets.ggml.program.program import Input, Program
from graphc.targets.ggml.program.tensor import Tensor


def counts_from_end(program: Program, declared: Input) -> bool:
    """True if an input is nothing but the row numbers of tables of one length, so that nobody sees what it was."""
    if declared.low != 0 or declared.high is None:
        return False
    same = {place_of(declared.tensor)}
    for call in program.calls:
        for position, arg in enumerate(call.args):
            if not isinstance(arg, Tensor) or place_of(arg) not in same:
                continue
            table = call.args[0]
            if call.function in VIEWS:
                same.add(place_of(call.result))
            elif call.function != "ggml_get_rows" or position != 1 or table.ne[1] != declared.high:  # type: ignore[union-attr]
                return False
    return not any(place_of(output.tensor) in same for output in program.outputs)


def place_of(tensor: Tensor) -> tuple[int, int]:
    """What makes a tensor: a call, or an input (a tensor may be seen with other sizes)."""
    return tensor.call, tensor.input


def from_start(program: Program, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The arrays, with row numbers counted from the start of their table; those of no row stay what they are."""
    found = dict(arrays)
    for declared in program.inputs:
        if declared.high is None:
            continue
        array = found[declared.name]
        if array.size and array.min() < 0 and counts_from_end(program, declared):
            found[declared.name] = np.where((array < 0) & (array >= -declared.high), array + declared.high, array)
    return found
