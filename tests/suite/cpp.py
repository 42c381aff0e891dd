"""Cases through compiled C++: their projects, gathered into one program, give the bits that the model in this process gives."""

from __future__ import annotations

import functools
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from graphc.cmake import find_cmake
from graphc.kernels.c.compiled import machine_flags
from graphc.onnx_backend import Prepared
from graphc.runtime.model import Model
from graphc.runtime.specializing import flat
from graphc.targets.ggml.cpp import render_project
from graphc.targets.ggml.cpp.project import RUNTIME, runtime_files

from .cases import Case
from .pool import WORKERS, run_all
from .quick_cpp import OPTIONS
from .run import Outcome, check, outcome, quick_flags

PIECE = 64
"""Models that are compiled as one file: the headers cost as much as ten models."""

RUNNER = Path(__file__).parent / "runner"

SOURCES = ("model.cpp", "weights.cpp", "kernels.h", "kernels.c")
"""The files of a project that every model has for itself and that are compiled."""

HEADERS = "include/"
"""Where a project's header is."""

COMPLAINT = re.compile(r"case_(\d+)/[\w.]+:[\d:]+ (?:fatal )?(error: .*)")
"""What the compiler says of a file of a case."""


def run_cpp(cases: Sequence[Case], root: Path, compiled: Sequence[Case] | None = None) -> list[Outcome]:
    """The outcome of every case; what is generated for those that are `compiled` (None: all), and how it went, is in the folders
    `case_<number>` of `root`.

    Wrong is also what differs from the results in this process, or what the C++ compiler does not take.
    """
    numbers = frozenset(case.number for case in (cases if compiled is None else compiled))
    outcomes = run_all(cases, functools.partial(prepare_some, root, numbers))
    written = [case.number for case in cases if (folder_of(root, case) / "model.gguf").is_file()]
    if written:
        build(root, written)
        run(root)
    return [
        outcome(case, functools.partial(compare_results, root)) if folder_of(root, case).is_dir() else each
        for case, each in zip(cases, outcomes, strict=True)
    ]


def sample(cases: Sequence[Case], stride: int) -> list[Case]:
    """The first case of each operator, and every `stride`-th case."""
    chosen, known = [], set()
    for case in cases:
        operators = {(node.domain, node.op_type) for node in case.model().graph.node}
        if case.number % stride == 0 or not operators <= known:
            chosen.append(case)
        known |= operators
    return chosen


def folder_of(root: Path, case: Case) -> Path:
    """Where the files of a case are."""
    return root / f"case_{case.number}"


def prepare_some(root: Path, numbers: frozenset[int], case: Case) -> Outcome:
    """`prepare` a case of these numbers. Of another, only have its sources generated."""
    return prepare(root, case) if case.number in numbers else outcome(case, lambda case: render_case(case, check(case)))


def render_case(case: Case, prepared: Prepared) -> None:
    """Raise AssertionError unless there is C++ for the model that was run."""
    ((inputs, _),) = case.data_sets(case.model())
    model, _ = _compiled(prepared, inputs)
    assert model is None or render_project(model.program)["model.cpp"]


def prepare(root: Path, case: Case) -> Outcome:
    """Run a case in this process, and write what `write_case` does."""
    return outcome(case, lambda case: write_case(folder_of(root, case), case, check(case)))


def write_case(folder: Path, case: Case, prepared: Prepared) -> None:
    """Write what C++ computes a case from, `in<i>.npy` and `model.gguf`, its sources, and the results as `right<i>.npy`.

    Nothing is written where all results were known when the model was compiled.
    """
    ((inputs, _),) = case.data_sets(case.model())
    model, given = _compiled(prepared, inputs)
    if model is None:
        return
    texts = render_project(model.program, f"case_{case.number}")
    folder.mkdir()
    for name in SOURCES:
        if name in texts:
            (folder / name).write_text(texts[name])
    for path in (path for path in texts if path.startswith(HEADERS)):
        (folder.parent / path).parent.mkdir(parents=True)
        (folder.parent / path).write_text(texts[path])
    arrays = {info.name: given[info.name] for info in model.inputs}
    for i, array in enumerate(arrays.values()):
        _save(folder / f"in{i}.npy", array)
    for i, array in enumerate(model.run(arrays).values()):
        _save(folder / f"right{i}.npy", array)
    model.save(folder / "model.gguf")


