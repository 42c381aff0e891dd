"""The program that a model becomes paints what the Python pipeline paints, bit for bit."""

import random
import re
import shutil
import subprocess
import unicodedata
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from built_once import built_once
from PIL import Image
from suite.quick_cpp import OPTIONS

import graphc
import graphc_images
from graphc_images.bundling import NATIVE, PROGRAM, bundle, facts_of
from graphc_images.errors import ImageError, ModelError, SettingError
from graphc_images.models.architectures import ARCHITECTURES
from graphc_images.native_tables import tables_source
from graphc_images.prompts.chunks import chunk_prompt
from graphc_images.prompts.encoders import CLIP_H
from graphc_images.prompts.plan import read_prompt
from graphc_images.sampling.names import SAMPLERS, SCHEDULERS, find_sampler
from graphc_images.tokenizers import ClipTokenizer

HERE = Path(__file__).parent
WARNINGS = ["-std=c++17", "-O1", "-Wall", "-Wextra", "-Wpedantic", "-Werror"]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not shutil.which("cmake") or not shutil.which("c++"), reason="needs cmake and a C++ compiler"),
]


@pytest.fixture(scope="module")
def pipeline():
    return graphc_images.load()


@pytest.fixture(scope="module", params=["quickly", pytest.param("usually", marks=pytest.mark.thorough)])
def program(pipeline, tmp_path_factory, request):
    """The program of the small model, built once for all processes that run tests."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "quickly":
            patch.setattr(graphc, "build_application", partial(graphc.build_application, cmake_args=OPTIONS))
        made = built_once(
            tmp_path_factory, f"built {request.param}", lambda folder: bundle(pipeline, folder / "painter")
        )
    return made / "painter" / PROGRAM


FLAGS = {"negative_prompt": "--negative", "cfg_scale": "--cfg-scale", "clip_skip": "--clip-skip"}


def run(program, folder, *words, **settings):
    """Run it in a folder, with nothing in the environment."""
    flags = [text for name, value in settings.items() for text in (FLAGS.get(name, f"--{name}"), str(value))]
    return subprocess.run(
        [program, *words, *flags], cwd=folder, env={}, capture_output=True, text=True, timeout=300, check=False
    )


def compare(program, pipeline, folder, prompt, *words, **settings):
    """The program's picture, and its text, are Python's."""
    done = run(program, folder, prompt, "-o", "out.png", *words, **settings)
    assert done.returncode == 0, done.stderr
    (expected,) = pipeline(prompt, **settings)
    with Image.open(folder / "out.png") as picture:
        assert picture.info["parameters"] == expected.parameters
        assert picture.size == expected.image.size
        np.testing.assert_array_equal(np.asarray(picture), np.asarray(expected.image))


PICTURES = {
    "usual": ("a red circle left of a blue square", {}),
    "emphasis": ("a (red:1.3) circle [left] of ((blue))", {"steps": 5, "sampler": "Euler"}),
    "and": (
        "a [red|blue] circle AND a green star :0.6 # not this",
        {"steps": 6, "width": 96, "height": 160, "cfg_scale": 7.5, "negative_prompt": "(blue:1.2) square, " * 20},
    ),
    "long": ("[a red:a blue:0.4] circle, " * 14, {"seed": 4294967295, "steps": 4, "sampler": "DPM++ 2M Karras"}),
    "breaks": ("red BREAK blue, [(green:0.5)", {"steps": 3, "negative_prompt": "white, [black]"}),
    "unguided": ("a star", {"steps": 4, "cfg_scale": 1, "clip_skip": 2, "generator": "cpu", "scheduler": "Karras"}),
    "smallest": ("", {"steps": 1, "width": 8, "height": 8}),
    "alone": ("Ünï日本 <|endoftext|> x", {"steps": 2, "width": 544, "height": 512, "sampler": "Heun"}),
    "quoted": ('a "red" circle: \\(x\\)\nand more', {"steps": 2, "negative_prompt": "a\nb", "cfg_scale": 0.00007}),
}


@pytest.mark.parametrize("name", PICTURES)
def test_pictures_are_those_of_python(program, pipeline, tmp_path, name):
    prompt, settings = PICTURES[name]
    compare(program, pipeline, tmp_path, prompt, **{"seed": 3, **settings})


def test_samplers_are_those_of_python(program, pipeline, tmp_path):
    for each in SAMPLERS:
        known = find_sampler(each.name, "a1111")[0].name
        compare(program, pipeline, tmp_path, "a red circle", sampler=known, seed=9, steps=4, width=32, height=64)


def test_schedulers_are_those_of_python(program, pipeline, tmp_path):
    for each in SCHEDULERS:
        settings = {"scheduler": each.name, "seed": 9, "steps": 5, "width": 32, "height": 32}
        if each.name in ("gits", "logit_normal", "optimal_steps"):  # the last has no levels for such models
            assert run(program, tmp_path, "a red circle", **settings).returncode == 1
        else:
            compare(program, pipeline, tmp_path, "a red circle", **settings)


@pytest.mark.parametrize("prediction", ["v", "eps"])
def test_what_a_model_predicts_is_said_beside_its_engines(program, tmp_path, prediction):
    other = graphc_images.load()
    other.model.recognized = replace(other.model.recognized, prediction=prediction, zero_snr=True)
    folder = tmp_path / "other"
    folder.mkdir()
    for engine in program.parent.glob("*.gguf"):
        (folder / engine.name).symlink_to(engine)
    (folder / "model.txt").write_text(facts_of(other))
    compare(program, other, tmp_path, "a blue star", "--model", str(folder), seed=4, steps=3)


def test_threads_and_several_pictures(program, pipeline, tmp_path):
    for threads in (1, 3):
        done = run(
            program, tmp_path, "a star", "-o", f"{threads}.png", "--threads", str(threads), "--count", "2", seed=7
        )
        assert done.stdout == f"{threads}-1.png: seed 7\n{threads}-2.png: seed 8\n"
    for number, picture in enumerate(pipeline("a star", seed=7, batches=2), 1):
        for threads in (1, 3):
            with Image.open(tmp_path / f"{threads}-{number}.png") as made:
                np.testing.assert_array_equal(np.asarray(made), np.asarray(picture.image))


def test_new_names(program, tmp_path):
    (tmp_path / "00041-x.png").touch()
    assert run(program, tmp_path, "a", "--steps", "1", seed=5).stdout == "00042-5.png: seed 5\n"
    found = run(program, tmp_path, "a", "--steps", "1").stdout
    assert re.fullmatch(r"00043-\d+\.png: seed \d+\n", found)


def test_the_program_is_small(program):
    sizes = {each.name: each.stat().st_size for each in program.parent.iterdir() if each.suffix != ".gguf"}
    print(sizes)
    assert sum(sizes.values()) < 30e6


BAD = {
    "option": (["x", "--stepz", "3"], 2, "there is no option --stepz"),
    "value": (["x", "--steps"], 2, "--steps needs a value"),
    "number": (["x", "--steps", "three"], 2, "--steps: 'three' is not a whole number from 1 to 16384"),
    "none": (["x", "--steps", "0"], 2, "--steps: '0'"),
    "cfg": (["x", "--cfg", "nan"], 2, "--cfg: 'nan' is not a number"),
    "seed": (["x", "--seed", "4294967296"], 2, "--seed: '4294967296'"),
    "two": (["a", "circle"], 2, "there is a prompt already"),
    "width": (["x", "--width", "100"], 1, "width: 100 is not a multiple of 8, which coloured shapes needs"),
    "sampler": (["x", "--sampler", "none"], 1, "there is no sampler 'none'; there are euler, "),
    "scheduler": (["x", "--scheduler", "none"], 1, "there is no scheduler 'none'"),
    "generator": (["x", "--generator", "none"], 1, "there is no random number generator"),
    "lora": (["x <lora:y:1>"], 1, "<lora:y:1>: this program has no LoRAs"),
    "deep": (["(" * 201], 1, "more than 200 brackets"),
    "skip": (["x", "--clip-skip", "5"], 1, "clip skip 5: the text encoder has 3 layers"),
    "ending": (["x", "-o", "x.jpg"], 1, "x.jpg: pictures are written as .png"),
    "folder": (["x", "-o", "none/x.png"], 1, "none/x.png: the picture cannot be written: there is no such folder"),
    "model": (["x", "--model", "none"], 1, "model.txt: there is no such file"),
    "bytes": ([b"\xff"], 1, "a prompt is no text in UTF-8"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_cannot_be_is_said_in_one_line(program, tmp_path, name):
    words, status, message = BAD[name]
    done = run(program, tmp_path, *words)
    assert (done.returncode, done.stderr.count("\n")) == (status, 1), done.stderr
    assert done.stderr.startswith("error: ")
    assert message in done.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("part", ["text_encoder", "denoiser", "decoder"])
def test_engines_that_are_missing_or_damaged(program, tmp_path, part):
    folder = tmp_path / "model"
    folder.mkdir()
    for file in (*program.parent.glob("*.gguf"), program.parent / "model.txt"):
        (folder / file.name).symlink_to(file)
    engine = folder / f"{part}.gguf"
    engine.unlink()
    whole = (program.parent / engine.name).read_bytes()
    for content in (None, b"", whole[: len(whole) // 2], whole[:100] + b"\xff" * 20 + whole[120:]):
        if content is not None:
            engine.write_bytes(content)
        done = run(program, tmp_path, "x", "--model", str(folder), "-o", "x.png")
        assert (done.returncode, done.stderr.count("\n")) == (1, 1), done.stderr
        assert engine.name in done.stderr
    assert not (tmp_path / "x.png").exists()


def test_facts_that_are_missing_or_damaged(program, tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(program.parent, folder)
    facts = (folder / "model.txt").read_text()
    for changed, message in (
        (facts.replace("painter 1\n", ""), "there is no painter in it"),
        (facts.replace("painter 1\n", "painter 2\n"), "another version"),
        (facts.replace("width 128\n", "width wide\n"), "width is no number"),
        (facts.replace("scale 0.18215\n", ""), "there is no scale in it"),
    ):
        (folder / "model.txt").write_text(changed)
        done = run(program, tmp_path, "x", "--steps", "1", "--model", str(folder))
        assert (done.returncode, done.stderr.count("\n")) == (1, 1), done.stderr
        assert message in done.stderr


def test_models_and_folders_that_cannot_be(pipeline, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(ImageError, match="no folder of such a program"):
        bundle(pipeline, tmp_path)
    other = graphc_images.load()
    for name in ("Stable Diffusion XL", "Stable Diffusion 1 inpainting", "Flux dev"):
        (architecture,) = (each for each in ARCHITECTURES if each.name == name)
        other.model.recognized = replace(other.model.recognized, architecture=architecture)
        with pytest.raises(ModelError, match=name):
            bundle(other, tmp_path / "new")
    assert [each.name for each in tmp_path.iterdir()] == ["file"]


PIECES = (
    *(
        "(",
        ")",
        "[",
        "]",
        ":",
        "|",
        "\\",
        " ",
        "\n",
        "#",
        "BREAK",
        " AND ",
        "cat",
        "a red circle",
        "Ünï",
        "'s",
        "don't",
        "1.2",
    ),
    *(
        ":1.3)",
        ":0.5]",
        "::0.5]",
        ", ",
        "x," * 30,
        "word " * 80,
        "éÉ",
        "İ",
        "ß",
        "Σας",
        "日本",
        "٣",
        "½",
        "Ⅳ",
        "\u0301",
        "각",
    ),
    *(
        "e\u0301\u0323",
        "\u1100\u1161\u11a8",
        "😀",
        "<|endoftext|>",
        "<|startoftext|>",
        "\x1c",
        "\x85",
        "\u3000",
        "_BREAK",
    ),
    *(
        "AND",
        "ANDy",
        "<lora:x:1>",
        "<a b:c>",
        "10",
        "3",
        "+.5)",
        "1e3]",
        "\u2126",
        "\u0345",
        "ǅ",
        "\t",
        "ﬁ",
        "\u1e9b\u0323",
    ),
)


def texts(stride):
    """One of so many of Unicode's characters, marks in all orders, and prompts by chance."""
    draw = random.Random(0)
    characters = [chr(code) for code in range(1, 0x110000) if not 0xD800 <= code < 0xE000]
    found = characters[::stride]
    yield from ("a" + "b".join(found[start : start + 97]) for start in range(0, len(found), 97))
    marks = [each for each in characters if unicodedata.combining(each)]
    letters = [each for each in characters if unicodedata.decomposition(each)]
    for _ in range(700):
        yield "".join(draw.choice(letters) + "".join(draw.choices(marks, k=draw.randrange(4))) for _ in range(4))
    for _ in range(1000):
        yield "".join(draw.choices(PIECES, k=draw.randrange(14)))
    for _ in range(700):
        yield "".join(draw.choices("()[]:|\\ .5a\n1BREKAND,'é#", k=draw.randrange(30)))


