"""Einsum: its definition against NumPy, what ggml is called for, and refusals."""

from __future__ import annotations

import numpy as np
import pytest
from operators import by_eval, by_onnxruntime, close, defined, floats, on_ggml

from graphc.errors import ShapeError
from graphc.ir import TensorType
from graphc.ir.types import BOOL, F32, I32
from graphc.ops.einsum import Einsum
from graphc.shapes import symbol

CASES = {
    "ij,jk->ik": ((3, 4), (4, 5)),
    "ij,jk": ((3, 4), (4, 5)),
    "ij,kj->ki": ((3, 4), (5, 4)),
    "bhid,bhjd->bhij": ((2, 3, 4, 5), (2, 3, 6, 5)),
    "bihd,bjhd->bhij": ((2, 4, 3, 5), (2, 6, 3, 5)),
    "bhij,bjhd->bihd": ((2, 3, 4, 6), (2, 6, 3, 5)),
    "...ij,...jk->...ik": ((2, 3, 4, 5), (3, 5, 6)),
    "...ij,jk": ((2, 3, 4), (4, 5)),
    "i,j->ij": ((3,), (4,)),
    "ij,ij->ij": ((3, 4), (3, 4)),
    "ij,ij->": ((3, 4), (3, 4)),
    "bij,b->ij": ((2, 3, 4), (2,)),
    "ij->ji": ((3, 4),),
    "ij->j": ((3, 4),),
    "ii->i": ((4, 4),),
    "bii": ((2, 4, 4),),
    "iji->j": ((4, 3, 4),),
    "a,ab,abc->abc": ((2,), (2, 3), (2, 3, 4)),
    "ij,jk,kl->il": ((2, 3), (3, 4), (4, 5)),
    "abcd,cdef->abef": ((2, 3, 4, 5), (4, 5, 2, 3)),
    "nctkv,kvw->nctw": ((2, 3, 4, 2, 5), (2, 5, 6)),
    "bchw,bkchw->bkhw": ((2, 3, 4, 5), (2, 6, 3, 4, 5)),
    " b i j , b j k -> b i k ": ((2, 3, 4), (2, 4, 5)),
    "ij,jk->kij": ((3, 1), (4, 5)),
    "bij,bjk->bik": ((1, 3, 4), (2, 4, 5)),
}


NUMPY_ONLY = {"...ij,...jk->...ik", "ij,jk->kij", "bij,bjk->bik"}
"""Sizes that broadcast, which onnxruntime refuses."""


@pytest.mark.parametrize("equation", CASES)
def test_definition(equation: str) -> None:
    op = Einsum(equation)
    arrays = [floats(*shape) for shape in CASES[equation]]
    y = by_eval(op, *arrays)
    if equation not in NUMPY_ONLY:
        close(y, by_onnxruntime("Einsum", *arrays, equation=equation))
    result = defined(op, *arrays)
    assert result is not None
    close(result, y)
    close(on_ggml(op, *arrays)[0], y)


def test_attention_copies_nothing_but_what_ggml_wants() -> None:
    arrays = [floats(2, 4, 3, 5), floats(2, 6, 3, 5)]
    assert on_ggml(Einsum("bihd,bjhd->bhij"), *arrays)[1] == ["ggml_mul_mat"]


def test_integers() -> None:
    a, b = np.arange(6, dtype=np.int32).reshape(2, 3), np.arange(12, dtype=np.int32).reshape(3, 4)
    np.testing.assert_array_equal(defined(Einsum("ij,jk->ki"), a, b), (a @ b).T)


def test_symbolic_sizes() -> None:
    n, m = symbol("n"), symbol("m")
    op = Einsum("...id,...jd->...ij")
    a, b = TensorType(F32, (2, n, m, 8)), TensorType(F32, (n, 5, 8))
    assert op.infer(a, b) == (TensorType(F32, (2, n, m, 5)),)
    arrays = [floats(2, 3, 4, 8), floats(3, 5, 8)]
    y, _ = on_ggml(op, *arrays, sizes={0: a.shape, 1: b.shape}, binding={"n": 3, "m": 4})
    close(y, by_eval(op, *arrays))


@pytest.mark.parametrize(
    ("equation", "types", "reason"),
    [
        ("ij,jk->ik", [(F32, (2, 3))], "2 operands, not 1"),
        ("ij->i", [(F32, (2, 3, 4))], "rank 3"),
        ("i1->i", [(F32, (2, 3))], "does not name"),
        ("ij,jk->ik", [(F32, (2, 3)), (F32, (4, 5))], "sizes 3 and 4"),
        ("ii->i", [(F32, (2, 1))], "in one operand"),
        ("ij->k", [(F32, (2, 3))], "not there"),
        ("ij->ii", [(F32, (2, 3))], "twice"),
        ("ij,jk", [(F32, (2, 3)), (I32, (3, 5))], "one type"),
        ("ij->i", [(BOOL, (2, 3))], "numeric"),
        ("i...j...->ij", [(F32, (2, 3))], "does not name"),
    ],
)
def test_refusals(equation: str, types: list[tuple[np.dtype, tuple[int, ...]]], reason: str) -> None:
    with pytest.raises(ShapeError, match=reason):
        Einsum(equation).infer(*(TensorType(*type) for type in types))
