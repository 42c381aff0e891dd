"""The C that is made of loop bodies, and how it is compiled."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from loops import Body, Fault, apply, compute, loop, run
from remarks import remarked, silent

from graphc.cache import warn_once
from graphc.errors import BuildError
from graphc.ggml_library import ggml_include
from graphc.ir.types import BF16, F16, F32, I8, I32, I64
from graphc.kernels.c import compiled, compiler
from graphc.kernels.c.render import declarations, render
from graphc.kernels.scalar import Kernel, Scalar
from graphc.kernels.use import KernelUse
from graphc.ops.indexing import Gather
from graphc.ops.movement import Reshape, Slice, Transpose
from graphc.ops.pointwise import Binary, Unary
from graphc.ops.reduce import Reduce
from graphc.shapes import Dim, symbol
from graphc.targets.ggml.run import kernels
from graphc.targets.ggml.run.kernels import load_kernels
from graphc.targets.ggml.run.native_kernels import NativeKernel


def c_of(body: Body, dtype: np.dtype, shape: Sequence[Dim], *inputs: tuple) -> str:
    """The statements of a kernel."""
    text = render([loop(body, dtype, shape, *inputs)]).text
    return text[text.index("GRAPHC_KERNEL graphc_kernel") :]


# The C


def test_a_pointwise_kernel_of_any_rank_is_one_loop() -> None:
    shape = (symbol("a"), 3, symbol("b"), 2, 5)
    text = c_of(lambda k, i: k.load(0, i) + k.load(1, i), F32, shape, (F32, shape), (F32, shape))
    assert text.count("for (") == 1
    assert "y[i0_4] = x0[i0_4] + x1[i0_4];" in text


def test_a_reshape_is_a_copy() -> None:
    op = Reshape((4, 6, 5))
    text = render([KernelUse(op, ((F32, (2, 3, 4, 5)),), F32, (4, 6, 5))]).text
    assert "y[i0_2] = x0[i0_2];" in text


def test_a_transpose_keeps_the_axes_that_stay_together() -> None:
    text = render([KernelUse(Transpose((2, 3, 0, 1)), ((F32, (2, 3, 4, 5)),), F32, (4, 5, 2, 3))]).text
    assert text.count("for (") == 2
    assert "x0[i0_1 + i2_3 * 20]" in text


def test_a_sum_that_all_elements_of_a_row_share_is_computed_once() -> None:
    def softmax(axis: int) -> Body:
        def body(k: Kernel, i: Sequence[Scalar]) -> Scalar:
            def at(j: Scalar) -> Scalar:
                return k.load(0, [*i[:axis], j, *i[axis + 1 :]])

            top = k.reduce("max", [7], lambda j: at(j[0]))
            return k.call("exp", at(i[axis]) - top) / k.reduce("sum", [7], lambda j: k.call("exp", at(j[0]) - top))

        return body

    x = np.random.default_rng(0).standard_normal((2, 7, 3, 7)).astype(F32)
    for axis in (1, 3):
        text = c_of(softmax(axis), F32, x.shape, (F32, x.shape))
        assert text.index("sum") < text.rindex("for (")  # before the innermost loop begins
        expected = np.exp(x - x.max(axis, keepdims=True))
        expected /= expected.sum(axis, keepdims=True)
        np.testing.assert_allclose(apply(softmax(axis), F32, x.shape, x), expected, rtol=1e-6)


def test_a_condition_that_always_holds_disappears() -> None:
    def padded(k: Kernel, i: Sequence[Scalar]) -> Scalar:
        return k.select((i[0] >= 0).and_(i[0] < 4).and_(i[1] - 1 >= 0), k.load(0, [i[0], i[1] - 1]), 0.0)

    text = c_of(padded, F32, (4, 6), (F32, (4, 5)))
    assert "< 4" not in text
    assert ">= 0" in text


def test_the_same_kernels_give_the_same_bytes() -> None:
    uses = [
        KernelUse(Transpose((1, 0)), ((F32, (symbol("n"), 3)),), F32, (3, symbol("n"))),
        KernelUse(Gather(0), ((I8, (4, 5)), (I64, (3,))), I8, (3, 5)),
        KernelUse(Reduce("max", (0,), False), ((F16, (4, 5)),), F16, (5,)),
    ]
    text = render(uses).text
    assert render(uses[::-1]).text != text
    assert render(uses).text == text


def test_names_from_a_model_cannot_become_code() -> None:
    evil = symbol('n*/ system("x"); \\\n//')
    other = symbol("n system x")
    text = c_of(lambda k, i: k.load(0, i), F32, (evil, other), (F32, (evil, other)))
    assert "system(" not in "".join(line for line in text.splitlines() if not line.lstrip().startswith("//"))
    assert not any(line.endswith("\\") for line in text.splitlines())
    rendered = render([loop(lambda k, i: k.load(0, i) + 1, I8, (evil, other), (I8, (evil, other)))])
    assert len(set(rendered.symbols)) == 2


def test_the_file_and_its_header_are_c_and_cpp(tmp_path: Path) -> None:
    n = symbol("n")
    uses = [
        KernelUse(Unary("Erf"), ((F16, (n, 3)),), F16, (n, 3)),
        KernelUse(Binary("Mod"), ((I32, (3,)), (I32, (3,))), I32, (3,)),
        KernelUse(Slice((n - 1,), (n,), (-1,)), ((BF16, (n,)),), BF16, (n,)),
    ]
    rendered = render(uses)
    assert rendered.functions == ("graphc_kernel_erf", "graphc_kernel_mod", "graphc_kernel_slice")
    (tmp_path / "kernels.h").write_text(declarations(rendered))
    (tmp_path / "kernels.c").write_text(rendered.text + '#include "kernels.h"\n')
    (tmp_path / "main.cpp").write_text('#include "kernels.h"\nint main() { return graphc_kernel_erf == nullptr; }\n')
    include = f"-I{ggml_include()}"
    strict = ["-Wall", "-Wextra", "-Werror", "-fsyntax-only", include]
    subprocess.run(["cc", "-std=c11", *strict, str(tmp_path / "kernels.c")], check=True)
    subprocess.run(["c++", "-std=c++17", "-fsyntax-only", include, str(tmp_path / "main.cpp")], check=True)


# Compiling


def test_without_a_compiler_numpy_computes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(compiler, "find_zig", lambda: None)
    monkeypatch.setattr(kernels, "load_own", lambda: None)
    warn_once.cache_clear()
    n = symbol("n")
    uses = [
        KernelUse(Slice((n - 1, 0), (2, 3), (-1, 1)), ((BF16, (5, 3)),), BF16, (2, 3)),
        KernelUse(Gather(0), ((F32, (n, 3)), (I64, (2,))), F32, (2, 3)),
    ]
    with remarked("no C compiler"):
        load_kernels(uses)
    with silent():  # there is one warning, not more
        slice_, gather = load_kernels(uses)
    x = np.arange(15).reshape(5, 3)
    assert run(slice_, uses[0], [x.astype(BF16)], {"n": 4}, 2).tolist() == x[3:1:-1].tolist()
    table = x[:4].astype(F32)
    assert run(gather, uses[1], [table, np.array([3, -4])], {"n": 4}, 2).tolist() == table[[3, 0]].tolist()
    with pytest.raises(Fault, match="outside"):
        run(gather, uses[1], [table, np.array([3, 4])], {"n": 4}, 2)


def test_a_compiler_that_fails_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("CC", "cc --no-such-flag")
    one = KernelUse(Unary("Neg"), ((I8, (3,)),), I8, (3,))
    with pytest.raises(BuildError, match="no-such-flag"):
        load_kernels([one])
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
    monkeypatch.setenv("CC", "no-such-compiler")
    with pytest.raises(BuildError, match="no-such-compiler"):
        load_kernels([one])
    monkeypatch.setenv("CC", "gcc '")
    with pytest.raises(BuildError, match="CC is not a command: gcc ' "):
        load_kernels([one])


def test_a_compiler_that_does_not_work_is_as_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It is there, but cannot link; one that compiles anything else fails on a kernel alone, which is an error."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setattr(kernels, "load_own", lambda: None)
    broken = tmp_path / "cc"
    broken.write_text("#!/bin/sh\necho cannot find crti.o >&2\nexit 1\n")
    broken.chmod(0o755)
    working = os.environ["PATH"]
    monkeypatch.setenv("PATH", str(tmp_path))
    warn_once.cache_clear()
    one = KernelUse(Unary("Neg"), ((I8, (3, 19)),), I8, (3, 19))
    with remarked("(?s)the C compiler does not work.*cannot find crti.o"):
        (kernel,) = load_kernels([one])
    with silent():
        load_kernels([one])
    x = np.ones((3, 19), I8)
    np.testing.assert_array_equal(run(kernel, one, [x], {}), -x)
    monkeypatch.setenv("GRAPHC_KERNELS", "compiled")
    with pytest.raises(BuildError, match="cannot find"):
        load_kernels([one])
    monkeypatch.delenv("GRAPHC_KERNELS")
    monkeypatch.setenv("PATH", working)
    monkeypatch.setattr("graphc.kernels.c.render.render", lambda *args: replace(render(*args), text="no C"))
    with pytest.raises(BuildError, match="failed on the generated kernels"):
        load_kernels([one])


def test_a_wheel_starts_no_compiler_for_few_elements(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where our own code is there ready-made; kernels of unknown sizes, and those of more elements, are compiled."""

    def of(*shape: Dim) -> KernelUse:
        return KernelUse(Unary("Neg"), ((I8, shape),), I8, shape)

    assert isinstance(load_kernels([of(3, 21)])[0], NativeKernel)
    monkeypatch.setattr(kernels, "loaded", replace(kernels.loaded, own=ctypes.CDLL(None)))
    for use in (of(symbol("n"), 3), of(64, 33)):
        assert isinstance(load_kernels([use])[0], NativeKernel)
    assert isinstance(load_kernels([of(64, 16), of(64, 17)])[0], NativeKernel)
    monkeypatch.setattr(kernels, "load_library", lambda *_: pytest.fail("it was compiled"))
    (kernel,) = load_kernels([of(64, 32)])
    x = np.arange(64 * 32).reshape(64, 32).astype(I8)
    np.testing.assert_array_equal(run(kernel, of(64, 32), [x], {}, 2), -x)
    monkeypatch.setenv("GRAPHC_KERNELS", "compiled")
    with pytest.raises(pytest.fail.Exception, match="it was compiled"):
        load_kernels([of(64, 32)])


