"""Composites in C++: the header that has a function for each that C builds, and how calls of those are written."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Iterator, Mapping, Sequence

from graphc.targets.ggml.program.composites import COMPOSITES, PREFIX, ActivationOrNone, Composite
from graphc.targets.ggml.program.in_c import KINDS, WIDTH, built_in_c, folded
from graphc.targets.ggml.program.program import Call
from graphc.targets.ggml.program.tensor import Activation, Tensor

IN_THE_NAME = ("direct",)
"""What is true or false of a composite and stands behind its name in C++."""

LAST = {bool: "bool {} = false", ActivationOrNone: "Activation {} = nullptr"}
"""The kinds of parameters that come last in C++, and how they are declared."""

HEADER = """\
#pragma once

// Composite calls, made of graphc's `program/composites/`, which has their expansions. A device computes each in the way that is
// best there: `composites/`. Tensors that may be missing are null. They throw Error without memory.

#include "graphc/builder.h"
#include "graphc/composites.h"

namespace graphc {{

{functions}
}}  // namespace graphc
"""


def calls_header() -> str:
    """The header with a function for each composite that C builds: of tensors and numbers, then of any number of tensors, then
    of what is true or false, which has names."""
    return HEADER.format(functions="\n".join(text for each in built_in_c().values() for text in _functions(each)))


def composite_call(call: Call, texts: Sequence[str]) -> tuple[str, list[str]]:
    """The C++ function of a composite, and its arguments, the context first: tensors of which there may be any number in braces,
    then what is true or false, by name, and the activation. What is left out at the end is false, or nothing."""
    composite = COMPOSITES[call.function]
    fixed = list(zip(composite.parameters, call.args, texts[1:], strict=False))
    more = texts[1 + len(fixed) :]
    function = f"graphc::{call.function.removeprefix(PREFIX)}"
    function += "".join(f"_{name}" for name, arg, _ in fixed if name in IN_THE_NAME and arg is True)
    last = [
        (name, arg, text) for name, arg, text in fixed if isinstance(arg, bool | Activation) and name not in IN_THE_NAME
    ]
    while last and last[-1][1] is False:
        last.pop()
    flags = [text if isinstance(arg, Activation) else f"/*{name}=*/{text}" for name, arg, text in last]
    plain = [text for _, arg, text in fixed if not isinstance(arg, bool | Activation)]
    listed = [f"{{{', '.join(more)}}}"] if more or (composite.more and flags) else []
    while not flags and not listed and plain[-1] == "nullptr":
        plain.pop()
    return function, [texts[0], *plain, *listed, *flags]


def _functions(composite: Composite) -> Iterator[str]:
    """The functions of a composite: one more for each of `IN_THE_NAME`."""
    named = [name for name in composite.parameters if name in IN_THE_NAME]
    for name in ("", *named):
        yield _function(composite, {each: each == name for each in named}, name)


def _function(composite: Composite, settled: Mapping[str, bool], suffix: str) -> str:
    kinds = {name: kind for name, kind in composite.parameters.items() if name not in settled}
    plain = [name for name, kind in kinds.items() if kind not in LAST]
    required = next((place for place in reversed(range(len(plain))) if kinds[plain[place]] != Tensor | None), -1)
    parameters = [
        f"{KINDS.get(kinds[name], 'Tensor')} {name}{' = nullptr' * (place > required)}"
        for place, name in enumerate(plain)
    ]
    parameters += [f"Tensors {composite.more} = {{}}"] if composite.more else []
    parameters += [LAST[kind].format(name) for name, kind in kinds.items() if kind in LAST]
    given = [str(settled[name]).lower() if name in settled else name for name in composite.parameters]
    given += [f"{composite.more}.data()", f"static_cast<int>({composite.more}.size())"] if composite.more else []
    name = composite.name.removeprefix(PREFIX)
    text = inspect.getdoc(composite.expand) or ""
    about = textwrap.fill(text, WIDTH, initial_indent="/// ", subsequent_indent="/// ")
    head = (
        f"inline Tensor {'_'.join(filter(None, (name, suffix)))}({', '.join(['const Builder & ctx', *parameters])}) {{"
    )
    body = f"    return checked(graphc_build_{name}({', '.join(['ctx', *given])}));"
    return f"{about}\n{folded(head)}\n{folded(body)}\n}}\n"
