"""C files as one text, for compilers that are given one."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable


def joined(names: Iterable[str], read: Callable[[str], str]) -> str:
    """The files as one, each once, with those that it includes before it. What ggml's headers are called stays an include."""
    seen = set[str]()

    def whole(name: str) -> str:
        if name in seen:
            return ""
        seen.add(name)
        text = read(name).replace("#pragma once\n", "")
        return re.sub(r'#include "(?!ggml)([\w.]+)"\n', lambda found: whole(found[1]), text)

    return "".join(map(whole, names))
