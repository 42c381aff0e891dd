"""Writes the C++ project of a program: generated files, and beside them the runtime that every project has."""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

from graphc.files import replacing_folder
from graphc.kernels.c.compiler import FLAGS
from graphc.kernels.c.render import declarations
from graphc.targets.ggml.cpp.code import ModelCode
from graphc.targets.ggml.cpp.composites import calls_header
from graphc.targets.ggml.cpp.example import render_example, render_readme
from graphc.targets.ggml.cpp.header import render_header
from graphc.targets.ggml.cpp.source import render_source, render_weights
from graphc.targets.ggml.program.in_c import GENERATED
from graphc.targets.ggml.program.program import Program

RUNTIME = "runtime"
"""The folder of a project that holds the fixed files: the library that all models of an application share."""

CMAKE = """\
cmake_minimum_required(VERSION 3.21)
project({namespace} LANGUAGES C CXX)
include({runtime}/model.cmake)
graphc_add_model({namespace}{kernels})
"""

CMAKE_KERNELS = """
  KERNELS kernels.c
  KERNEL_OPTIONS {flags}"""

MAIN = """\
#include "{header}"
#include "graphc/command.h"

int main(int argc, char ** argv) {{ return graphc::run_command<{namespace}::{class_name}>(argc, argv); }}
"""


def write_project(program: Program, directory: str | os.PathLike[str], name: str = "") -> Path:
    """Write the project into a folder, which is made if it is not there; returns the folder.

    `name` is what the model is called, otherwise the program's own name. The same program gives the same bytes. Files of an
    earlier project are replaced, others are left alone, and all is written or nothing. Raises OSError, also for a folder with
    files of which graphc wrote none, or GraphcError for what C++ cannot say.
    """
    texts = render_project(program, name)
    with replacing_folder(directory) as folder:
        for path, text in texts.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(text.encode())
    return Path(directory)


def render_project(program: Program, name: str = "") -> dict[str, str]:
    """Every file of the project by its path in the folder."""
    return render_model(ModelCode(program, name or program.name or "model"), RUNTIME) | render_runtime()


def render_model(code: ModelCode, runtime: str) -> dict[str, str]:
    """The files of a model by their paths in its folder; `runtime` is where cmake finds the fixed files."""
    texts = {
        "CMakeLists.txt": _cmake(code, runtime),
        "README.md": render_readme(code),
        f"include/{code.header}": render_header(code),
        "model.cpp": render_source(code),
        "weights.cpp": render_weights(code),
        "main.cpp": MAIN.format(header=code.header, namespace=code.namespace, class_name=code.class_name),
        "example.cpp": render_example(code),
    }
    if code.kernels:
        texts |= {"kernels.c": code.kernels.text, "kernels.h": declarations(code.kernels)}
    return texts


def render_runtime() -> dict[str, str]:
    """The files that all projects have by their paths in a project."""
    return {f"{RUNTIME}/{path}": text for path, text in runtime_files()}


def runtime_files() -> Iterator[tuple[str, str]]:
    """The files that are the same in all projects, by their paths in its folder `RUNTIME`: those that are fixed, and what is made
    of the composites."""
    folder = files("graphc.targets.ggml").joinpath("project")
    for path in ("", "graphc/", "graphc/composites/", "graphc/own/", "gpu/"):
        inside = [file for file in folder.joinpath(path).iterdir() if file.is_file()]
        for file in sorted(inside, key=lambda file: file.name):
            yield path + file.name, file.read_text(encoding="utf-8")
    yield from ((f"graphc/{name}", make()) for name, make in GENERATED.items())
    yield "graphc/calls.h", calls_header()


def _cmake(code: ModelCode, runtime: str) -> str:
    kernels = CMAKE_KERNELS.format(flags=" ".join(FLAGS)) if code.kernels else ""
    return CMAKE.format(namespace=code.namespace, runtime=runtime, kernels=kernels)
