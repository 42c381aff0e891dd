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

SUPPRESSED = "".join(f"called_from_lib:{library}\n" for library in ("libggml-cpu.so", "libggml-base.so", "libgomp.so"))
"""ggml as it is installed says nothing to ThreadSanitizer of what its threads wait for; neither does our code that they run, which
is C and compiled as ever. What the runtime itself does is watched."""

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


def run(folder, program, environment):
    command = [folder / "build" / program]
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300, check=False
    )


@pytest.fixture(scope="module")
def watched(tmp_path_factory):
    """The application under ThreadSanitizer, and the environment in which it runs."""
    folder = tmp_path_factory.mktemp("together")
    application(
        folder,
        [
            f"-DCMAKE_PREFIX_PATH={installed_ggml()}",
            "-DCMAKE_CXX_FLAGS=-g -fsanitize=thread -Wall -Wextra -Wpedantic -Werror",
            "-DCMAKE_CXX_FLAGS_RELEASE=-O0",
        ],
    )
    (folder / "suppressed").write_text(SUPPRESSED)
    return folder, {**os.environ, "TSAN_OPTIONS": f"suppressions={folder / 'suppressed'}:halt_on_error=1"}


def test_the_application_of_the_page_runs(watched):
    done = run(watched[0], "app", watched[1])
    assert (done.returncode, done.stdout) == (0, "[1, 7]\n[2, 7]\n[3, 7]\n[4, 7]\n"), done.stderr


def test_threads_get_what_one_would(watched):
    done = run(watched[0], "threads", watched[1])
    assert done.returncode == 0, done.stdout + done.stderr[-8000:]
    assert done.stdout.count(": 0 wrong") == len(MODELS)
