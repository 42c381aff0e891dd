"""The demonstration: a small network with trained weights, compiled and run on digits that it was not trained on.

`digits.onnx` and `digits.npz` are made by `examples/train_digits.py`; the digits are those of scikit-learn.
"""

from __future__ import annotations

import statistics
from dataclasses import asdict, dataclass
from importlib.resources import as_file, files
from pathlib import Path
from time import perf_counter

import numpy as np

from graphc.compiler import compile_program, write, write_project
from graphc.files import replacing
from graphc.frontend.onnx import load as load_onnx
from graphc.ir.interp import run
from graphc.loading import load
from graphc.targets.ggml.run.device.options import Place
from graphc.trace import SILENT, Progress

RUNS = 200
SHADES = " ░▒▓█"
LARGEST_PIXEL = 16


@dataclass(frozen=True)
class Demonstration:
    """What was made and measured: files, with the ONNX model that they are made of; an example (pixels 0..16, label,
    probabilities); accuracy over `count` digits; seconds for one digit; the largest difference to the NumPy reference, in units
    of the largest score."""

    model: Path
    engine: Path
    project: Path
    picture: np.ndarray
    label: int
    probabilities: np.ndarray
    accuracy: float
    count: int
    seconds: float
    difference: float


def demonstrate(directory: Path, chosen: int, place: Place, progress: Progress = SILENT) -> Demonstration:
    """Compile the digit classifier into a folder, run it on the test digits, and show number `chosen` of them."""
    package = files("graphc.demo")
    with as_file(package / "digits.onnx") as model_path, as_file(package / "digits.npz") as digits_path:
        with np.load(digits_path, allow_pickle=False) as digits:
            images, labels = digits["images"], digits["labels"]
        content = model_path.read_bytes()
    directory.mkdir(parents=True, exist_ok=True)
    onnx, engine, project = directory / "digits.onnx", directory / "digits.gguf", directory / "digits-cpp"
    with replacing(onnx) as unfinished:
        unfinished.write_bytes(content)
    graph = load_onnx(onnx)
    program = compile_program(onnx, progress=progress)
    write(program, engine, progress)
    write_project(program, project)
    model = load(engine, **asdict(place))
    pixels = images[:, None].astype(np.float32)
    scores = model.run(pixels=pixels)["scores"]
    reference = run(graph, {"pixels": pixels})["scores"]
    example = chosen % len(images)
    times = []
    for index in range(RUNS):
        one = pixels[index % len(pixels)][None]
        start = perf_counter()
        model.run(pixels=one)
        times.append(perf_counter() - start)
    return Demonstration(
        model=onnx,
        engine=engine,
        project=project,
        picture=images[example],
        label=int(labels[example]),
        probabilities=softmax(scores[example]),
        accuracy=float((scores.argmax(1) == labels).mean()),
        count=len(images),
        seconds=statistics.median(times),
        difference=float(np.abs(scores - reference).max() / np.abs(reference).max()),
    )


def softmax(scores: np.ndarray) -> np.ndarray:
    """Probabilities of scores."""
    exponentials: np.ndarray = np.exp(scores - scores.max())
    probabilities: np.ndarray = exponentials / exponentials.sum()
    return probabilities


def picture_lines(picture: np.ndarray) -> list[str]:
    """The pixels as characters, two for each so that they look square."""
    shades = np.rint(picture.astype(np.float64) * (len(SHADES) - 1) / LARGEST_PIXEL).astype(int)
    return ["".join(SHADES[shade] * 2 for shade in row) for row in shades]
