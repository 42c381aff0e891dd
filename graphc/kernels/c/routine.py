"""The hand-written C routines of the folder `routines`: their text for the types of a kernel's tensors.

Each file is C. One that includes `types.h` is written for type parameters, and a kernel's file has it once for all the types
that it is used with; what it includes else comes before it, once.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import numpy as np

from graphc.ir.types import FLOATS, TensorType
from graphc.kernels.c.language import NARROW_NAMES, computed_type, stored_type
from graphc.kernels.use import KernelUse
from graphc.ops.base import Op, Routine
from graphc.shapes import Dim

FOLDER = Path(__file__).parent / "routines"


def has_kernel(op: Op) -> bool:
    """True if an operator has a routine or an element function."""
    return type(op).routine is not Op.routine or type(op).element is not Op.element


def routine_of(use: KernelUse) -> Routine | None:
    """The routine that computes a kernel, if there is one."""
    types = [TensorType(dtype, shape) for dtype, shape in use.inputs]
    return use.op.routine(*types)  # type: ignore[attr-defined, no-any-return]


def dims_of(routine: Routine) -> list[Dim]:
    """The sizes among a routine's arguments."""
    flat = [each for item in routine.numbers for each in (item if isinstance(item, tuple) else (item,))]
    return [each for each in flat if not isinstance(each, str)]


def function_name(routine: Routine) -> str:
    """The C function for the routine's types."""
    return _typed(f"graphc_{routine.function}_T", routine.types)


def definitions(routine: Routine) -> dict[str, str]:
    """The C that defines a routine: texts by what they are, each after those that it needs."""
    return _definitions(f"{routine.subject}.h", routine.types)


def routine_text(file: str) -> str:
    """A file of the folder."""
    return FOLDER.joinpath(file).read_text(encoding="utf-8")


@cache
def _definitions(file: str, types: tuple[np.dtype, ...]) -> dict[str, str]:
    text = routine_text(file)
    needed = re.findall(r'^#include "(.*)"$', text, re.M)
    found: dict[str, str] = {}
    for other in needed:
        if other != "types.h":
            found |= _definitions(other, types)
    text = re.sub(r"^#(?:include .*|pragma once)\n", "", text, flags=re.M)
    if "types.h" in needed:
        return found | {f"{file} {_suffix(types)}": _typed(text, types)}
    return found | {file: text}


def _typed(text: str, types: tuple[np.dtype, ...]) -> str:
    """C with types in place of its type parameters."""
    words = dict(zip("TI", map(stored_type, types), strict=False))
    if types:
        dtype = types[0]
        words |= {"V": computed_type(dtype), "W": "double" if dtype in FLOATS else computed_type(dtype)}
        narrow = NARROW_NAMES.get(dtype)
        words |= {
            "LOAD": f"graphc_from_{narrow}" if narrow else "",
            "STORE": f"graphc_to_{narrow}_float" if narrow else "",
        }
    text = re.sub(r"\b(T|I|V|W|LOAD|STORE)\b", lambda word: words.get(word[0], word[0]), text)
    return re.sub(r"_T\b", f"_{_suffix(types)}" if types else "", text)


def _suffix(types: tuple[np.dtype, ...]) -> str:
    return "_".join(dtype.name for dtype in types)
