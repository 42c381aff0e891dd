"""Our own code for processors that have fewer instructions than this one, or a matrix unit: the tests of some of it, compiled
without them, or with the unit emulated. A model by those of `x86-64-v2` and `x86-64-v3` is in `test_cross.py`."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from graphc.kernels.c.compiled import machine

TESTS = ("test_channels_last.py", "test_composites.py")

TESTS_OF_TILES = ("test_products.py", "test_panels.py", "test_channels_last.py", "test_integers.py")
TILED = "precision or fast or bfloat16 or stay or winograd or products or attention or convolutions or expanded"
"""Tests by parts of their names: those of what a matrix unit computes."""

FEWER = {
    "avx2": "-mno-avx512f -mtune=znver3",  # for which GCC likes to multiply and add in two steps
    "sse": "-mno-avx -mtune=generic",
}


ON_X86 = pytest.mark.skipif(
    platform.machine().lower() not in ("x86_64", "amd64"), reason="the flags are those of x86-64"
)


def run_tests(flags: str, *arguments: str) -> None:
    """Tests in a process of its own, where our own code is compiled with these flags."""
    here = Path(__file__).parent
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", *arguments]
    environment = {**os.environ, "CC": f"{os.environ.get('CC') or 'cc'} {flags}"}
    found = subprocess.run(command, env=environment, cwd=here, capture_output=True, text=True, timeout=900)
    assert found.returncode == 0, found.stdout[-4000:] + found.stderr[-2000:]


@ON_X86
@pytest.mark.skipif("avx512f" not in machine(), reason="all other tests are by AVX2 here")
@pytest.mark.parametrize("instructions", ["avx2", pytest.param("sse", marks=pytest.mark.thorough)])
def test_with_fewer_instructions(instructions):
    """Also that results have the same bits with any number of threads, whatever tiles these are cut into."""
    run_tests(FEWER[instructions], *TESTS)


@ON_X86
@pytest.mark.skipif("avx512f" not in machine(), reason="tiles are those of vectors of 64 bytes")
def test_with_a_matrix_unit():
    """Products, convolutions and attention by tiles, whatever this processor has: of parts of float32, rounded, and of bytes."""
    run_tests("-DGRAPHC_EMULATED_MATRIX_UNIT", *TESTS_OF_TILES, "-k", TILED)
