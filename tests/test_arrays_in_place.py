"""On the CPU, what a model is given is read where it lies, and what it gives is computed where it stays, in any arrays."""

from __future__ import annotations

import mmap
from concurrent.futures import ThreadPoolExecutor
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from shared_outputs import WIDTH, shared_outputs

import graphc


def expected(x: np.ndarray, y: np.ndarray) -> dict[str, np.ndarray]:
    positive, eye = np.maximum(x, 0), np.eye(WIDTH, dtype=np.float32)
    return {
        "positive": positive, "line": positive.reshape(-1), "again": positive, "same": x, "x_line": x.reshape(-1),
        "sum": x.T @ y + eye, "first": x[:2], "negative": -x[:2], "product": x.T @ y, "constant": eye,
    }  # fmt: skip


def numbers(n: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((n, WIDTH), np.float32)


def check(found: dict[str, np.ndarray], x: np.ndarray, y: np.ndarray) -> None:
    for name, array in expected(x, y).items():
        np.testing.assert_allclose(found[name], array, rtol=1e-5, atol=1e-5, err_msg=name)


@pytest.fixture(scope="module")
def loaded() -> graphc.Model:
    return graphc.compile(shared_outputs(), threads=2)


def test_each_run_has_its_arrays(loaded: graphc.Model) -> None:
    """Also where a graph is kept: of the same sizes, and of others in between."""
    runs = []
    for seed, n in enumerate((3, 3, 5, 3, 5, 3)):
        x, y = numbers(n, seed), numbers(n, seed + 100)
        runs.append((loaded.run(x=x, y=y), x.copy(), y.copy()))
        x[...], y[...] = np.nan, np.nan
    for found, x, y in runs:
        check(found, x, y)


def test_no_array_shares_memory_with_another(loaded: graphc.Model) -> None:
    x, y = numbers(4, 1), numbers(4, 2)
    arrays = [x, y, *loaded.run(x=x, y=y).values(), *loaded.run(x=x, y=y).values()]
    assert not any(np.shares_memory(one, other) for one, other in combinations(arrays, 2))
    assert all(array.flags.writeable for array in arrays)


def test_what_it_gave_may_be_what_it_is_given(loaded: graphc.Model) -> None:
    x, y = numbers(WIDTH, 1), numbers(WIDTH, 2)
    for _ in range(3):
        found = loaded.run(x=x, y=y)
        check(found, x, y)
        x, y = found["product"] / 8, found["sum"] / 8
    same = loaded.run(x=x, y=x)
    check(same, x, x)


def misaligned(array: np.ndarray) -> np.ndarray:
    found: np.ndarray = np.ndarray(array.shape, np.float32, bytearray(array.nbytes + 1), offset=1)
    found[...] = array
    return found


def read_only(array: np.ndarray) -> np.ndarray:
    found = array.copy()
    found.flags.writeable = False
    return found


@pytest.mark.parametrize(
    "kind",
    [np.asfortranarray, misaligned, read_only, lambda x: np.repeat(x, 2, axis=1)[:, ::2], lambda x: x[::-1].copy()[::-1]],
)  # fmt: skip
def test_any_array(loaded: graphc.Model, kind) -> None:
    x, y = numbers(6, 3), numbers(6, 4)
    check(loaded.run(x=kind(x), y=kind(y)), x, y)
    broadcast = np.broadcast_to(numbers(1, 5), (6, WIDTH))
    check(loaded.run(x=broadcast, y=kind(y)), broadcast, y)


def test_a_file_that_is_mapped_keeps_what_was_written_there(loaded: graphc.Model, tmp_path: Path) -> None:
    """Where its elements are not aligned they are copied; what was written into the private mapping is not given up for that."""
    x, y = numbers(512, 1), numbers(512, 2)
    (tmp_path / "x").write_bytes(bytes(x.nbytes + 8))
    with (tmp_path / "x").open("rb") as file:
        private = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    for offset in (1, 4):
        mapped = np.frombuffer(private, np.uint8)[offset : offset + x.nbytes].view(np.float32).reshape(x.shape)
        mapped[...] = x
        for _ in range(2):
            check(loaded.run(x=mapped, y=y), x, y)
        np.testing.assert_array_equal(mapped, x)


def test_targets_and_sizes_of_nothing() -> None:
    loaded = graphc.compile(shared_outputs(), threads=1, dims={"n": "0.."})
    for n in (0, 1, 2, 0, 2):
        x, y = numbers(n, 7), numbers(n, 8)
        targets = {"positive": np.full((n, WIDTH), np.nan, np.float32), "again": misaligned(np.zeros((n, WIDTH)))}
        found = loaded.run_into(targets, x=x, y=y)
        check(found, x, y)
        assert found["positive"] is targets["positive"]
        check({**found, **targets}, x, y)


def test_many_threads(loaded: graphc.Model) -> None:
    def once(seed: int) -> None:
        x, y = numbers(3 + seed % 4, seed), numbers(3 + seed % 4, seed + 1)
        for _ in range(20):
            check(loaded.run(x=x, y=y), x, y)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(once, range(16)))
