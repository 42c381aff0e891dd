"""The project of a program that brings its models' engines with it: their projects, which share one runtime, and `main.cpp`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from graphc.errors import InputError
from graphc.targets.ggml.cpp.code import ModelCode
from graphc.targets.ggml.cpp.names import string_literal
from graphc.targets.ggml.cpp.project import RUNTIME, render_model, render_runtime
from graphc.targets.ggml.program.program import Program

MODELS = "models"
"""The folder of the models' projects."""

CMAKE = """\
cmake_minimum_required(VERSION 3.21)
project(bundle LANGUAGES C CXX)
if(MSVC)
  set(CMAKE_MSVC_RUNTIME_LIBRARY MultiThreaded)
else()
  # What nothing calls is left out; no file of this machine is named; nothing is needed but the system's own libraries.
  add_compile_options(-ffunction-sections -fdata-sections
    "-ffile-prefix-map=${{GGML_SOURCE_DIR}}=ggml" "-ffile-prefix-map=${{CMAKE_SOURCE_DIR}}=graphc")
  if(CMAKE_SYSTEM_NAME STREQUAL Linux AND NOT CMAKE_CROSSCOMPILING)
    add_link_options(-s -Wl,--gc-sections -Wl,--build-id=none -static-libgcc -static-libstdc++)
  endif()
endif()
include({runtime}/model.cmake)
graphc_add_runtime(bundle)
{folders}
add_executable(graphc-bundle main.cpp)
set_target_properties(graphc-bundle PROPERTIES OUTPUT_NAME model)
target_link_libraries(graphc-bundle PRIVATE {namespaces})
"""

MAIN = """\
{headers}
#include "graphc/bundle.h"

int main(int argc, char ** argv) {{
    return graphc::run_bundle(argc, argv, {{
{models}
    }}, graphc::Engines::{engines});
}}
"""


@dataclass(frozen=True)
class Written:
    """A model's engine file: its bytes, and their SHA-256 in hexadecimal."""

    size: int
    sha256: str


def render_bundle(programs: Mapping[str, Program], engines: Sequence[Written], folder: bool) -> dict[str, str]:
    """Every file of the project by its path. `programs` are by what the command line calls them, `engines` in their order, which
    lie in the program's folder if `folder`, else behind the program. Raises InputError for names that are one in C++."""
    codes = {name: ModelCode(program, name) for name, program in programs.items()}
    texts = render_runtime()
    owners: dict[str, str] = {}
    for name, code in codes.items():
        if (other := owners.setdefault(code.namespace, name)) != name:
            raise InputError(
                f"{other} and {name} are both called {code.namespace} in C++: give one another name, as NAME=FILE"
            )
        files = render_model(code, f"${{CMAKE_SOURCE_DIR}}/{RUNTIME}")
        texts |= {f"{MODELS}/{code.namespace}/{path}": text for path, text in files.items()}
    texts["CMakeLists.txt"] = CMAKE.format(
        runtime=RUNTIME,
        folders="\n".join(f"add_subdirectory({MODELS}/{code.namespace})" for code in codes.values()),
        namespaces=" ".join(code.namespace for code in codes.values()),
    )
    models = [
        f"        {{{string_literal(name)}, graphc::runnable<{code.namespace}::{code.class_name}>(), {engine.size}u,\n"
        f'         "{engine.sha256}"}},'
        for (name, code), engine in zip(codes.items(), engines, strict=True)
    ]
    texts["main.cpp"] = MAIN.format(
        headers="\n".join(f'#include "{code.header}"' for code in codes.values()),
        models="\n".join(models),
        engines="beside" if folder else "behind",
    )
    return texts
