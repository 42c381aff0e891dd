"""Our own C code: what computes products and the like on the CPU several times as fast as ggml, and what decides how calls are
computed (`building.py`). It is among the fixed files of the C++ project: the same there and here.
"""

from __future__ import annotations

import ctypes
import functools
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from graphc import __version__
from graphc.errors import BuildError, InputError
from graphc.ggml_library import ggml, ggml_include, loaded
from graphc.kernels.c.compiled import load_library
from graphc.kernels.c.compiler import FLAGS, find_compiler
from graphc.kernels.c.joined import joined
from graphc.once import once
from graphc.targets.ggml.program.in_c import c_text, own_functions
from graphc.targets.ggml.run.choose.kinds import kinds_text
from graphc.trace import warn

FAST_FLAGS = (
    *("-ffp-contract=fast" if flag == "-ffp-contract=off" else flag for flag in FLAGS),
    *("--param=avoid-fma-max-bits=0", "--param=ipa-cp-unit-growth=0", "-Wno-unused-command-line-argument"),
)
"""A fused multiplication and addition rounds once: what these sums want. For some processors GCC would leave it out where a loop
has but one sum, which would then differ from those of other loops. Nor shall it copy functions for arguments that it guesses:
what gains by that is inlined already, and the rest takes a third more time to compile. clang has no such parameters."""

ROUTINE_FLAGS = tuple("-O2" if flag == "-O3" else flag for flag in FLAGS)
"""How routines for all types are compiled: the same bits as in a file of kernels, in half the room."""

TABLE = "graphc_own"
"""The table of all functions that compute."""

FILES = ("variant.c", "build.c", "assign.c", "residence.c", "runner.c", "calls.c", "repeat.c")

ONLY_HERE: Mapping[str, Callable[[], str]] = {
    **{
        name: partial(Path(__file__).with_name(name).read_text, "utf-8")
        for name in ("calls.c", "calls.h", "repeat.c", "repeat.h")
    },
    "kinds.h": kinds_text,
}
"""Files that C++ projects do not have."""

HEADERS = (
    "build.h",
    "assign.h",
    "residence.h",
    "runner.h",
    "composites.h",
    "calls.h",
    "repeat.h",
    "own/panels.h",
    "own/products.h",
)
"""What Python calls."""

KINDS = {
    "int": ctypes.c_int,
    "bool": ctypes.c_bool,
    "float": ctypes.c_float,
    "size_t": ctypes.c_size_t,
    "const char *": ctypes.c_char_p,
    "struct ggml_tensor *": ctypes.POINTER(ggml.ggml_tensor),
}
"""What these functions take and give; all else is an address."""


def declare(library: ctypes.CDLL, header: str) -> None:
    """Say what the functions of a header take and give. A function of which that is not known is given half of each address."""
    for result, name, given in re.findall(r"^GRAPHC_API ([^(]+?) ?(\w+)\(([^)]*)\);", _text(header), re.M):
        function = getattr(library, name)
        function.restype = None if result == "void" else KINDS.get(result, ctypes.c_void_p)
        kinds = re.findall(r"([^,]+[ *])\w+(?:,|$)", given)
        function.argtypes = [KINDS.get(each.strip(), ctypes.c_void_p) for each in kinds]


class Own:
    """The code, compiled for this machine or one of its kind. `origin` says which code, and what compiled it: what its speed
    depends on besides the processor."""

    def __init__(self, library: ctypes.CDLL, origin: Sequence[str]) -> None:
        self.library = library
        self.origin = (*origin, *FAST_FLAGS)
        self.table = ctypes.c_void_p(ctypes.addressof(ctypes.c_byte.in_dll(library, TABLE)))
        found = {
            name: ctypes.cast(getattr(library, f"graphc_{name}"), ctypes.c_void_p).value for name in own_functions()
        }
        self._names: dict[int | None, str] = {place: name for name, place in found.items()}
        for header in HEADERS:  # before any thread has it
            declare(library, header)
        self.multiplies_pairs = bool(library.graphc_multiplies_pairs())
        """True if it can multiply float32 as bfloat16, by an instruction."""
        self.multiplies_tiles = bool(library.graphc_multiplies_tiles())
        """True if it multiplies by a matrix unit."""

    def wrong_choice(self, text: bytes) -> int:
        """The number of the first line that is not a choice between known ways; 0 if all are."""
        return int(self.library.graphc_builder_choose(None, text, len(text)))

    def function_of(self, tensor: Any) -> str:
        """The function of ours that computes a tensor of a graph; "" if it is another, or ggml does."""
        if tensor.contents.op != ggml.GGML_OP_CUSTOM:
            return ""
        place = ctypes.c_void_p.from_buffer(tensor.contents.op_params).value
        return self._names.get(place, "")


def c_tools() -> tuple[tuple[str, ...], Path] | None:
    """The C compiler, and the folder of ggml's headers that what it compiles includes; None without either."""
    compiler, include = find_compiler(), ggml_include()
    return None if compiler is None or include is None else (compiler, include)


def has_own_code() -> bool:
    """True if a wheel brought our own code, or there is what compiles it."""
    return loaded.own is not None or c_tools() is not None


@once
def load_own() -> Own | None:
    """The code, which a wheel brings; else None where there is no C compiler, or, with a warning, one that cannot do it."""
    if loaded.own is not None:
        return Own(loaded.own, (__version__, loaded.variant))
    tools = c_tools()
    if tools is None:
        return None
    try:
        return Own(load_library(source(), *tools, FAST_FLAGS), (source(), *tools[0]))
    except BuildError as error:
        warn(f"ggml computes everything, several times slower: {error}")
        return None


def limit_rounded_weights(nbytes: int) -> None:
    """Have weights that a matrix unit of the CPU reads rounded (`set_float32_matmul_precision("high")`) stay rounded in so many
    bytes of this process at most; what does not fit is rounded in every run, with the same numbers. If this is never called, they
    have an eighth of the memory of the machine, or of its container. Models that have run keep what they have.

    Raises InputError for a number below 0.
    """
    if nbytes < 0:
        raise InputError(f"rounded weights cannot have {nbytes} bytes")
    if (own := load_own()) is not None:
        own.library.graphc_limit_rounded_panels(min(nbytes, sys.maxsize))


@once
def load_routines() -> ctypes.CDLL | None:
    """The routines for all types, which a wheel brings; else None where there is no C compiler. Raises BuildError if it fails."""
    found = loaded.own
    if found is None:
        tools = c_tools()
        if tools is None:
            return None
        from graphc.kernels.c.ready import ready_text  # with it come the operators

        found = load_library(ready_text(), *tools, ROUTINE_FLAGS)
    found.graphc_routine.restype = ctypes.c_void_p
    return found


@functools.cache
def source(names: tuple[str, ...] = FILES, export: str = "") -> str:
    """The files as one, each with what it includes of others; `export` is how C has a name be known outside of a library."""
    return f"#define GRAPHC_API {export}\n#define GRAPHC_VARIANT {export} {TABLE}\n" + joined(names, _text)


def _text(path: str) -> str:
    return ONLY_HERE[path]() if path in ONLY_HERE else c_text(path)
