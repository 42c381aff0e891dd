"""Matrices that stay packed for products of few rows: the numbers are those of matrices that are packed in every run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import numpy as np
import pytest

import graphc
from graphc.errors import InputError
from graphc.ir.types import F32
from graphc.ops.conv import Conv
from graphc.targets.ggml.lowering.builder import Builder
from graphc.targets.ggml.program.program import Output, Program
from graphc.targets.ggml.run.choose.library import load_own
from graphc.targets.ggml.run.executor import Executor

pytestmark = pytest.mark.skipif(load_own() is None, reason="needs our own code")

SIZES = [(9, 5, 1), (49, 368, 368), (100, 800, 300), (16, 300, 129), (77, 256, 64), (1024, 40, 31), (1025, 40, 31)]
"""Rows, elements of a sum, and columns: at and around the bounds of tiles, panels and blocks, and of the rows of kept panels."""


def product(
    size: tuple[int, int, int], stays: bool, threads: int = 2, matrix: np.ndarray | None = None, dtype: np.dtype = F32
) -> Executor:
    """A program of one product with a matrix, which is a weight if it stays, and else an input."""
    rows, depth, columns = size
    program = Program("product")
    b = Builder(program)
    x = program.add_input("x", F32, (rows, depth), "F32")
    shape = columns, depth
    w = program.add_weight("w", dtype, shape) if stays else program.add_input("w", F32, shape, "F32")
    y = b.call("graphc_linear", w, x, False, rank=2)
    program.outputs.append(Output("y", F32, y.shape, y))
    return Executor(program, [] if matrix is None else [matrix], threads=threads)


def kept_as_given(
    function: str, x: np.ndarray, k: np.ndarray, sides: Sequence[int], stays: Callable[[np.ndarray], bool]
) -> np.ndarray:
    """A convolution's result, which is the same for a kernel that is given and for a weight, whose panels stay if they should."""

    def convolution(is_weight: bool, threads: int) -> Executor:
        program = Program("convolution")
        b = Builder(program)
        pixels = program.add_input("x", F32, x.shape, "F32")
        w = program.add_weight("w", F32, k.shape) if is_weight else program.add_input("w", F32, k.shape, "F32")
        y = b.call(function, w, pixels, None, *sides, False, rank=4)
        program.outputs.append(Output("y", F32, y.shape, y))
        return Executor(program, [k] if is_weight else [], threads=threads)

    before = bytes_held()
    with closing(convolution(False, 2)) as plain:
        (expected,) = plain.run({"x": x, "w": k}, {})
    assert bytes_held() == before
    for threads in (1, 2, 3):
        with closing(convolution(True, threads)) as kept:
            for _ in range(2):
                np.testing.assert_array_equal(kept.run({"x": x}, {})[0], expected)
            assert (bytes_held() > before) == stays(expected)
    return expected


def numbers(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape, F32)


def bytes_held() -> int:
    """Bytes of all panels that somebody holds."""
    own = load_own()
    assert own is not None
    return int(own.library.graphc_bytes_of_panels())


@pytest.fixture(autouse=True)
def given_back() -> Iterator[None]:
    """Every test leaves as many panels as there were before."""
    before = bytes_held()
    yield
    assert bytes_held() == before


