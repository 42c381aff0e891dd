"""Composites in C: those that a file of `project/graphc/composites` builds, and what is made of their Python functions for it."""

from __future__ import annotations

import re
import textwrap
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable

from graphc.targets.ggml.program.composites import COMPOSITES, PREFIX, Composite

FOLDER = "composites"

WIDTH = 130

TENSOR = "struct ggml_tensor *"

KINDS = {float: "float", int: "int", bool: "bool"}
"""What C takes for a composite's numbers; for all else it takes a tensor."""

DECLARATIONS = """\
// The composites that the files of `composites/` build. What they compute is said in graphc's `program/composites/`, of which
// this header is made. The results are tensors of the builder's context; NULL without memory. Valid as C and as C++.

#pragma once

#include "build.h"

#ifdef __cplusplus
extern "C" {{
#endif

/// The composites that have several ways, each with its ways.
#define GRAPHC_WAYS {ways}

{declared}
#ifdef __cplusplus
}}
#endif
"""


def c_text(path: str) -> str:
    """One of the project's files for the library `graphc`: fixed, or made of the composites."""
    if path in GENERATED:
        return GENERATED[path]()
    return _folder().joinpath(path).read_text(encoding="utf-8")


@cache
def built_in_c() -> dict[str, Composite]:
    """The composites that C builds, by the names that programs have for them; others are computed by their expansions."""
    text = "".join(map(c_text, _composite_files()))
    names = {f"{PREFIX}{name}" for name in re.findall(r"^struct ggml_tensor \* graphc_build_(\w+)\(", text, re.M)}
    return {name: each for name, each in sorted(COMPOSITES.items()) if name in names}


def declarations() -> str:
    """The header that declares them, and names the ways of composites."""
    several = [[name.removeprefix(PREFIX), *each.ways] for name, each in sorted(COMPOSITES.items()) if each.ways]
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


def _all_included() -> str:
    """The C file that includes those of all composites."""
    return "".join(f'#include "{path}"\n' for path in _composite_files())


def _composite_files() -> list[str]:
    found = [each.name for each in _folder().joinpath(FOLDER).iterdir()]
    return [f"{FOLDER}/{name}" for name in sorted(found) if name.endswith(".c")]


def _folder() -> Traversable:
    return files("graphc.targets.ggml").joinpath("project", "graphc")


GENERATED = {"composites.h": declarations, "composites.c": _all_included}
"""Files that are made, by their names."""
