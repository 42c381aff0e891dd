"""Row numbers of tables that are inputs: those below 0 count from the end, and others that are not there are refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from frontend_models import model, node, value

import graphc
from graphc.errors import InputError

RANDOM = np.random.default_rng(2)
TABLES = {"table": RANDOM.random((10, 4), np.float32), "other": RANDOM.random((10, 4), np.float32)}
LOOKED_UP = [node("Gather", "table rows", "a"), node("Gather", "other rows", "b"), node("Add", "a b", "y")]


def looking(
    nodes: list[onnx.NodeProto], outputs: list[str], dtype: type = np.int64, **more: np.ndarray
) -> onnx.ModelProto:
    return model(nodes, [value("rows", ["n"], dtype)], outputs, TABLES | more)


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_row_numbers_below_0_count_from_the_end(dtype: type, tmp_path: Path) -> None:
    proto = looking(LOOKED_UP, ["y"], dtype)
    rows = np.array([0, -1, 9, -10, 3, -7], dtype)
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    (expected,) = session.run(None, {"rows": rows})
    compiled = graphc.compile(proto, tmp_path / "model.gguf")
    assert any(call.function == "ggml_get_rows" for call in compiled.program.calls)
    before = rows.copy()
    np.testing.assert_array_equal(compiled.run(rows=rows)["y"], expected)
    np.testing.assert_array_equal(graphc.load(tmp_path / "model.gguf").run(rows=rows)["y"], expected)
    np.testing.assert_array_equal(rows, before)


@pytest.mark.parametrize("row", [10, -11, 2**40])
def test_a_row_that_is_not_there_is_one_message(row: int) -> None:
    with pytest.raises(InputError, match=rf"rows: {row} at \(1,\) is not in 0\.\.9$"):
        graphc.compile(looking(LOOKED_UP, ["y"])).run(rows=np.array([1, row]))


SEEN = {
    "as a number": ([*LOOKED_UP, node("Neg", "rows", "z")], ["y", "z"]),
    "as a result": ([*LOOKED_UP, node("Identity", "rows", "z")], ["y", "z"]),
    "by a table of another length": ([*LOOKED_UP, node("Gather", "longer rows", "z")], ["y", "z"]),
}


@pytest.mark.parametrize("name", SEEN)
def test_what_something_else_sees_is_not_replaced(name: str) -> None:
    """The input is held in one tensor: what numbers rows there is what the rest of the model reads."""
    compiled = graphc.compile(looking(*SEEN[name], longer=RANDOM.random((12, 2), np.float32)))
    assert compiled.run(rows=np.array([3, 9]))["y"].shape == (2, 4)
    with pytest.raises(InputError, match=r"rows: -1 at \(1,\) is not in 0\.\.9$"):
        compiled.run(rows=np.array([3, -1]))
