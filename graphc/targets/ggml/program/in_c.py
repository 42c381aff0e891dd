"""The C of `project/graphc`: composites, our own code for the CPU, and the files that are made so that nobody lists them."""

from __future__ import annotations

import os
import re
import textwrap
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path

from graphc.kernels.c.functions import header
from graphc.kernels.c.routine import routine_text
from graphc.targets.ggml.program.composites import COMPOSITES, PREFIX, ActivationOrNone, Composite
from graphc.targets.ggml.program.tensor import Constant

FOLDER = Path(__file__).parents[1] / "project" / "graphc"

WIDTH = 130

TENSOR = "struct ggml_tensor *"

ACTIVATION = "const struct graphc_activation *"

KINDS = {float: "float", int: "int", Constant: "int", bool: "bool", ActivationOrNone: ACTIVATION}
"""What C takes for a composite's numbers; for all else it takes a tensor."""

PRODUCT = "product"
"""The kind of choice that says whether our own code rounds what it multiplies."""

DECLARATIONS = """\
// The composites that the files of `composites/` build. What they compute is said in graphc's `program/composites/`, of which
// this header is made. The results are tensors of the builder's context; NULL without memory. Valid as C and as C++.

#pragma once

#include "build.h"

#ifdef __cplusplus
extern "C" {{
#endif

/// What has several ways, each with its ways: composites, and how our own code multiplies.
#define GRAPHC_WAYS {ways}

{declared}
#ifdef __cplusplus
}}
#endif
"""


@cache
def c_text(path: str) -> str:
    """One of the project's files for the library `graphc`: fixed, or made of the composites."""
    if path in GENERATED:
        return GENERATED[path]()
    return (FOLDER / path).read_text(encoding="utf-8")


@cache
def built_in_c() -> dict[str, Composite]:
    """The composites that C builds, by the names that programs have for them; others are computed by their expansions."""
    text = "".join(map(c_text, _c_files("composites")))
    names = {f"{PREFIX}{name}" for name in re.findall(r"^tensor \* graphc_build_(\w+)\(", text, re.M)}
    return {name: each for name, each in sorted(COMPOSITES.items()) if name in names}


def declarations() -> str:
    """The header that declares them, and names the ways of composites."""
    several = [[name.removeprefix(PREFIX), *each.ways] for name, each in sorted(COMPOSITES.items()) if each.ways]
    several.append([PRODUCT, "bfloat16", "float32"])
    ways = ", ".join(f"{{{', '.join(map(quoted, each))}}}" for each in several)
    declared = "".join(folded(f"GRAPHC_API {_head(each)};") + "\n" for each in built_in_c().values())
    return DECLARATIONS.format(ways=ways, declared=declared)


def folded(code: str) -> str:
    """A line of code, on as many lines as it needs."""
    return textwrap.fill(code, WIDTH, subsequent_indent=" " * 8, break_long_words=False, break_on_hyphens=False)


def quoted(text: str) -> str:
    """A name in quotation marks."""
    return f'"{text}"'


def _head(composite: Composite) -> str:
    """A C function's name, parameters and type."""
    name = composite.name.removeprefix(PREFIX)
    parameters = [f"{KINDS.get(kind, TENSOR)} {each}" for each, kind in composite.parameters.items()]
    more = [f"{TENSOR}* {composite.more}", "int count"] if composite.more else []
    return f"{TENSOR} graphc_build_{name}({', '.join(['struct graphc_builder * b', *parameters, *more])})"


def own_functions() -> list[str]:
    """What our own code declares, without its prefix."""
    text = "".join(map(c_text, _own_headers()))
    return re.findall(r"^GRAPHC_API [\w *]+?\bgraphc_(\w+)\(", text, re.M)


def _own_header() -> str:
    """The header that includes those of our own code, and lists its functions."""
    listed = folded(" ".join(["#define GRAPHC_FUNCTIONS(F)", *(f"F({name})" for name in own_functions())]))
    return "#pragma once\n\n" + _included(_own_headers()) + "\n" + listed.replace("\n", " \\\n") + "\n"


def _own_headers() -> list[str]:
    """Those that have a C file beside them."""
    return [f"{path.removesuffix('.c')}.h" for path in _c_files("own")]


def _included(paths: Iterable[str]) -> str:
    return "".join(f'#include "{path}"\n' for path in paths)


def _c_files(folder: str) -> list[str]:
    return [f"{folder}/{name}" for name in sorted(os.listdir(FOLDER / folder)) if name.endswith(".c")]


GENERATED: Mapping[str, Callable[[], str]] = {
    "composites.h": declarations,
    "composites.c": lambda: _included(_c_files("composites")),
    "own.h": _own_header,
    "own.c": lambda: _included(_c_files("own")),
    "own/functions.h": header,
    "own/bytes.h": lambda: routine_text("bytes.h"),
    "own/squares.h": lambda: routine_text("squares.h"),
}
"""Files that are made, by their names."""
