"""Row numbers of tables that are inputs: those below 0 count from the end, and others that are not there are refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from frontend_models import model, node, value

import graphc
from graphc.errors import InputError
from graphc.ops.indexing import RowNumbers
from graphc.targets.ggml.program.tensor import ProgramError
from graphc.targets.ggml.program.verify import check_row_numbers

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


LARGE = RANDOM.random((600, 8), np.float32)
COMPUTED = {
    "Gather": [node("Add", "rows offset", "moved"), node("Gather", "large moved", "y")],
    "GatherND": [
        node("Add", "rows offset", "moved"),
        node("Unsqueeze", "moved last", "tuples"),
        node("GatherND", "large tuples", "y"),
    ],
}


def computed(name: str) -> onnx.ModelProto:
    """Row numbers that a model computes, of a large table."""
    return looking(COMPUTED[name], ["y"], large=LARGE, offset=np.array([-300]), last=np.array([-1]))


@pytest.mark.parametrize("dtype", ["F32", "F16", "Q8_0"])
@pytest.mark.parametrize("name", COMPUTED)
def test_rows_that_a_model_numbers_are_read_where_the_table_lies(name: str, dtype: str, tmp_path: Path) -> None:
    """In the type that it is stored in, as those that an input numbers."""
    compiled = graphc.compile(computed(name), tmp_path / "model.gguf", dtype={"large": dtype})
    calls = [call.function for call in compiled.program.calls]
    assert calls.count("ggml_get_rows") == 1
    (weight,) = (each for each in compiled.program.weights if each.shape == LARGE.shape)
    assert weight.tensor.type == ("F32" if dtype == "F32" else "F16"), "a row of 8 is no whole block"
    rows = np.array([0, 299, 300, 599, 899])
    expected = LARGE[rows - 300].astype(weight.tensor.type.replace("F", "float"))
    np.testing.assert_array_equal(compiled.run(rows=rows)["y"], expected)
    np.testing.assert_array_equal(graphc.load(tmp_path / "model.gguf").run(rows=rows)["y"], expected)


@pytest.mark.parametrize("way", ["compiled", "interpreted", "evaluated"])
@pytest.mark.parametrize("row", [900, -301, 2**40])
def test_a_row_that_a_model_numbers_and_that_is_not_there(row: int, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each way of running kernels gives ggml rows that there are, and an error behind the run."""
    monkeypatch.setenv("GRAPHC_KERNELS", way)
    compiled = graphc.compile(computed("Gather"))
    with pytest.raises(InputError, match="index"):
        compiled.run(rows=np.arange(300).repeat(4) + (row - 299) * (np.arange(1200) == 1199))
    assert compiled.run(rows=np.array([1]))["y"].shape == (1, 8)


def test_a_small_table_is_read_by_one_kernel() -> None:
    """Which takes less time than two steps."""
    nodes = [node("Add", "rows offset", "moved"), node("Gather", "table moved", "y")]
    compiled = graphc.compile(looking(nodes, ["y"], offset=np.array([-300])))
    assert not any(call.function == "ggml_get_rows" for call in compiled.program.calls)


def test_what_numbers_fewer_rows_than_a_kernel_allows_is_no_table_for_it() -> None:
    """An engine comes from a stranger, and ggml ends the process."""
    program = graphc.compile(computed("Gather")).program
    check_row_numbers(program, [])
    program.kernels = [
        replace(each, op=RowNumbers(601)) if isinstance(each.op, RowNumbers) else each for each in program.kernels
    ]
    with pytest.raises(ProgramError, match="row numbers of a table of 600 rows that are not known to exist"):
        check_row_numbers(program, [])


@pytest.mark.parametrize(("operator", "shape"), [("Gather", (3,)), ("GatherND", (3, 1))])
def test_rows_of_what_was_turned(operator: str, shape: tuple[int, ...]) -> None:
    rows = np.array([2, 0, 1]).reshape(shape)
    nodes = [node("Transpose", "x", "turned"), node(operator, "turned rows", "y")]
    x = RANDOM.random((5, 3), np.float32)
    compiled = graphc.compile(model(nodes, [value("x", [5, 3], np.float32)], ["y"], {"rows": rows}))
    assert any(call.function == "ggml_get_rows" for call in compiled.program.calls)
    np.testing.assert_array_equal(compiled.run(x=x)["y"], x.T[[2, 0, 1]])
