"""The C++ of small programs, as it is read: a file for each under golden_cpp/. GRAPHC_UPDATE=1 writes them anew."""

import os
import re
from pathlib import Path

import pytest
from cpp_programs import PROGRAMS

from graphc.targets.ggml.cpp import render_project

FOLDER = Path(__file__).parent / "golden_cpp"


def readable(name):
    """What a reader looks at: the header's structs and the functions."""
    files = render_project(PROGRAMS[name]())
    (header,) = (text for path, text in files.items() if path.startswith("include/"))
    text = header + files["model.cpp"]
    return re.sub(r'program_sha256 = "\w{64}"', 'program_sha256 = "..."', text)


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_code_of_a_pattern(name):
    path = FOLDER / f"{name}.txt"
    text = readable(name)
    if os.environ.get("GRAPHC_UPDATE"):
        path.write_text(text)
    assert text == path.read_text(), f"see {path}; GRAPHC_UPDATE=1 accepts the new text"


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_same_program_gives_the_same_bytes(name):
    assert render_project(PROGRAMS[name]()) == render_project(PROGRAMS[name]())
