"""Error against PyTorch, beside onnxruntime's error on the same file.

    python examples/export.py --exporter dynamo --output models tiny_cnn sd15_unet_small
    python benchmarks/accuracy.py models [--cpp] [NAME ...]

For each exported model under the folder (NAME/EXPORTER/model.onnx with inputs.npz and outputs.npz beside it): the largest
error of an output, relative to its largest element, through the in-process model and, with --cpp, through the compiled C++
program, which must give the same bits. The bounds are 1e-4 and three times onnxruntime's error.
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import graphc
from graphc.build import build
from graphc.runtime.compare import relative_error

BOUND = 1e-4
TIMES_ONNXRUNTIME = 3.0
ROUNDING = 1e-6
"""An error below this is rounding, whatever onnxruntime's is."""


@dataclass(frozen=True)
class Row:
    """What was measured of one file."""

    model: str
    exporter: str
    ours: float
    onnxruntime: float
    compile_seconds: float
    run_seconds: float
    cpp: str

    @property
    def good(self) -> bool:
        return self.ours <= BOUND and self.ours <= max(TIMES_ONNXRUNTIME * self.onnxruntime, ROUNDING)


def by_onnxruntime(path: Path, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The outputs of onnxruntime on the CPU."""
    import onnxruntime

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, inputs), strict=True))


def by_cpp(project: Path, engine: Path, inputs: dict[str, np.ndarray], names: list[str]) -> dict[str, np.ndarray]:
    """The outputs of the compiled C++ program, through .npy files."""
    binary = build(project)
    with tempfile.TemporaryDirectory() as folder:
        command = [str(binary), "--engine", str(engine), "--output", folder]
        for name, array in inputs.items():
            file = Path(folder) / f"in-{name}.npy"
            np.save(file, array)
            command += ["--input", f"{name}={file}"]
        subprocess.run(command, check=True, capture_output=True, text=True)
        return {name: np.load(Path(folder) / f"{name}.npy") for name in names}


def measure(folder: Path, with_cpp: bool) -> Row:
    """Compile and run one file in every way."""
    path = folder / "model.onnx"
    inputs = dict(np.load(folder / "inputs.npz"))
    expected = dict(np.load(folder / "outputs.npz"))
    with tempfile.TemporaryDirectory() as scratch:
        engine = Path(scratch) / "model.gguf"
        project = Path(scratch) / "cpp" if with_cpp else None
        start = time.perf_counter()
        model = graphc.compile(path, engine, cpp=project)
        compiled = time.perf_counter()
        got = model.run(inputs)
        finished = time.perf_counter()
        model.close()
        cpp = "-"
        if project is not None:
            results = by_cpp(project, engine, inputs, list(got))
            same = all(np.array_equal(results[name], got[name], equal_nan=True) for name in got)
            cpp = "same bits" if same else f"differs by {relative_error(results, got):.1e}"
    theirs = relative_error(by_onnxruntime(path, inputs), expected)
    ours = relative_error(got, expected)
    return Row(folder.parent.name, folder.name, ours, theirs, compiled - start, finished - compiled, cpp)


def main() -> None:
    """Print a table, a line a file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", type=Path, help="the folder that examples/export.py wrote")
    parser.add_argument("names", nargs="*", help="only these models")
    parser.add_argument("--cpp", action="store_true", help="build and run the C++ project too")
    parser.add_argument("--exporter", choices=["dynamo", "torchscript"], help="only this exporter's files")
    options = parser.parse_args()
    print("| model | exporter | graphc | onnxruntime | compile s | first run s | C++ | |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    failed = 0
    for path in sorted(options.models.glob("*/*/model.onnx")):
        folder = path.parent
        if options.names and folder.parent.name not in options.names:
            continue
        if options.exporter and folder.name != options.exporter:
            continue
        try:
            row = measure(folder, options.cpp)
        except Exception as error:
            message = " ".join(str(error).split())[:400]
            print(f"| {folder.parent.name} | {folder.name} | {type(error).__name__}: {message} |", flush=True)
            failed += 1
            continue
        failed += not row.good or row.cpp.startswith("differs")
        print(
            f"| {row.model} | {row.exporter} | {row.ours:.1e} | {row.onnxruntime:.1e} | {row.compile_seconds:.1f} "
            f"| {row.run_seconds:.2f} | {row.cpp} | {'' if row.good else 'out of bounds'} |",
            flush=True,
        )
    print(f"\n{failed} failed or out of bounds")


if __name__ == "__main__":
    main()
