"""`graphc image` on the command line."""

import pytest
from PIL import Image
from typer.testing import CliRunner

from graphc_images.commands import image
from graphc_images.errors import ImageError

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    from small_checkpoint import small_modules, write_small

    return write_small(tmp_path_factory.mktemp("models") / "small.safetensors", small_modules())


def invoke(*arguments):
    done = CliRunner().invoke(image, [*map(str, arguments)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


def test_a_prompt_is_a_command(checkpoint, tmp_path):
    out, preview = tmp_path / "out.png", tmp_path / "preview.png"
    size = ("--width", 64, "--height", 64, "--steps", 2, "--seed", 3)
    assert "seed 3" in invoke("a red circle", "--model", checkpoint, "-o", out, "--preview", preview, *size)
    assert Image.open(out).size == (64, 64)
    assert Image.open(preview).size == (8, 8)
    assert "Steps: 2" in invoke("info", out)
    again = tmp_path / "again.png"
    invoke("--from", out, "--model", checkpoint, "-o", again)
    assert Image.open(again).tobytes() == Image.open(out).tobytes()


def test_several_are_numbered(checkpoint, tmp_path):
    invoke("x", "-m", checkpoint, "-o", tmp_path / "a.png", "--count", 2, "--steps", 1, "--width", 64, "--height", 64)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a-1.png", "a-2.png"]


@pytest.mark.parametrize("name", ["no/such/folder/a.png", "a.bmp"])
def test_where_nothing_can_be_written_nothing_is_painted(name, tmp_path):
    done = CliRunner().invoke(image, ["x", "-m", "no such model", "-o", str(tmp_path / name)])
    assert isinstance(done.exception, ImageError)
    assert name in str(done.exception)
    assert "no such model" not in str(done.exception)


def test_a_grid(checkpoint, tmp_path):
    size = ("--width", 64, "--height", 64, "--steps", 1)
    invoke("x", "-m", checkpoint, "-o", tmp_path / "g.png", "--x", "Seed=1-3", "--y", "CFG Scale=1, 4", *size)
    assert Image.open(tmp_path / "g.png").width > 3 * 64


def test_lists(checkpoint, tmp_path):
    assert "DPM++ 2M" in invoke("samplers")
    assert "karras" in invoke("schedulers")
    assert "coloured shapes, predicts eps" in invoke("info", checkpoint)
    assert "small" in invoke("models", checkpoint.parent)
