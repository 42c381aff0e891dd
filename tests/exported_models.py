"""Models of the zoo as their exporters write them, each exported once for all tests of a run, whichever process has them."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from built_once import built_once

import graphc

torch = pytest.importorskip("torch")
sys.path.insert(0, str(Path(__file__).parent.parent / "examples"))

from export import export  # noqa: E402
from zoo import EXAMPLES  # noqa: E402

Arrays = dict[str, np.ndarray]


def exported(factory: pytest.TempPathFactory, name: str, exporter: str = "dynamo") -> tuple[Path, Arrays, Arrays]:
    """A model, its inputs, and what PyTorch gives for them."""
    folder = built_once(factory, f"{name}-{exporter}", lambda folder: export(EXAMPLES[name], exporter, folder))
    return folder / "model.onnx", dict(np.load(folder / "inputs.npz")), dict(np.load(folder / "outputs.npz"))


def engine_of(factory: pytest.TempPathFactory, name: str) -> tuple[Path, Arrays, Arrays]:
    """The same with its engine in the model's place."""

    def build(folder: Path) -> None:
        graphc.compile(exported(factory, name)[0], folder / "model.gguf", threads=1).close()

    _, inputs, expected = exported(factory, name)
    return built_once(factory, f"{name}-engine", build) / "model.gguf", inputs, expected
