"""The functions of `functions.h`, which stand in for those of math.h where a kernel computes in float32."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from graphc.kernels.c.language import BITS

HEADER = """\
#pragma once

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

"""

_DEFINITION = re.compile(r"(?:^//.*\n)*^static inline \w+ (\w+)\(.*\n(?:.*\n)*?\}\n", re.M)


def stand_in(template: str) -> tuple[str, set[str]]:
    """A template of `Kernel.call` with our own functions where there are some, and their names."""
    used = set[str]()

    def own(match: re.Match[str]) -> str:
        name = f"graphc_{match[1]}f"
        if name not in _definitions():
            return match[0]
        used.add(name)
        return f"{name}("

    return re.sub(r"\b(\w+)\{f\}\(", own, template), used


def defined(names: set[str]) -> list[str]:
    """What defines these functions, each after those that it calls."""
    known = _definitions()
    needed = set(names)
    for name in reversed(known):
        if name in needed:
            needed |= {other for other in known if f"{other}(" in known[name]}
    return [text for name, text in known.items() if name in needed]


def header() -> str:
    """All of them as a file for others to include."""
    return HEADER + BITS + "\n" + _text()


def _text() -> str:
    return Path(__file__).with_name("functions.h").read_text(encoding="utf-8")


@cache
def _definitions() -> dict[str, str]:
    """What defines each function, in the order of the file, in which those that are called come first."""
    return {found[1]: found[0] for found in _DEFINITION.finditer(_text().partition("\n\n")[2])}
