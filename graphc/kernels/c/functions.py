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


def stand_in(template: str) -> str:
    """A template of `Kernel.call` with our own functions where there are some."""

    def own(match: re.Match[str]) -> str:
        name = f"graphc_{match[1]}f"
        return f"{name}(" if name in _definitions() else match[0]

    return re.sub(r"\b(\w+)\{f\}\(", own, template)


def defined(calling: str) -> list[str]:
    """What defines the functions that a text calls, each after those that it calls itself."""
    needed = list[str]()
    for name, text in reversed(_definitions().items()):
        if f"{name}(" in calling:
            needed.insert(0, text)
            calling += text
    return needed


def header() -> str:
    """All of them as a file for others to include."""
    return HEADER + BITS + "\n" + _text()


def _text() -> str:
    return Path(__file__).with_name("functions.h").read_text(encoding="utf-8")


@cache
def _definitions() -> dict[str, str]:
    """What defines each function, in the order of the file, in which those that are called come first."""
    return {found[1]: found[0] for found in _DEFINITION.finditer(_text().partition("\n\n")[2])}
