"""`graphc image` on the command line."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
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
    found = tmp_path / "found.png"
    invoke("--from", out, "--models", checkpoint.parent, "-o", found)
    assert Image.open(found).tobytes() == Image.open(out).tobytes(), "the model is found by the name that it has there"
    for models, said in (((), "the model 'small': say where it is"), (("--models", tmp_path), "no checkpoint 'small'")):
        with pytest.raises(ImageError, match=said):
            invoke("--from", out, *models, "-o", found)


def test_products_may_be_fast(checkpoint, tmp_path):
    from graphc.backends.precision import is_exact

    size = ("--model", checkpoint, "--width", 64, "--height", 64, "--steps", 2, "--seed", 3)
    try:
        invoke("x", "-o", tmp_path / "fast.png", *size, "--fast")
        assert not is_exact()
    finally:
        invoke("x", "-o", tmp_path / "exact.png", *size)
    assert is_exact()
    fast, exact = (np.asarray(Image.open(tmp_path / f"{each}.png"), float) for each in ("fast", "exact"))
    assert np.abs(fast - exact).mean() < 10


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


def small(*more):
    return ("--width", 64, "--height", 64, "--steps", 1, *more)


def test_what_was_named_is_replaced_and_what_was_not_is_kept(checkpoint, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("named.png", "00004-1.png", "x-4.webp"):
        Path(name).write_text("before")
    invoke("x", "-m", checkpoint, "-o", "named.png", *small("--seed", 3))
    invoke("x", "-m", checkpoint, *small("--seed", 3))
    invoke("x", "-m", checkpoint, "-o", "[prompt]-[seed].webp", *small("--seed", 4, "--quality", 30))
    assert sorted(os.listdir()) == ["00004-1.png", "00005-3.png", "named.png", "x-4-2.webp", "x-4.webp"]
    assert Image.open("named.png").size == (64, 64)


def test_lines_of_a_file(checkpoint, tmp_path):
    file = tmp_path / "prompts.txt"
    file.write_text('a cat\n\n--prompt "a dog" --n_iter 2 --sampler_name Euler --cfg 3\n')
    out, grid = tmp_path / "p.png", tmp_path / "grid.png"
    invoke("--prompts", file, "-m", checkpoint, "-o", out, "--grid", grid, *small("--seed", 9))
    said = [invoke("info", tmp_path / f"p-{number}.png").splitlines() for number in (1, 2, 3)]
    assert [lines[0] for lines in said] == ["a cat", "a dog", "a dog"]
    assert "Sampler: Euler, " in said[2][1]
    assert "CFG scale: 3, Seed: 10" in said[2][1]
    assert Image.open(grid).size == (3 * 64, 64)


def test_hashes_are_those_of_the_files(checkpoint, tmp_path):
    import hashlib

    from safetensors.numpy import save_file

    save_file({"emb_params": np.zeros((1, 48), np.float32)}, tmp_path / "word.safetensors")
    invoke("a word", "-m", checkpoint, "-o", tmp_path / "a.png", "--embedding", tmp_path / "word.safetensors", *small())
    said = invoke("info", tmp_path / "a.png")
    digest = hashlib.sha256(checkpoint.read_bytes()).hexdigest()
    assert f"Model hash: {digest[:10]}, Model: small" in said
    assert f'TI hashes: "word: {hashlib.sha256((tmp_path / "word.safetensors").read_bytes()).hexdigest()[:12]}"' in said
    invoke("a word", "-m", checkpoint, "-o", tmp_path / "b.png", "--no-hashes", *small())
    assert "hash" not in invoke("info", tmp_path / "b.png")


@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
def test_an_interrupt_keeps_what_is_finished(checkpoint, tmp_path):
    command = [sys.executable, "-m", "graphc.cli", "image", "x", "-m", checkpoint, "-o", tmp_path / "a.png",
               "--count", 500, "--grid", tmp_path / "grid.png", *small()]  # fmt: skip
    heard = lambda: signal.signal(signal.SIGINT, signal.default_int_handler)  # noqa: E731 - a shell's background job ignores it
    process = subprocess.Popen(
        [*map(str, command)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, preexec_fn=heard
    )
    while process.poll() is None and not (tmp_path / "a-2.png").exists():
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert (process.returncode, said) == (130, "")
    names = sorted(os.listdir(tmp_path))
    assert {"a-1.png", "a-2.png", "grid.png"} <= set(names)
    for name in names:
        Image.open(tmp_path / name).load()


def test_what_cannot_be_written_is_said_before_anything_is_painted(tmp_path):
    (tmp_path / "folder.png").mkdir()
    done = CliRunner().invoke(image, ["x", "-m", "none", "-o", str(tmp_path / "folder.png" / "no" / "a.png")])
    assert "there is no folder" in str(done.exception)
    for option in ("--preview", "--grid"):
        done = CliRunner().invoke(image, ["x", "-m", "none", option, str(tmp_path / "folder.png")])
        assert "folder.png: the picture cannot be written: it is a folder" in str(done.exception)


def test_previews_that_cannot_be_written_end_nothing(checkpoint, tmp_path, monkeypatch, caplog):
    from graphc_images.commands import writing

    def full(*_):
        raise ImageError("the disk is full")

    monkeypatch.setattr(writing, "save_picture", full)
    invoke("x", "-m", checkpoint, "-o", tmp_path / "a.png", "--preview", tmp_path / "p.png", *small("--steps", 3))
    assert (tmp_path / "a.png").exists()
    assert caplog.text.count("the disk is full") == 1


def test_a_grid_has_what_is_done_when_it_ends(checkpoint, tmp_path, monkeypatch):
    import graphc_images
    from graphc_images.plots import Plot, axis_of
    from graphc_images.settings import Settings

    asked = Settings("x", width=64, height=64, steps=1)
    plot = Plot(graphc_images.load(checkpoint), asked, axis_of("Seed", "1-3"), z=axis_of("CFG Scale", "1, 2"))
    for progress in plot:
        if progress.pictures:
            break
    ((label, grid),) = plot.grids()
    assert label == "CFG Scale: 1.0"
    assert grid.width >= 3 * 64


def test_the_graph_goes_with_the_picture(checkpoint, tmp_path):
    from graphc_images.describing import settings_in
    from graphc_images.pictures.files import open_picture
    from graphc_images.pictures.graphs import parameters_of_graph

    invoke("x<lora:none:0.5>", "-n", "bad", "-m", checkpoint, "-o", tmp_path / "a.png", "--graph",
           *small("--clip-skip", 2, "--sampler", "DPM++ 2M", "--scheduler", "Karras"))  # fmt: skip
    notes = open_picture(tmp_path / "a.png")[1]
    said = parameters_of_graph(notes.graphs["prompt"])
    assert (said.prompt, said.negative_prompt) == ("x<lora:none:0.5:0.5>", "bad")
    assert (said.settings["Sampler"], said.settings["Schedule type"]) == ("dpmpp_2m", "karras")
    assert settings_in(notes)["clip_skip"] == 2
    for more in ("--hires", "2"), ("--pag-scale", "3"), ("--cfg-zero-star",), ("--tiling", "x"):
        done = CliRunner().invoke(
            image, ["x", "-m", str(checkpoint), "-o", str(tmp_path / "b.png"), "--graph", *more, *map(str, small())]
        )
        assert "ComfyUI's graph is written for pictures of words alone" in str(done.exception)
    assert not (tmp_path / "b.png").exists(), "it is said before anything is painted"
