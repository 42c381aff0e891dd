"""The page of pictures is current: its tables are those of the program, and the places that it names are there."""

import importlib.util
import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from graphc import GraphcError
from graphc_images.commands import image

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "images.md"


def tables():
    spec = importlib.util.spec_from_file_location("images_tables", ROOT / "docs" / "images_tables.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_tables_are_current():
    made = tables()
    text = PAGE.read_text()
    assert made.page(text) == text, "run: python docs/images_tables.py"
    for name, table in made.TABLES.items():
        assert table() in text, name


def test_places_of_differences_exist():
    rows = re.findall(r"^\| .*\| (`[^|]*`) \|$", PAGE.read_text(), re.MULTILINE)
    places = [place for row in rows for place in re.findall(r"`((?:noise|sampling)/[\w/.]+)`", row)]
    assert len(places) > 15
    for place in places:
        assert (ROOT / "graphc_images" / place).exists(), place


COMMANDS = [
    line.strip().removeprefix("graphc image ")
    for name in ("images.md", "start-images.md")
    for line in (ROOT / "docs" / name).read_text().splitlines()
    if line.startswith("    graphc image ")
]


@pytest.mark.parametrize("line", COMMANDS)
def test_commands_of_the_pages_are_understood(line, tmp_path, monkeypatch):
    """No file that they name is there: that, and nothing else, is what is wrong with them."""
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(image, shlex.split(line))
    assert not isinstance(done.exception, SystemExit), done.output
    assert done.exception is None or isinstance(done.exception, GraphcError | FileNotFoundError), done.exception
