"""The tables of server.md that come from the program: `python docs/server_tables.py` writes them anew."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from graphc_server.comfyui import nodes
from graphc_server.comfyui.table import NODES
from graphc_server.sdapi.fields import IMG2IMG, SHARED, TXT2IMG, Field
from graphc_server.sdapi.options import OPTIONS, Option

PAGE = Path(__file__).parent / "server.md"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of the page."""
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows))


def fields_of(fields: Iterable[Field]) -> str:
    """The fields of a request."""
    rows = ([f"`{each.name}`", f"`{each.usual!r}`", each.says] for each in fields)
    return table(("field", "usual", "what it is"), rows)


def can(option: Option) -> str:
    """What an option may be."""
    if option.only is None:
        return "any"
    others = ", ".join(f"`{each!r}`" for each in option.only if each not in ("", None))
    return f"also {others}" if others else "that alone"


def nodes_of_comfyui() -> str:
    """ComfyUI's nodes, by subject."""
    rows = []
    for subject in nodes.SUBJECTS:
        for node in NODES.values():
            if node.function.__module__ == subject.__name__:
                taken = ", ".join(each.name for each in node.inputs)
                rows.append([f"`{node.name}`", taken, ", ".join(node.gives) or "files", node.about])
    return table(("node", "takes", "gives", "what it does"), rows)


TABLES: dict[str, Callable[[], str]] = {
    "fields of both": lambda: fields_of(SHARED),
    "fields of txt2img": lambda: fields_of(TXT2IMG[len(SHARED) :]),
    "fields of img2img": lambda: fields_of(IMG2IMG[len(SHARED) :]),
    "nodes": nodes_of_comfyui,
    "options": lambda: table(
        ("option", "usual", "values"), ([f"`{o.name}`", f"`{o.usual!r}`", can(o)] for o in OPTIONS)
    ),
}


def page(text: str) -> str:
    """The page with the tables as they are now."""
    for name, make in TABLES.items():
        pattern = rf"(<!-- {name} -->\n).*?(<!-- end of {name} -->)"
        text = re.sub(pattern, lambda found, make=make: f"{found[1]}{make()}\n{found[2]}", text, flags=re.DOTALL)  # type: ignore[misc]
    return text


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
