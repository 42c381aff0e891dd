"""Types of numbers that NumPy does not have, with ml_dtypes and without: what runs, and what is read, is the same."""

from __future__ import annotations

import re
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
import torch
from safetensors.numpy import save_file

import graphc
from graphc.frontend import packages
from graphc.ir import foreign
from graphc.ir.types import NARROW
from tests.test_without_onnx import DIGITS, ENGINES, LINE, LORA, PAINT, REFIT, RUN, dense, without

MISSING = ("ml_dtypes", *packages.PACKAGES)
"""What musl has no wheels of."""


@pytest.mark.parametrize("code", [RUN, REFIT, LORA, PAINT], ids=["run", "refit", "lora", "paint"])
def test_engines_need_no_ml_dtypes(tmp_path: Path, code: str) -> None:
    if code is LORA:
        dense(tmp_path)
    done = without(code, ENGINES, folder=tmp_path, missing=MISSING)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("name", foreign.NUMBERS)
def test_numbers_of_every_code(name: str) -> None:
    dtype = np.dtype(getattr(ml_dtypes, name))
    codes = np.arange(1 << 8 * dtype.itemsize, dtype=f"u{dtype.itemsize}")
    np.testing.assert_array_equal(foreign.NUMBERS[name](codes.view(np.uint8)), codes.view(dtype).astype(np.float32))


@pytest.mark.filterwarnings("ignore:invalid value")
def test_rounding_to_bfloat16() -> None:
    bits = np.random.default_rng(0).integers(0, 1 << 32, 1 << 20, dtype=np.uint32)
    halfway = np.arange(1 << 16, dtype=np.uint32)[:, None] << 16 | np.array([0x7FFF, 0x8000, 0x8001], np.uint32)
    numbers = np.concatenate([bits, halfway.ravel()]).view(np.float32)
    np.testing.assert_array_equal(foreign.to_bf16(numbers), numbers.astype(ml_dtypes.bfloat16).view(np.uint16))


REFITTED = """
import graphc, numpy as np
from graphc.weights.refit import Refit
for file in ("w.safetensors", "w.pt"):
    for dtype in ("f32", "bf16", "f16"):
        model = graphc.load("dense.gguf", weights=file, dtype=dtype)
        np.save(f"{file}-{dtype}.npy", model.run(x=np.linspace(-1, 1, 12, dtype=np.float32).reshape(2, 6))["y"])
        model.load_lora("lora.safetensors")
        np.save(f"{file}-{dtype}-lora.npy", model.run(x=np.linspace(-1, 1, 12, dtype=np.float32).reshape(2, 6))["y"])
        model.save("again.gguf")
"""


@pytest.mark.torch
@pytest.mark.parametrize("type", [torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2], ids=str)
def test_weights_of_such_types(tmp_path: Path, type: torch.dtype) -> None:
    """Read, stored and changed by LoRAs to the same bits."""
    import safetensors.torch

    found = []
    for missing in ((), MISSING):
        folder = tmp_path / str(len(missing))
        folder.mkdir()
        dense(folder)
        weights = {"dense.weight": torch.linspace(-3, 3, 24).reshape(4, 6).to(type)}
        safetensors.torch.save_file(weights, folder / "w.safetensors")
        torch.save({"dense.weight": weights["dense.weight"].to(torch.bfloat16)}, folder / "w.pt")
        factors = {"A": torch.ones(2, 6, dtype=torch.bfloat16), "B": torch.full((4, 2), 0.3, dtype=torch.bfloat16)}
        safetensors.torch.save_file(
            {f"dense.lora_{name}.weight": each for name, each in factors.items()}, folder / "lora.safetensors"
        )
        done = without(REFITTED, folder=folder, missing=missing)
        assert (done.returncode, done.stderr) == (0, "")
        found.append({each.name: np.load(each) for each in sorted(folder.glob("*.npy"))})
    assert len(found[0]) == 12
    assert found[0].keys() == found[1].keys()
    for name, array in found[0].items():
        np.testing.assert_array_equal(found[1][name], array, err_msg=name)


SCALED = """
import graphc, numpy as np
np.save("y.npy", graphc.load("dense.gguf", weights="w.safetensors").run(x=np.ones((2, 6), np.float32))["y"])
"""


def test_scaled_numbers(tmp_path: Path) -> None:
    dense(tmp_path)
    weight = np.linspace(-2, 2, 24).reshape(4, 6).astype(ml_dtypes.float8_e4m3fn)
    scales = np.float32([[0.3], [0.5], [0.7], [0.9]])
    save_file({"dense.weight": weight, "dense.scale_weight": scales}, tmp_path / "w.safetensors")
    found = []
    for missing in ((), MISSING):
        done = without(SCALED, folder=tmp_path, missing=missing)
        assert (done.returncode, done.stderr) == (0, "")
        found.append(np.load(tmp_path / "y.npy"))
    np.testing.assert_array_equal(*found)
    np.testing.assert_allclose(found[0][0], (weight.astype(np.float32) * scales).sum(1), rtol=1e-5)


BF16_ENGINE = """
import graphc
try:
    graphc.load("m.gguf").run(x=[[1.0, 2.0]])
except graphc.GraphcError as error:
    print(error)
"""


def test_arrays_of_bfloat16_are_refused(tmp_path: Path) -> None:
    x, y = (onnx.helper.make_tensor_value_info(name, onnx.TensorProto.BFLOAT16, ["n", 2]) for name in "xy")
    graph = onnx.helper.make_graph([onnx.helper.make_node("Relu", ["x"], ["y"])], "narrow", [x], [y])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 21)], ir_version=10)
    graphc.compile(model, tmp_path / "m.gguf", threads=1).close()
    done = without(BF16_ENGINE, folder=tmp_path, missing=MISSING)
    assert (done.returncode, done.stderr) == (0, "")
    assert "bfloat16" in done.stdout


def test_stand_ins_are_types_of_their_own(tmp_path: Path) -> None:
    code = """
import numpy as np
from graphc.errors import InputError
from graphc.ir.types import BF16, NARROW, TensorType
assert len({BF16, *NARROW}) == 11
assert BF16 != np.dtype("uint16") and np.dtype("uint16") != BF16
assert str(TensorType(BF16, (2,))) == "bfloat16[2]" and TensorType(BF16, (2,)).nbytes == 4
for make in (lambda: np.zeros(3, BF16), lambda: np.zeros(3, np.float32).astype(BF16), lambda: np.zeros(4, np.uint8).view(BF16)):
    try:
        make()
    except InputError as error:
        assert "ml_dtypes" in str(error)
    else:
        raise AssertionError
"""
    assert len(NARROW) == 10
    done = without(code, folder=tmp_path, missing=MISSING)
    assert (done.returncode, done.stderr) == (0, "")


def test_musl_is_told_that_there_are_no_wheels(tmp_path: Path) -> None:
    code = """
import sysconfig
sysconfig.get_config_vars()["SOABI"] = "cpython-311-x86_64-linux-musl"
from graphc.cli import main; main()
"""
    done = without(code, "compile", DIGITS, "-o", "m.gguf", folder=tmp_path, missing=MISSING)
    assert done.returncode == 1
    assert re.fullmatch(LINE, done.stderr)
    assert "as onnx has no wheel for musl" in done.stderr
