"""Compare onnxruntime with PyTorch on exported models.

    python examples/verify.py models

walks the folder and prints, for each exported model, the error of each output, max |a-b| / max |b|.
"""

import argparse
import sys
from pathlib import Path

import numpy
import onnxruntime


def error(folder: Path) -> dict[str, float]:
    """The error of each output of the model in a folder that export.py wrote."""
    session = onnxruntime.InferenceSession(folder / "model.onnx", providers=["CPUExecutionProvider"])
    wanted = {value.name for value in session.get_inputs()}
    with numpy.load(folder / "inputs.npz") as inputs, numpy.load(folder / "outputs.npz") as expected:
        if wanted != set(inputs):
            raise ValueError(f"{folder}: the model takes {sorted(wanted)}, inputs.npz holds {sorted(inputs)}")
        names = list(expected)
        results = session.run(names, dict(inputs))
        return {name: difference(result, expected[name]) for name, result in zip(names, results, strict=True)}


def difference(result: numpy.ndarray, expected: numpy.ndarray) -> float:
    """The error max |a-b| / max |b|; infinite where shape or dtype differ, NaN where either has one."""
    if result.shape != expected.shape or result.dtype != expected.dtype:
        return float("inf")
    return float(numpy.abs(result - expected).max() / numpy.abs(expected).max())


def main() -> None:
    """The command line: fails where an error exceeds the tolerance."""
    parser = argparse.ArgumentParser(description="Compare onnxruntime with PyTorch on exported models.")
    parser.add_argument("folders", metavar="DIR", nargs="+", type=Path, help="searched for model.onnx")
    parser.add_argument("--tolerance", type=float, default=1e-4)
    options = parser.parse_args()
    good = True
    for folder in sorted(path.parent for root in options.folders for path in root.rglob("model.onnx")):
        errors = error(folder)
        good &= all(value <= options.tolerance for value in errors.values())
        listed = "  ".join(f"{name} {value:.1e}" for name, value in errors.items())
        print(f"{folder!s:50} {listed}", flush=True)
    sys.exit(not good)


if __name__ == "__main__":
    main()
