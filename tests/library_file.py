"""Libraries that tests compile, as files that are gone when the process has ended."""

from __future__ import annotations

import atexit
import tempfile
from pathlib import Path


def library_file(content: bytes) -> str:
    """The path of a new file with a library."""
    with tempfile.NamedTemporaryFile(suffix=".so", delete=False) as file:
        atexit.register(Path(file.name).unlink, missing_ok=True)
        file.write(content)
    return file.name