def read_by_python(text, evaluations):
    """What `native_prompts.cpp` prints behind the tokens: words, and numbers for weights."""
    found = []
    try:
        plan = read_prompt(text, evaluations)
        if plan.networks:
            return [*found, "refused"]
        for part in plan.parts:
            found += [";", part.weight]
            for stage in part.stages:
                found += [",", str(stage.until)]
                for chunk in chunk_prompt(stage.text, CLIP_H):
                    found += [
                        "|",
                        *(each for pair in zip(map(str, chunk.ids), chunk.weights, strict=True) for each in pair),
                    ]
    except SettingError:
        return [*found, "refused"]
    return found


@pytest.mark.parametrize("stride", [11, pytest.param(1, marks=pytest.mark.thorough)])
def test_texts_are_read_as_python_reads_them(tmp_path, stride):
    (tmp_path / "tables.cpp").write_text(tables_source())
    sources = [NATIVE / PROGRAM / f"{name}.cpp" for name in ("text", "clip_tokenizer", "prompt")]
    command = ["c++", *WARNINGS, f"-I{NATIVE}", f"-I{NATIVE / PROGRAM}", HERE / "native_prompts.cpp", *sources]
    subprocess.run([*command, tmp_path / "tables.cpp", "-o", tmp_path / "read"], check=True, timeout=300)
    asked = [(text, 1 + place % 7) for place, text in enumerate(texts(stride))]
    given = b"".join(b"%d %d\n%s" % (len(text.encode()), count, text.encode()) for text, count in asked)
    done = subprocess.run([tmp_path / "read"], input=given, capture_output=True, check=True, timeout=300)
    lines = done.stdout.decode().splitlines()
    assert len(lines) == len(asked)
    tokenizer = ClipTokenizer()
    for (text, count), line in zip(asked, lines, strict=True):
        words = [float.fromhex(word) if "0x" in word else word for word in line.replace("*", " ").split()]
        assert words == [*map(str, tokenizer.encode(text)), *read_by_python(text, count)], text


def test_bytes_that_are_no_text_are_refused(tmp_path):
    (tmp_path / "main.cpp").write_text(
        '#include "text.hpp"\nint main(int, char ** a) { return !graphc::images::decoded(a[1]); }\n'
    )
    (tmp_path / "tables.cpp").write_text(tables_source())
    command = ["c++", *WARNINGS, f"-I{NATIVE / PROGRAM}", NATIVE / PROGRAM / "text.cpp"]
    subprocess.run([*command, tmp_path / "main.cpp", tmp_path / "tables.cpp", "-o", tmp_path / "main"], check=True)
    bad = [
        b"\xff",
        b"\xc0\x80",
        b"\xe0\x80\x80",
        b"\xed\xa0\x80",
        b"\xf4\x90\x80\x80",
        b"\xf8\x88\x80\x80\x80",
        b"a\xc3",
        b"\x80",
    ]
    good = ["", "a", "é", "\u0800", "\ud7ff", "\ue000", "\U00010000", "\U0010ffff"]
    for text in (*bad, *(each.encode() for each in good)):
        refused = subprocess.run([tmp_path / "main", text], check=False).returncode
        assert refused == (text in bad), text