def test_a_file_is_compiled_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "with spaces und ä"))
    one = KernelUse(Unary("Neg"), ((I8, (3, 17)),), I8, (3, 17))
    load_kernels([one])
    compiled._loaded.clear()
    monkeypatch.setattr(compiled, "compile_library", lambda *args: pytest.fail("compiled again"))
    (kernel,) = load_kernels([one])
    x = np.ones((3, 17), I8)
    np.testing.assert_array_equal(run(kernel, one, [x], {}), -x)


def test_a_cache_that_cannot_be_written_is_no_obstacle(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    x = np.arange(7, dtype=I8)
    warn_once.cache_clear()
    with remarked("is not kept"):
        np.testing.assert_array_equal(compute(Unary("BitwiseNot"), x), ~x)


def test_two_processes_may_compile_the_same(tmp_path: Path) -> None:
    script = (
        "import numpy as np, loops; from graphc.ops.pointwise import Unary; "
        "assert (loops.compute(Unary('Sqr'), np.arange(91, dtype=np.int16)) == np.arange(91) ** 2).all()"
    )
    path = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path), "PYTHONPATH": path}
    processes = [subprocess.Popen([sys.executable, "-c", script], env=environment) for _ in range(2)]
    assert [process.wait() for process in processes] == [0, 0]
    assert len(list(tmp_path.rglob("*.so")) + list(tmp_path.rglob("*.dylib"))) == 1


def test_threads_of_python_may_compile_at_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    x = np.arange(97, dtype=np.int16)
    results: list[np.ndarray] = []
    threads = [threading.Thread(target=lambda: results.append(compute(Unary("Neg"), x))) for _ in range(2)]
    with silent():
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert [(result == -x).all() for result in results] == [True, True]
