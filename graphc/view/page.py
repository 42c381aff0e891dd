"""The page that shows a program: one HTML file with everything in it, that asks no other place for anything.

Names in the data are a stranger's. They stand in a JSON block without a character that could end it, the scripts put
them into the page as text alone, and the page's policy runs no other script.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

SCRIPTS = ("text.js", "model.js", "places.js", "layers.js", "layout.js", "canvas.js", "panel.js", "main.js")
UNSAFE = {ord(character): f"\\u{ord(character):04x}" for character in "<>&\u2028\u2029"}


def page(document: Mapping[str, Any]) -> str:
    """The HTML text of a document (`graphc.view.document`)."""
    style, script = _read("style.css"), "\n".join(map(_read, SCRIPTS))
    parts = {
        "POLICY": f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)}",
        "STYLE": style,
        "MODEL": json.dumps(document, separators=(",", ":")).translate(UNSAFE),
        "SCRIPT": script,
    }
    return re.sub(r"\{\{([A-Z]+)\}\}", lambda match: parts[match[1]], _read("page.html"))


def _read(name: str) -> str:
    return files("graphc.view").joinpath("page", name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    """A source of a content security policy: what an element holds, exactly."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
