"""What Sphinx is told of the site that `site.py` makes: its pages are those of this folder, as GitHub shows them too.

`api.md` lists public names; here each becomes its signature and docstring. Docstrings are Markdown in plain sentences, and Sphinx
reads reStructuredText: what differs is translated.
"""

import importlib
import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from sphinx.addnodes import pending_xref  # noqa: E402

import graphc  # noqa: E402

project = "graphc"
version = release = graphc.__version__
copyright = "graphc's authors"
extensions = ["myst_parser", "sphinx.ext.autodoc"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["*.py"]
html_theme = "furo"
html_title = f"graphc {release}"
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {"top_of_page_buttons": []}
pygments_style, pygments_dark_style = "friendly", "github-dark"
default_role = "py:obj"
myst_heading_anchors = 4
autodoc_member_order = "bysource"
autodoc_default_options = {"members": True}
autodoc_preserve_defaults = True
autodoc_typehints_format = "short"
autodoc_class_signature = "mixed"
python_maximum_signature_line_length = 100

NAME = re.compile(r"^- `([\w.]+)`: .*$", re.MULTILINE)
"""A public name in the list of `api.md`."""

PAGE = re.compile(r"(?<!\[)`docs/([\w-]+)\.md`")
"""A page whose name stands in a text."""


def read_page(app: Any, name: str, source: list[str]) -> None:
    """Names of pages are links; the lists of `api.md` are all that is known of a name."""
    source[0] = PAGE.sub(r"[\g<0>](\1.md)", source[0])
    if name == "api":
        source[0] = NAME.sub(lambda found: f"```{{eval-rst}}\n{directive(found[1])}\n```\n", source[0])


def public_of(path: str) -> Any:
    """What a public name is."""
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)


def directive(path: str) -> str:
    """Sphinx's directive for a public name."""
    public = public_of(path)
    kind = "function" if not isinstance(public, type) else "exception" if issubclass(public, Exception) else "class"
    return f".. auto{kind}:: {path}"


def translate(app: Any, what: str, name: str, thing: object, options: object, lines: list[str]) -> None:
    """A docstring's Markdown as reStructuredText: code, and blocks of it."""
    text = "\n".join(lines)
    text = re.sub(r":\n\n(?=    )", "::\n\n", text)
    text = re.sub(r"(?<!`)`([^`]+)`(?!`)", code, text)
    lines[:] = text.split("\n")


def code(found: re.Match[str]) -> str:
    """Names that may be links stay, other code is quoted so that nothing in it means anything."""
    text = found[1]
    return f"`{text}`\\ " if re.fullmatch(r"[A-Za-z_][\w.]*", text) else f"``{text}``\\ "


def name_publicly(app: Any, document: Any) -> None:
    """A type in a signature leads to its public name, wherever it is defined, and never to another type of the same name."""
    if app.env.docname != "api":
        return
    homes = {}
    for path in NAME.findall((ROOT / "docs/api.md").read_text(encoding="utf-8")):
        public = public_of(path)
        homes[f"{public.__module__}.{public.__qualname__}"] = path
    for link in document.findall(pending_xref):
        link["reftarget"] = homes.get(link["reftarget"], link["reftarget"])
        if link.get("refspecific") is False:  # Sphinx asks whether it is there, not what it is
            del link["refspecific"]


def readable(
    app: Any, what: str, name: str, thing: object, options: object, signature: str | None, result: str | None
) -> Any:
    """A signature whose defaults are Python, which Sphinx then takes apart."""
    return signature and signature.replace("<factory>", "..."), result


def setup(app: Any) -> None:
    """What Sphinx calls."""
    app.connect("source-read", read_page)
    app.connect("autodoc-process-docstring", translate)
    app.connect("autodoc-process-signature", readable)
    app.connect("doctree-read", name_publicly)
