"""What Python knows of ggml is what its headers say, and what a C compiler makes of them."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from graphc import ggml_declarations
from graphc.ggml_bindings import TYPES, Ggml
from graphc.ggml_declarations import CONSTANTS, FUNCTIONS, STRUCTS
from graphc.ggml_library import ggml, ggml_include
from graphc.kernels.c.compiled import load_library
from graphc.kernels.c.compiler import find_compiler
from graphc_build.declarations import HEADERS, Declarations, NotUnderstood, module, read_headers


def test_they_were_made_of_these_headers():
    include = ggml_include()
    assert include is not None
    assert module(read_headers(include)) == Path(ggml_declarations.__file__).read_text()


def test_structs_lie_as_a_compiler_lays_them():
    """Also constants have the compiler's values."""
    compiler, include = find_compiler(), ggml_include()
    assert compiler is not None
    assert include is not None
    spelled = {name: name if name == "ggml_bf16_t" else f"struct {name}" for name in STRUCTS}
    expected, asked = [], []
    for name, fields in STRUCTS.items():
        expected.append(ctypes.sizeof(TYPES[name]))
        asked.append(f"sizeof({spelled[name]})")
        for field, _ in fields:
            expected += [getattr(TYPES[name], field).offset, getattr(TYPES[name], field).size]
            asked += [f"offsetof({spelled[name]}, {field})", f"sizeof((({spelled[name]} *) 0)->{field})"]
    expected += CONSTANTS.values()
    asked += CONSTANTS
    source = "#include <stddef.h>\n" + "".join(f'#include "{each}"\n' for each in HEADERS)
    values = ", ".join(f"(long long) ({each})" for each in asked)
    library = load_library(f"{source}const long long values[] = {{{values}}};\n", compiler, include)
    assert list((ctypes.c_longlong * len(asked)).in_dll(library, "values")) == expected


def test_every_function_is_there():
    missing = [name for name in FUNCTIONS if not hasattr(ggml, name)]
    assert missing in (["ggml_threadpool_get_n_threads"], [])  # which ggml declares and never defines
    with pytest.raises(AttributeError, match="ggml has no ggml_nonsense"):
        _ = ggml.ggml_nonsense


def test_first_use_in_threads():
    with ThreadPoolExecutor(8) as threads:
        for _ in range(50):
            new = Ggml(ggml._libraries)
            assert list(threads.map(lambda at, ggml=new: ggml.ggml_type_name(at * 0), range(8))) == [b"f32"] * 8


@pytest.mark.parametrize(
    "text", ["GGML_API nonsense_t ggml_of(int a);", "struct a { int b : 3; };", "enum e { A = B + 1 };"]
)
def test_what_is_not_understood_is_an_error(text):
    with pytest.raises(NotUnderstood):
        module(read(text))


def read(text: str) -> Declarations:
    declared = Declarations()
    declared.read(text)
    return declared


def loaded_with(packages: Path) -> str:
    """What Python says where only these packages are before graphc."""
    code = f"import sys; sys.path.insert(0, {str(packages)!r}); import graphc.ggml_library"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    return done.stderr.strip().splitlines()[-1] if done.returncode else ""


@pytest.mark.skipif(os.name == "nt", reason="the libraries have other names")
def test_libraries_that_are_damaged_or_missing(tmp_path):
    import graphc.ggml_library as library

    package = tmp_path / "ggml"
    shutil.copytree(library.ggml_folder / "lib", package / "lib")
    (package / "__init__.py").touch()
    assert loaded_with(tmp_path) == ""
    (base,) = (package / "lib").glob("libggml-base.*")
    base.write_bytes(b"nonsense" * 1000)
    assert loaded_with(tmp_path).startswith(f"graphc.errors.GraphcError: {base} cannot be loaded: ")
    base.unlink()
    said = loaded_with(tmp_path)
    assert said.startswith(f"graphc.errors.GraphcError: {base} cannot be loaded: ")
    assert said.endswith("install ggml-python again")