def _compiled(prepared: Prepared, inputs: Sequence[Any]) -> tuple[Model | None, dict[str, np.ndarray]]:
    """The model that was run last, and the arrays by the names that its inputs have."""
    named = dict(zip(prepared.inputs, inputs, strict=True))
    model = prepared.model if isinstance(prepared.model, Model) else prepared.model.variants[0].model
    return model, {key: array for name, item in named.items() for key, array in flat(name, item).items()}


def _save(path: Path, array: np.ndarray) -> None:
    """Write an array, one of a type of ml_dtypes as bytes: NumPy does not read what it writes of them."""
    np.save(path, array.view(f"V{array.dtype.itemsize}") if array.dtype.isbuiltin == 2 else array)


def build(root: Path, numbers: Sequence[int]) -> None:
    """Compile the models into `build/runner`. A model that the compiler does not take is left out, with its `failed.txt`."""
    for path, text in runtime_files():
        (root / RUNTIME / path).parent.mkdir(parents=True, exist_ok=True)
        (root / RUNTIME / path).write_text(text)
    settings = {
        "CASES": root,
        "RUNTIME": root / RUNTIME,
        "KERNEL_FLAGS": ";".join((*quick_flags(), *machine_flags())),
    }
    configure = [
        find_cmake(),
        "-S",
        RUNNER,
        "-B",
        root / "build",
        *OPTIONS,
        *(f"-D{key}={text}" for key, text in settings.items()),
    ]
    compile = [find_cmake(), "--build", root / "build", "--parallel", str(WORKERS)]
    while True:
        write_pieces(root, numbers)
        subprocess.run(configure, capture_output=True, check=True)
        done = subprocess.run(compile, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return
        complaints = {int(number): text for number, text in COMPLAINT.findall(done.stdout + done.stderr)}
        assert complaints, (done.stdout + done.stderr)[-4000:]
        for number, text in complaints.items():
            (root / f"case_{number}" / "failed.txt").write_text(text)
            (root / f"case_{number}" / "kernels.c").unlink(missing_ok=True)
        numbers = [number for number in numbers if number not in complaints]


def write_pieces(root: Path, numbers: Sequence[int]) -> None:
    """Write the files that bring the models' code together and add the models to the runner's table."""
    for file in root.glob("models_*.cpp"):
        file.unlink()
    for start in range(0, len(numbers), PIECE):
        lines = ['#include "runner.h"']
        for number in numbers[start : start + PIECE]:
            lines += [f'#include "case_{number}/{name}"' for name in ("model.cpp", "weights.cpp")]
            lines.append(f'const bool added_{number} = add<case{number}::Case{number}>("case_{number}");')
        (root / f"models_{start}.cpp").write_text("\n".join([*lines, ""]))


def run(root: Path) -> None:
    """Run every model, on one thread where this process used all: a result does not depend on how many there are."""
    commands = [[root / "build" / "runner", root, str(part), str(WORKERS)] for part in range(WORKERS)]
    processes = [subprocess.Popen(command, stderr=subprocess.DEVNULL) for command in commands]
    assert [process.wait() for process in processes] == [0] * WORKERS


def compare_results(root: Path, case: Case) -> None:
    """Raise AssertionError unless the results of C++ are there, and are those of this process."""
    folder = folder_of(root, case)
    failure = folder / "failed.txt"
    assert not failure.exists(), f"C++: {failure.read_text()}"
    for path in sorted(folder.glob("right*.npy")):
        right, result = np.load(path), np.load(folder / path.name.replace("right", "out"))
        assert result.shape == right.shape, f"C++: shape {result.shape}, not {right.shape}"
        assert result.dtype == right.dtype, f"C++: dtype {result.dtype}, not {right.dtype}"
        assert result.tobytes() == right.tobytes(), "C++: not the bits of the results in this process"
