"""What people type and give to `graphc image` by mistake, or on purpose: each ends in a picture or in one clear error."""

import random
import string
import warnings

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from graphc import GraphcError
from graphc_images.commands import image
from graphc_images.commands.options import options, setting_of_text, settings_given
from graphc_images.describing import described, settings_in
from graphc_images.hashes import Hashes
from graphc_images.headers import metadata_of
from graphc_images.inspecting import told
from graphc_images.pictures.files import Notes, save_picture
from graphc_images.prompts.wildcards import draw
from graphc_images.requests import lines_of
from graphc_images.settings import Settings

WORDS = ["", "0", "-1", "1", "2", "0.5", "nan", "inf", "1e309", "x", "64x64", "0x0", "3,2,0", ",", "on", "mimic=1", "=", "a=b",
         "mimic=nan", "a" * 300, "\0", "é́", "\udcff", "Karras", "Euler a", "[a:b:3]", "(((((", "<lora:x:1>", "AND", "2**70",
         "9" * 400, "true", "../..", "[seed]", "{a|b}", "__x__", "--steps", '"']  # fmt: skip
SIGNS = string.printable + 'é\0\udcff[](){}<>|:,_\\"'


def text_of(chance):
    if chance.random() < 0.5:
        return chance.choice(WORDS)
    return "".join(chance.choice(SIGNS) for _ in range(chance.randrange(40)))


def settings_from(chance):
    """Options by chance, as a command has them."""
    found = {}
    for option in chance.sample([*options().values()], chance.randrange(1, 6)):
        text = text_of(chance)
        if option.kind == list[str]:
            found[option.setting] = [text]
        elif option.annotated in ("int", "int | None", "float", "float | None"):
            found[option.setting] = chance.choice([0, 1, -1, 2**70, 0.5, float("nan"), float("inf"), 1e300, 7])
        elif option.annotated == "bool":
            found[option.setting] = chance.random() < 0.5
        elif "Image" not in option.annotated:
            found[option.setting] = text
    return found


def hostile(seed, count):
    chance = random.Random(seed)
    accepted = 0
    for _ in range(count):
        try:
            asked = Settings.of(text_of(chance), **settings_given(settings_from(chance)))
        except GraphcError:
            continue
        accepted += 1
        try:
            described(asked, "m")
        except GraphcError:
            continue
    return accepted


def test_options_by_chance_end_in_settings_or_errors():
    assert hostile(1, 1500) > 100


def test_texts_of_pictures_by_chance_are_read():
    chance = random.Random(2)
    labels = ["Steps", "Seed", "Size", "CFG scale", "Hires resize", "Denoising strength", "APG", "APG eta", "SLG layers",
              "Sampler", "Mimic scale", "Dynamic thresholding enabled", "Mimic mode", "Seed resize from", "RNG"]  # fmt: skip
    for _ in range(2000):
        pairs = ", ".join(f"{label}: {text_of(chance)}" for label in chance.sample(labels, 6))
        try:
            Settings.of(**settings_in(Notes(f"{text_of(chance)}\nNegative prompt: {text_of(chance)}\n{pairs}")))
        except GraphcError:
            continue


def test_lines_and_wildcards_by_chance():
    chance = random.Random(3)
    for _ in range(1500):
        names = ["prompt", "steps", "lora", "apg", "sampler_name", text_of(chance)]
        line = " ".join(f"--{chance.choice(names)} {text_of(chance)}" for _ in range(3))
        for work in (lambda line=line: lines_of(line, "p.txt", {}, setting_of_text), lambda line=line: draw(line, 1)):
            try:
                work()
            except GraphcError:
                continue


def damaged(content, chance):
    """Bytes that are changed, cut, or longer."""
    data = bytearray(content)
    for _ in range(chance.randrange(1, 6)):
        kind = chance.randrange(4)
        place = chance.randrange(max(len(data), 1))
        if kind == 0 and data:
            data[place] = chance.randrange(256)
        elif kind == 1:
            del data[place:]
        elif kind == 2:
            data[place:place] = bytes(chance.randrange(256) for _ in range(chance.randrange(9)))
        elif data:
            data[place : place + 8] = b"\xff" * 8
    return bytes(data)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    from safetensors.numpy import save_file

    folder = tmp_path_factory.mktemp("hostile")
    save_picture(
        Image.new("RGB", (16, 16)), folder / "a.png", Notes("a\nSteps: 1, Seed: 2, Size: 8x8", {"prompt": {"1": {}}})
    )
    save_picture(
        Image.new("RGB", (16, 16)), folder / "a.webp", Notes("a\nSteps: 1, Seed: 2, Size: 8x8", {"prompt": {"1": {}}})
    )
    save_picture(Image.new("RGB", (16, 16)), folder / "a.jpg", Notes("a\nSteps: 1, Seed: 2, Size: 8x8"))
    save_file(
        {"lora_unet_x.lora_down.weight": np.zeros((1, 2), np.float32)},
        folder / "a.safetensors",
        {"ss_tag_frequency": "{}"},
    )
    return sorted(folder.iterdir())


def look_at_damaged(files, folder, seed, count):
    chance = random.Random(seed)
    for _ in range(count):
        source = chance.choice(files)
        path = folder / f"x{source.suffix}"
        path.write_bytes(damaged(source.read_bytes(), chance))
        metadata_of(path)
        Hashes().of_lora(path)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # pillow's, of damaged EXIF
            try:
                told(path)
            except (GraphcError, OSError):
                continue


def test_damaged_files_are_told_or_refused(files, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    look_at_damaged(files, tmp_path, 4, 200)


@pytest.mark.thorough
def test_many_more(files, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    look_at_damaged(files, tmp_path, 5, 20_000)
    hostile(6, 100_000)


def test_command_lines_by_chance(tmp_path, files):
    chance = random.Random(7)
    flags = [option.names[0] for option in options().values()]
    more = [
        "--from",
        "--styles",
        "--style",
        "--wildcards",
        "--prompts",
        "--x",
        "--grid",
        "--preview",
        "-o",
        "--matrix",
        "--graph",
    ]
    for _ in range(60):
        typed = [text_of(chance)]
        for flag in chance.sample([*flags, *more], 4):
            typed += [flag, chance.choice([text_of(chance), str(chance.choice(files))])]
        done = CliRunner().invoke(image, ["paint", *typed, "--model", str(tmp_path / "none")])
        assert isinstance(done.exception, (GraphcError, OSError, SystemExit)), (typed, done.exception)
