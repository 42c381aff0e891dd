"""C files as one text, for compilers that are given one."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterable


def joined(names: Iterable[str], read: Callable[[str], str]) -> str:
    """The files as one, each once, with those that it includes, by their paths from it, in their place. What ggml's headers are
    called stays an include."""
    seen = set[str]()

    def whole(name: str) -> str:
        if name in seen:
            return ""
        seen.add(name)
        text, folder = read(name).replace("#pragma once\n", ""), posixpath.dirname(name)
        return re.sub(
            r'#include "(?!ggml)([\w./]+)"\n',
            lambda found: whole(posixpath.normpath(posixpath.join(folder, found[1]))),
            text,
        )

    return "".join(map(whole, names))
