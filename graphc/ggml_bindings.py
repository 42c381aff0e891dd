"""ggml's functions, structs and constants for Python, by `ctypes`, of what `ggml_declarations.py` says of them.

A small binding of our own: it takes any build of ggml, where another package's would bring its own libraries. Functions are
looked up when they are first used, because importing six hundred takes longer than starting a model.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Sequence
from typing import Any

from graphc.ggml_declarations import CALLBACKS, CONSTANTS, FUNCTIONS, STRUCTS

TYPES: dict[str, Any] = {
    "void": None,
    "void*": ctypes.c_void_p,
    "char*": ctypes.c_char_p,
    "char": ctypes.c_char,
    "bool": ctypes.c_bool,
    "int": ctypes.c_int,
    "uint": ctypes.c_uint,
    "float": ctypes.c_float,
    "double": ctypes.c_double,
    "size_t": ctypes.c_size_t,
    **{f"{sign}int{bits}": getattr(ctypes, f"c_{sign}int{bits}") for sign in ("", "u") for bits in (8, 16, 32, 64)},
}
"""By the names of the declarations; structs and callbacks are added below, once and before any thread asks for a function."""


def type_of(name: str) -> Any:
    """The type of this name: one of `TYPES`, a pointer to one, or an array of them."""
    if name in TYPES:
        return TYPES[name]
    if name.endswith("*"):
        return ctypes.POINTER(type_of(name[:-1]))
    array = re.fullmatch(r"(.+)\[(\d+)\]", name)
    assert array is not None, name
    return type_of(array[1]) * int(array[2])


def _callback(types: Sequence[str]) -> Any:
    result, *parameters = map(type_of, types)
    try:
        return ctypes.CFUNCTYPE(result, *parameters)
    except TypeError:  # one that gives a struct cannot be written in Python
        return ctypes.c_void_p


TYPES |= {name: type(name, (ctypes.Structure,), {}) for name in STRUCTS}
for _name, _types in CALLBACKS.items():
    TYPES[_name] = _callback(_types)
for _name, _fields in STRUCTS.items():
    TYPES[_name]._fields_ = [(field, type_of(kind)) for field, kind in _fields]


class Ggml:
    """What ggml's headers declare, as attributes by their names; functions are those of the first library that has them.

    A function takes and gives numbers, `bytes` for text, addresses (int or None) for what only ggml looks into, and
    `ctypes.POINTER(ggml_tensor)` for tensors. Unknown names are AttributeErrors.
    """

    def __init__(self, libraries: Sequence[ctypes.CDLL]) -> None:
        self._libraries = libraries
        vars(self).update(CONSTANTS)
        vars(self).update({name: TYPES[name] for name in (*STRUCTS, *CALLBACKS)})

    def __getattr__(self, name: str) -> Any:
        """A function, looked up for the first time. Threads may ask at once: what any of them gets is declared."""
        if name not in FUNCTIONS:
            raise AttributeError(f"ggml has no {name}")
        function = self.symbol(name)
        function.restype, *function.argtypes = map(type_of, FUNCTIONS[name])
        vars(self)[name] = function
        return function

    def symbol(self, name: str) -> Any:
        """A function that headers need not declare, new in each call, so that its types are the caller's affair."""
        for library in self._libraries:
            try:
                return library[name]  # never the one that the library keeps
            except AttributeError:
                continue
        raise AttributeError(f"the libraries of ggml have no {name}")

    def table(self, names: Sequence[str]) -> Any:
        """The addresses of functions, as a struct of C's that has nothing else. Who gives it to C keeps it."""
        return (ctypes.c_void_p * len(names))(
            *(ctypes.cast(self.symbol(name), ctypes.c_void_p).value for name in names)
        )
