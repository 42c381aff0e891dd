"""Sums and products of what is repeated along axes: several short rows are computed at once, whatever repeats along them."""

from __future__ import annotations

import numpy as np
import pytest
from frontend_models import model, node, value

import graphc

RANDOM = np.random.default_rng(3)


def floats(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(np.float32)


LAYOUTS = {
    "both alike": [(300, 8), (300, 8)],
    "a row for all": [(300, 8), (8,)],
    "a number for each row": [(300, 8), (300, 1)],
    "a row and a number": [(300, 8), (8,), (300, 1)],
    "a number for all": [(3, 100, 7), (1,), (7,)],
    "a row for each plane": [(5, 70, 9), (5, 1, 9)],
    "planes": [(2, 30, 14, 14), (30, 1, 1), (2, 1, 14, 14)],
    "rows that are repeated along planes": [(6, 40, 12), (40, 12), (6, 1, 1)],
    "rows as long as a part": [(4, 1024), (1024,), (4, 1)],
    "rows that are longer": [(3, 2500), (2500,), (3, 1)],
    "columns": [(700, 1), (700, 1)],
    "numbers": [(1, 1), (1,)],
    "nothing": [(0, 4), (4,)],
    "many": [(3, 50, 6), (6,), (50, 1), (3, 1, 1), (50, 6), (3, 50, 6)],
}


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_what_is_repeated(layout: str, threads: int) -> None:
    arrays = {f"x{number}": floats(*shape) for number, shape in enumerate(LAYOUTS[layout])}
    first, second, *others = arrays
    nodes, expected = [node("Mul", f"{first} {second}", "scaled")], arrays[first] * arrays[second]
    last = "scaled"
    for name in others:
        nodes.append(node("Add", f"{last} {name}", f"with_{name}"))
        last, expected = f"with_{name}", expected + arrays[name]
    nodes += [node("Sub", f"{first} {second}", "less"), node("Relu", last, "positive")]
    inputs = [value(name, list(array.shape)) for name, array in arrays.items()]
    found = graphc.compile(model(nodes, inputs, ["positive", "less"]), threads=threads).run(arrays)
    np.testing.assert_allclose(found["positive"], np.maximum(expected, 0), rtol=1e-6, atol=1e-6)
    np.testing.assert_array_equal(found["less"], arrays[first] - arrays[second])


@pytest.mark.parametrize("columns", [1, 5, 40])
def test_parts_of_rows(columns: int) -> None:
    """What is read lies apart: columns of a matrix whose rows are longer."""
    wide, row = floats(120, columns + 3), floats(columns)
    cut = [
        node("Slice", "wide begin end axis", "narrow"),
        node("Add", "narrow row", "y"),
        node("Add", "narrow narrow", "z"),
    ]
    constants = {"begin": np.array([2]), "end": np.array([2 + columns]), "axis": np.array([1])}
    inputs = [value("wide", list(wide.shape)), value("row", [columns])]
    found = graphc.compile(model(cut, inputs, ["y", "z"], constants)).run(wide=wide, row=row)
    narrow = wide[:, 2 : 2 + columns]
    np.testing.assert_array_equal(found["y"], narrow + row)
    np.testing.assert_array_equal(found["z"], narrow + narrow)