@pytest.mark.parametrize("precision", ["highest", "high"])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_results_are_those_of_matrices_that_are_packed_in_every_run(
    size: tuple[int, int, int], precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also of rounded ones, which a matrix unit has stay packed."""
    monkeypatch.setattr("graphc.backends.precision._chosen", precision)
    own = load_own()
    stay = own is not None and (own.multiplies_tiles or precision == "highest" or not own.multiplies_pairs)
    rounded = own is not None and own.multiplies_tiles and precision == "high"
    rows, depth, columns = size
    matrix, xs = numbers(1, columns, depth), [numbers(seed, rows, depth) for seed in (2, 3)]
    before = bytes_held()
    with closing(product(size, stays=False)) as plain:
        expected = [plain.run({"x": x, "w": matrix}, {})[0] for x in xs]
    assert bytes_held() == before
    for threads in (1, 2, 3):
        with closing(product(size, stays=True, threads=threads, matrix=matrix)) as kept:
            found = [kept.run({"x": x}, {})[0] for x in xs]
            assert (bytes_held() > before) == (stay and (rows <= 1024 or rounded))
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    ("kernel", "stride", "image", "channels"),
    [
        (3, 2, (14, 14), (40, 70)),
        (1, 2, (9, 7), (300, 33)),
        (3, 2, (1, 1), (5, 1)),
        (5, 3, (64, 96), (7, 32)),
        (3, 2, (65, 65), (20, 40)),
    ],
    ids=str,
)
@pytest.mark.parametrize("batch", [1, 2])
def test_kernels_that_stay_packed(
    kernel: int, stride: int, image: tuple[int, int], channels: tuple[int, int], batch: int
) -> None:
    """Of images with channels last, up to so many pixels in all images."""
    pad = kernel // 2
    x, k = numbers(1, batch, *image, channels[0]), numbers(2, channels[1], channels[0], kernel, kernel)

    sides = (stride, stride, pad, pad, pad, pad, 1, 1, False)
    expected = kept_as_given("graphc_conv_2d_last", x, k, sides, lambda result: result[..., 0].size <= 1024)
    (exact,) = Conv((stride, stride), (1, 1), (pad, pad), (pad, pad), 1).eval(
        x.astype(np.float64).transpose(0, 3, 1, 2), k.astype(np.float64)
    )
    np.testing.assert_allclose(expected.transpose(0, 3, 1, 2), exact, atol=2e-6 * np.abs(exact).max() + 1e-6)


def rounding(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has products be rounded, by a matrix unit."""
    own = load_own()
    if own is None or not own.multiplies_tiles:
        pytest.skip("needs a matrix unit")
    monkeypatch.setattr("graphc.backends.precision._chosen", "high")


@pytest.mark.parametrize(
    ("kernel", "image", "channels"),
    [
        (3, (8, 8), (70, 130)),
        (3, (1, 1), (16, 1)),
        (5, (33, 20), (96, 33)),
        (3, (70, 70), (20, 17)),
        (2, (5, 4), (64, 40)),
    ],
    ids=str,
)
@pytest.mark.parametrize("last", [False, True], ids=["planes", "last"])
@pytest.mark.parametrize("batch", [1, 2])
def test_kernels_that_stay_rounded(
    kernel: int,
    image: tuple[int, int],
    channels: tuple[int, int],
    last: bool,
    batch: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of images of any size, with channels last or in planes."""
    rounding(monkeypatch)
    pad = kernel // 2
    shape = (batch, *image, channels[0]) if last else (batch, channels[0], *image)
    x, k = numbers(1, *shape), numbers(2, channels[1], channels[0], kernel, kernel)

    sides = (1, 1, pad, pad, pad, pad, 1, 1, False) if last else (1, 1, pad, pad, 1, 1, False)
    kept_as_given("graphc_conv_2d_last" if last else "graphc_conv_2d", x, k, sides, lambda _: True)


def test_weights_of_half_precision_stay_rounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are read as float32 first."""
    rounding(monkeypatch)
    size = (40, 300, 70)
    matrix, x = numbers(1, 70, 300).astype(np.float16), numbers(2, 40, 300)
    with closing(product(size, stays=False)) as plain:
        expected = plain.run({"x": x, "w": matrix.astype(F32)}, {})[0]
    before = bytes_held()
    with closing(product(size, stays=True, matrix=matrix, dtype=np.dtype(np.float16))) as kept:
        for _ in range(2):
            np.testing.assert_array_equal(kept.run({"x": x}, {})[0], expected)
        assert bytes_held() > before


def test_what_stays_rounded_goes_with_what_is_paged_out(monkeypatch: pytest.MonkeyPatch) -> None:
    rounding(monkeypatch)
    size = (40, 300, 70)
    matrix, x = numbers(1, 70, 300), numbers(2, 40, 300)
    before = bytes_held()
    with closing(product(size, stays=True, matrix=matrix)) as kept:
        expected = kept.run({"x": x}, {})[0]
        for _ in range(2):
            assert bytes_held() > before
            kept.page_out()
            assert bytes_held() == before
            np.testing.assert_array_equal(kept.run({"x": x}, {})[0], expected)


def test_what_stays_rounded_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """The numbers are the same without it."""
    rounding(monkeypatch)
    size = (40, 300, 70)
    matrix, x = numbers(1, 70, 300), numbers(2, 40, 300)
    results, before = [], bytes_held()
    try:
        for limit in (0, 4 << 20):
            graphc.limit_rounded_weights(limit)
            with closing(product(size, stays=True, matrix=matrix)) as found:
                results.append(found.run({"x": x}, {})[0])
                assert (bytes_held() > before) == (limit > 0)
    finally:
        graphc.limit_rounded_weights(1 << 30)
    np.testing.assert_array_equal(*results)
    with pytest.raises(InputError, match=r"^rounded weights cannot have -1 bytes$"):
        graphc.limit_rounded_weights(-1)


def test_other_weights_have_panels_of_their_own() -> None:
    size = (20, 64, 96)
    x, matrices = numbers(1, 20, 64), [numbers(seed, 96, 64) for seed in (2, 3, 4)]
    with closing(product(size, stays=False)) as plain:
        expected = [plain.run({"x": x, "w": each}, {})[0] for each in matrices]
    with closing(product(size, stays=True, matrix=matrices[0])) as kept:
        found = [kept.run({"x": x}, {})[0]]
        for each in matrices[1:]:
            kept.replace_weights([each])
            found.append(kept.run({"x": x}, {})[0])
    np.testing.assert_array_equal(found, expected)


def test_runs_at_once_share_them() -> None:
    size = (30, 256, 512)
    matrix, xs = numbers(1, 512, 256), [numbers(seed, 30, 256) for seed in range(2, 10)]
    with closing(product(size, stays=False)) as plain:
        expected = [plain.run({"x": x, "w": matrix}, {})[0] for x in xs]
    before = bytes_held()
    with closing(product(size, stays=True, matrix=matrix)) as kept, ThreadPoolExecutor(4) as pool:

        def run(x: np.ndarray) -> Sequence[np.ndarray]:
            return kept.run({"x": x}, {})[0]

        np.testing.assert_array_equal(list(pool.map(run, xs)), expected)
        assert len(kept.contexts.idle) > 0
        assert matrix.nbytes <= bytes_held() - before < 2 * matrix.nbytes


def test_what_does_not_fit_is_packed_in_every_run() -> None:
    size = (9, 4096, 8224)
    matrix, x = numbers(1, 8224, 4096), numbers(2, 9, 4096)
    before = bytes_held()
    with closing(product(size, stays=False)) as plain:
        expected = plain.run({"x": x, "w": matrix}, {})[0]
    with closing(product(size, stays=True, matrix=matrix)) as kept:
        np.testing.assert_array_equal(kept.run({"x": x}, {})[0], expected)
        assert bytes_held() == before
