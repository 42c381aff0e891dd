"""Several models in one application, as `docs/cpp.md` has it, which runs them in several threads; under ThreadSanitizer."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from cpp_programs import Modules, arrays, repeated, replaced

from graphc.build import installed_ggml
from graphc.cmake import find_cmake
from graphc.ggml_source import ggml_source
from graphc.ir.types import F32, I64
from graphc.shapes import symbol
from graphc.targets.ggml.cpp import write_project
from graphc.targets.ggml.engine import write_engine

ROOT = Path(__file__).parent.parent
SOURCES = Path(__file__).parent / "cpp_threads"

MORE = """
add_subdirectory(repeated-cpp)
add_subdirectory(replaced-cpp)
add_executable(threads threads.cpp)
target_link_libraries(threads PRIVATE encoder decoder repeated replaced)
"""
"""What the test adds to the application of the page."""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not shutil.which("cmake") or not shutil.which("c++"), reason="needs cmake and a C++ compiler"),
]


def encoder():
    """Rows of a table, and a product; the size is free."""
    b, count = Modules("encoder"), symbol("tokens")
    tokens = b.program.add_input("tokens", I64, (count,), "I32", low=0, high=20)
    x = b.call("ggml_get_rows", b.weight("table", 20, 32), tokens, rank=2)
    return b.output(b.unary("ggml_silu", b.linear(x, "fc", 32, 32)), "states").program


def decoder():
    """Two products and a normalization."""
    b, count = Modules("decoder"), symbol("tokens")
    x = b.norm(b.program.add_input("states", F32, (count, 32), "F32"), "norm", 32)
    return b.output(b.linear(b.unary("ggml_relu", b.linear(x, "up", 32, 48)), "down", 48, 7), "scores").program


MODELS = {"encoder": encoder, "decoder": decoder, "repeated": repeated, "replaced": replaced}


def application(folder, options=()):
    """Write and build the application of the page, with a program that checks threads."""
    for name, make in MODELS.items():
        program = make()
        weights = arrays(program)
        write_project(program, folder / f"{name}-cpp")
        write_engine(folder / f"{name}.gguf", program, weights.__getitem__)
    page = (ROOT / "docs" / "cpp.md").read_text()
    (cmake,) = re.findall(r"^```cmake\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    (source,) = (
        each for each in re.findall(r"^```cpp\n(.*?)^```", page, re.DOTALL | re.MULTILINE) if "encoder" in each
    )
    assert "project(app CXX)" in cmake
    (folder / "CMakeLists.txt").write_text(cmake + MORE)
    (folder / "app.cpp").write_text(source)
    shutil.copy(SOURCES / "threads.cpp", folder)
    configure = [find_cmake(), "-S", folder, "-B", folder / "build", *options]
    for command in (configure, [find_cmake(), "--build", folder / "build", "--parallel", "2"]):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]


SANITIZED = "-g -fsanitize=thread -Wall -Wextra -Wpedantic -Werror"


def run(folder, *command, **environment):
    """Run a program of an application; threads that wait do not spin."""
    return subprocess.run(
        [folder / "build" / command[0], *command[1:]],
        cwd=folder,
        env={**os.environ, "GOMP_SPINCOUNT": "1000", "TSAN_OPTIONS": "halt_on_error=1", **environment},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.fixture(scope="module")
def watched(tmp_path_factory):
    """The application, of which ThreadSanitizer watches what is C++."""
    folder = tmp_path_factory.mktemp("together")
    prefix = f"-DCMAKE_PREFIX_PATH={installed_ggml()}"
    application(folder, [prefix, f"-DCMAKE_CXX_FLAGS={SANITIZED}", "-DCMAKE_CXX_FLAGS_RELEASE=-O0"])
    return folder


def test_the_application_of_the_page_runs(watched):
    done = run(watched, "app", TSAN_OPTIONS="report_bugs=0")
    assert (done.returncode, done.stdout) == (0, "[1, 7]\n[2, 7]\n[3, 7]\n[4, 7]\n"), done.stderr


def test_threads_get_what_one_would(watched):
    """With several threads for a run ThreadSanitizer is silent: it does not see how those of OpenMP wait for each other."""
    for threads, options in ((1, "halt_on_error=1"), (4, "report_bugs=0")):
        done = run(watched, "threads", str(threads), TSAN_OPTIONS=options)
        assert done.returncode == 0, done.stdout + done.stderr[:8000]
        assert done.stdout.count(": 0 wrong") == len(MODELS)


@pytest.mark.thorough
def test_nothing_races_in_ggml_or_our_own_code_either(tmp_path):
    """All of it is watched, with ggml's own threads in place of OpenMP's."""
    options = [f"-DGGML_SOURCE_DIR={ggml_source()}", "-DGGML_OPENMP=OFF", "-DGGML_LLAMAFILE=OFF"]
    flags = [f"-DCMAKE_{each}_FLAGS=-g -O1 -fsanitize=thread" for each in ("C", "CXX")]
    application(tmp_path, [*options, *flags])
    done = run(tmp_path, "threads", "4")
    assert done.returncode == 0, done.stdout + done.stderr[:8000]
    assert done.stdout.count(": 0 wrong") == len(MODELS)


def test_models_of_two_versions_are_refused(tmp_path):
    for name in ("encoder", "decoder"):
        write_project(MODELS[name](), tmp_path / f"{name}-cpp")
    (tmp_path / "decoder-cpp" / "runtime" / "graphc" / "model.h").write_text("// of another version")
    text = "cmake_minimum_required(VERSION 3.21)\nproject(app CXX)\n"
    (tmp_path / "CMakeLists.txt").write_text(text + "add_subdirectory(encoder-cpp)\nadd_subdirectory(decoder-cpp)\n")
    configure = [find_cmake(), "-S", tmp_path, "-B", tmp_path / "build", f"-DCMAKE_PREFIX_PATH={installed_ggml()}"]
    done = subprocess.run(configure, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "decoder was written by another graphc" in done.stderr
