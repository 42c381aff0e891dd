"""Engines run, and take weights and LoRAs, where nothing can read ONNX models; what does needs them says so in one line."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

import graphc
from graphc.frontend.packages import PACKAGES
from graphc.runtime.values import ELEMENT_TYPES

ROOT = Path(__file__).parents[1]
ENGINES = ROOT / "tests/engines/1"
DIGITS = ROOT / "graphc/demo/digits.onnx"
LINE = r"error: (.*: )?ONNX models need onnx, onnx-ir and protobuf, engines do not: pip install .*\n"


def without(
    code: str, *arguments: object, folder: Path, missing: tuple[str, ...] = PACKAGES
) -> subprocess.CompletedProcess:
    """A Python program in a process of its own, in a folder, without some packages."""
    blocked = f"import sys; sys.modules |= dict.fromkeys({missing})\n"
    command = [sys.executable, "-c", blocked + code, *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder, env=environment)


COMMAND = "from graphc.cli import main; main()"

RUN = """
import graphc, numpy as np
kept = np.load(sys.argv[1] + "/rows.npz")
inputs = {key[3:]: kept[key] for key in kept.files if key.startswith("in ")}
model = graphc.load(sys.argv[1] + "/rows.gguf.gz")
before = model.run(inputs)["y"]
np.testing.assert_allclose(before, kept["out y"], rtol=1e-5, atol=1e-6)
assert graphc.Session(sys.argv[1] + "/rows.gguf.gz").run(["best"], inputs)[0].shape == (2, 3)
assert graphc.OrtValue.ortvalue_from_numpy(before).element_type() == 1
"""

REFIT = """
import graphc, numpy as np
kept, folder = np.load(sys.argv[1] + "/stripped.npz"), sys.argv[1]
weights = folder + "/stripped.safetensors"
model = graphc.load(folder + "/stripped.gguf.gz", weights=weights)
given = {name: 2 * array for name, array in graphc.open_checkpoint(weights).items()}
first = model.run(image=kept["in image"])["y"]
model.load_weights(given)
assert abs(model.run(image=kept["in image"])["y"] - first).max() > 0.1
model.save("saved.gguf")
graphc.load("saved.gguf").close()
"""

LORA = """
import graphc, numpy as np
model = graphc.load("dense.gguf")
x = np.ones((2, 6), np.float32)
before = model.run(x=x)["y"]
factors = {"dense.lora_A.weight": np.ones((2, 6), np.float32), "dense.lora_B.weight": np.ones((4, 2), np.float32)}
model.load_lora(factors)
assert abs(model.run(x=x)["y"] - before - 12).max() < 1e-4
"""

PAINT = """
import graphc_images
(picture,) = graphc_images.load()("a red circle", steps=1, seed=1)
picture.save("picture.png")
"""


@pytest.mark.parametrize("code", [RUN, REFIT, LORA, PAINT], ids=["run", "refit", "lora", "paint"])
def test_engines_need_none_of_them(tmp_path: Path, code: str) -> None:
    if code is LORA:
        dense(tmp_path)
    if code is PAINT:
        pytest.importorskip("PIL")
    done = without(code, ENGINES, folder=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


def dense(folder: Path) -> None:
    """A product with a weight that has PyTorch's name, as PyTorch stores it."""
    weight = np.random.default_rng(0).standard_normal((4, 6)).astype(np.float32)
    nodes = [
        onnx.helper.make_node("Transpose", ["dense.weight"], ["turned"], perm=[1, 0]),
        onnx.helper.make_node("MatMul", ["x", "turned"], ["y"]),
    ]
    x, y = (onnx.helper.make_tensor_value_info(name, 1, ["batch", size]) for name, size in (("x", 6), ("y", 4)))
    graph = onnx.helper.make_graph(nodes, "dense", [x], [y], [onnx.numpy_helper.from_array(weight, "dense.weight")])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 21)], ir_version=10)
    graphc.compile(model, folder / "dense.gguf", threads=1).close()


@pytest.mark.parametrize("missing", PACKAGES)
@pytest.mark.parametrize("words", ["compile MODEL -o m.gguf", "run MODEL --random 0"])
def test_each_package_is_missed_in_one_line(tmp_path: Path, words: str, missing: str) -> None:
    command = [str(DIGITS) if word == "MODEL" else word for word in words.split()]
    done = without(COMMAND, *command, folder=tmp_path, missing=(missing,))
    assert (done.returncode, done.stdout) == (1, "")
    assert re.fullmatch(LINE, done.stderr)
    assert missing.partition(".")[0] in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "words",
    [
        "bench MODEL --rounds 1", "bisect MODEL", "check MODEL", "diff MODEL", "explain silu MODEL", "inspect MODEL",
        "profile MODEL", "simulate MODEL", "tune MODEL", "view MODEL -o v.html",
    ],
)  # fmt: skip
def test_every_command_that_reads_models_says_so(tmp_path: Path, words: str) -> None:
    done = without(COMMAND, *(str(DIGITS) if word == "MODEL" else word for word in words.split()), folder=tmp_path)
    assert done.returncode == 1
    assert re.fullmatch(LINE, done.stderr)


def test_python_says_so(tmp_path: Path) -> None:
    code = """
import graphc
for call in (graphc.compile, graphc.Session):
    try:
        call(sys.argv[1])
    except graphc.GraphcError as error:
        assert "pip install onnx" in str(error)
    else:
        raise AssertionError(call)
"""
    done = without(code, DIGITS, folder=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_demonstration_says_so(tmp_path: Path) -> None:
    done = without(COMMAND, "demo", folder=tmp_path)
    assert done.returncode == 1
    assert re.fullmatch(LINE, done.stderr)


def test_numbers_of_types_are_those_of_onnx() -> None:
    for number in onnx.TensorProto.DataType.values()[1:]:
        dtype = onnx.helper.tensor_dtype_to_np_dtype(number)
        assert ELEMENT_TYPES[number] == dtype
        assert graphc.OrtValue(np.zeros(1, dtype)).element_type() == number
    assert graphc.OrtValue(np.array(["text"])).element_type() == onnx.TensorProto.STRING
    with pytest.raises(graphc.GraphcError, match="no elements of type datetime64"):
        graphc.OrtValue(np.zeros(1, "datetime64[s]")).element_type()
    for wrong in (0, -1, 99):
        with pytest.raises(graphc.GraphcError, match=f"{wrong} is not an element type"):
            graphc.OrtValue.ortvalue_from_shape_and_type([1], wrong)
