"""The compiler of the `ziglang` package in place of the system's: the same bits of kernels, and products as exact."""

import importlib.util
import os
import subprocess
import sys

import numpy as np
import pytest
from cpp_programs import arrays, draws, dtypes, kernels, replaced, routines
from test_cpp_build import SIZES, inputs_of
from test_cross import ROUNDING

from graphc import zig
from graphc.kernels.c import compiler
from graphc.targets.ggml.run.choose import library
from graphc.targets.ggml.run.executor import Executor
from graphc.zig import find_zig

needs_zig = pytest.mark.skipif(find_zig() is None, reason="needs ziglang")

RUN = """
import numpy, graphc
from graphc.targets.ggml.run.choose.library import load_own
from graphc.kernels.c.compiler import find_compiler
assert find_compiler()[-1] == "cc" and "ziglang" in find_compiler()[0]
assert load_own() is not None
import onnx
text = '<ir_version: 10, opset_import: ["": 21]> m (float[n, 9] x) => (float[n, 9] y) { y = Erf(x) }'
x = numpy.linspace(-2, 2, 18, dtype=numpy.float32).reshape(2, 9)
print(graphc.compile(onnx.parser.parse_model(text)).run({"x": x})["y"].tobytes().hex())
"""


def outputs(monkeypatch, make, without_compilers):
    """What a program gives, with the system's compiler or without one."""
    monkeypatch.delenv("CC", raising=False)
    if without_compilers:
        monkeypatch.setattr(compiler, "COMPILERS", ())
    library.load_own.cache_clear()
    program = make()
    executor = Executor(program, arrays(program), threads=2)
    sizes = SIZES.get(make.__name__, [{}])[0]
    found = executor.run(inputs_of(program, sizes), sizes)
    library.load_own.cache_clear()
    return found


@needs_zig
@pytest.mark.parametrize("make", [draws, dtypes, kernels, routines])
def test_kernels_have_the_bits_of_the_other_compiler(monkeypatch, make):
    expected, found = (outputs(monkeypatch, make, each) for each in (False, True))
    assert compiler.find_compiler() == (str(find_zig()), "cc")
    assert [each.tobytes() for each in found] == [each.tobytes() for each in expected]


@needs_zig
def test_products_are_as_exact_as_those_of_the_other_compiler(monkeypatch):
    expected, found = (outputs(monkeypatch, replaced, each) for each in (False, True))
    for one, other in zip(found, expected, strict=True):
        assert np.abs(one - other).max() <= ROUNDING * np.abs(other).max()


@needs_zig
@pytest.mark.slow
def test_nothing_else_needs_to_be_installed(tmp_path):
    given = {"PATH": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache"), "HOME": "/nonexistent"}
    kept = {name: value for name, value in os.environ.items() if name not in ("CC", *given)}
    found = [
        subprocess.run(
            [sys.executable, "-W", "error", "-c", script], env=env, capture_output=True, text=True, check=False
        )
        for script, env in ((RUN, kept | given), (RUN.replace("assert", "#"), None))
    ]
    assert [each.returncode for each in found] == [0, 0], found[0].stderr + found[1].stderr
    assert found[0].stdout == found[1].stdout
    assert list((tmp_path / "cache" / "graphc" / "kernels").glob("*.so"))


def test_without_the_package_there_is_none(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert zig.find_zig() is None
