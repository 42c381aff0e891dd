"""Looking at the numbers of a constant to decide something.

Another checkpoint has other numbers. A decision about the program that rests on those of a parameter holds for checkpoints
with the same, so the parameter is pinned: the engine says which numbers it must have. Whatever decides by numbers (a rule, an
importer, the lowering) reads them here. What is decided by their absence (a scale that is not 1 throughout stays) is right
for any numbers, and pins nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from hashlib import sha256
from typing import TypeVar

import numpy as np

from graphc.ir.graph import Value
from graphc.ir.interp import evaluate

Found = TypeVar("Found")


def read_numbers(value: Value) -> np.ndarray:
    """The elements of a static value, on which something will depend: the parameters below it are pinned."""
    return decided(value, lambda array: array)


def decided(value: Value, look: Callable[[np.ndarray], Found]) -> Found:
    """What `look` finds in the elements of a static value. Unless that is False or None, the parameters below it are pinned."""
    found = look(evaluate(value))
    if found is not None and found is not False:
        pin(value)
    return found


def pin(value: Value) -> None:
    """Pin the parameters that a value is computed from."""
    for each in sources(value):
        if each.origin is not None and each.origin.parameter:
            each.origin.pinned = True


def is_pinned(value: Value) -> bool:
    """True for a parameter on whose numbers the program relies."""
    return value.origin is not None and value.origin.pinned


def has_parameter(value: Value) -> bool:
    """True if a value is computed from a parameter, among others."""
    return any(each.parameter for each in sources(value))


def identity(value: Value, most_bytes: int) -> Hashable:
    """What is equal for values that are the same in every checkpoint: the bits of a constant, if it is not large and no parameter
    is in it; of any other value itself."""
    data = value.data
    if data is None or data.dtype.kind == "O" or data.nbytes > most_bytes or has_parameter(value):
        return value
    return value.type, sha256(data.tobytes()).digest()


def sources(value: Value) -> Iterator[Value]:
    """The constants from which a value is computed, each once, through what was folded; the inputs too if it reads any."""
    seen: set[Value] = set()
    stack = [value]
    while stack:
        top = stack.pop()
        if top in seen:
            continue
        seen.add(top)
        made = made_by(top)
        if made.producer is None:
            yield made
        else:
            stack += made.producer.inputs


def made_by(value: Value) -> Value:
    """The value as a node's result where a node made it, folded since or not; else itself."""
    return value if value.origin is None or value.origin.unfolded is None else value.origin.unfolded
