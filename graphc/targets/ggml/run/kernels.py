"""Makes kernels runnable in this process: compiled by the system's C compiler or the `ziglang` package's, or where there is none
interpreted by our own code, or evaluated by NumPy. Each way is imported when it is taken: many programs have no kernels.

Where a wheel brings our own code, kernels of few elements are interpreted too: a compiler would cost more than it saves."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import inf, prod
from typing import Any, Protocol

from graphc.cache import warn_once
from graphc.errors import BuildError, GraphcError, InputError
from graphc.ggml_library import loaded
from graphc.kernels.c.compiled import load_library
from graphc.kernels.use import KernelUse
from graphc.shapes import integer
from graphc.targets.ggml.run.choose.library import c_tools, load_own


class LoadedKernel(Protocol):
    """A kernel that `ggml_custom_4d` can run."""

    @property
    def function(self) -> Any:
        """The function pointer, a `ggml_custom_op_t`. It lives as long as this object."""

    def userdata(self, binding: Mapping[str, int]) -> Any:
        """A new buffer to pass as userdata for these values of the size symbols; it must outlive the graph."""

    def fault(self, userdata: Any) -> str | None:
        """What went wrong in the last run with this buffer, or None. Its first number says which fault it was, and none if it is
        made 0."""


def load_kernels(uses: Sequence[KernelUse], symbols: Sequence[str] | None = None) -> list[LoadedKernel]:
    """The kernels, in order. `symbols`: see `render`. A compiler that compiles nothing is as none, if nobody chose it (`CC`).

    Raises GraphcError for an operator without a loop form, BuildError if the compiler fails, InputError if `GRAPHC_KERNELS` is
    none of `WAYS`.
    """
    asked = os.environ.get(SETTING, "").strip()
    way = asked or ("compiled" if c_tools() else "interpreted")
    if not asked and loaded.own is not None and elements_of(uses) <= SMALL:
        way = "interpreted"
    if way not in WAYS:
        raise InputError(f"{SETTING} is {way!r}, must be {' or '.join(WAYS)}")
    try:
        return kernels_by(way, uses, symbols)
    except BuildError as error:
        if asked or os.environ.get("CC", "").strip() or _compiles():
            raise
        warn_once(f"the C compiler does not work, so kernels are not compiled: {error}")
        return kernels_by("interpreted", uses, symbols)


def elements_of(uses: Sequence[KernelUse]) -> float:
    """How many elements kernels take and give together; infinitely many if that depends on what they are given."""
    if any(use.sizes() for use in uses):
        return inf
    shapes = (shape for use in uses for shape in (use.shape, *(each for _, each in use.inputs)))
    return sum(prod([integer(size, {}) for size in shape]) for shape in shapes)


def _compiles() -> bool:
    """True if the compiler makes a library of the least that there is."""
    tools = c_tools()
    try:
        return tools is not None and bool(load_library("int nothing;", *tools))
    except BuildError:
        return False


@contextmanager
def _of_strangers() -> Iterator[None]:
    """What an engine from a stranger may lead to is one error."""
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise GraphcError(f"a kernel of the program cannot be made: {error}") from error


def kernels_by(way: str, uses: Sequence[KernelUse], symbols: Sequence[str] | None = None) -> list[LoadedKernel]:
    """The kernels by one of `WAYS`."""
    if not uses:
        return []
    with _of_strangers():
        return WAYS[way](uses, symbols)


def _compiled(uses: Sequence[KernelUse], symbols: Sequence[str] | None) -> list[LoadedKernel]:
    from graphc.kernels.c.render import render
    from graphc.targets.ggml.run.native_kernels import NativeKernel

    rendered = render(uses, symbols)
    tools = c_tools()
    if tools is None:
        raise BuildError("there is no C compiler (set CC, or `pip install ziglang`)")
    library = load_library(rendered.text, *tools)
    return [
        NativeKernel(getattr(library, function), rendered.symbols, rendered.faults, arguments)
        for function, arguments in zip(rendered.functions, rendered.arguments, strict=True)
    ]


def _interpreted(uses: Sequence[KernelUse], symbols: Sequence[str] | None) -> list[LoadedKernel]:
    """What our own code lacks is evaluated: a routine, or all."""
    from graphc.targets.ggml.run.interpreted import kernel_of

    own = load_own()
    if own is None:
        return _evaluated(uses, symbols)
    kernels = [kernel_of(use, own) for use in uses]
    missing = [use for use, kernel in zip(uses, kernels, strict=True) if kernel is None]
    evaluated = iter(_evaluated(missing, symbols) if missing else ())
    return [kernel or next(evaluated) for kernel in kernels]


def _evaluated(uses: Sequence[KernelUse], symbols: Sequence[str] | None) -> list[LoadedKernel]:
    from graphc.kernels.c.render import render
    from graphc.targets.ggml.run.numpy_kernels import EvaluatedKernel

    what = ", ".join(sorted({use.op.name for use in uses}))  # type: ignore[attr-defined]
    why = "" if c_tools() else "no C compiler (set CC, or `pip install ziglang`): "
    warn_once(f"{why}what computes {what} runs in NumPy, which is slow")
    rendered = render(uses, symbols)
    return [EvaluatedKernel(use, rendered.symbols) for use in uses]


SMALL = 1 << 12
"""Elements whose kernels take some ten microseconds more if they are interpreted. A compiler takes ten thousand times as long."""

SETTING = "GRAPHC_KERNELS"
"""The environment variable that names one of `WAYS`."""

WAYS: Mapping[str, Callable[[Sequence[KernelUse], Sequence[str] | None], list[LoadedKernel]]] = {
    "compiled": _compiled,
    "interpreted": _interpreted,
    "evaluated": _evaluated,
}
"""How kernels are run: by a C compiler, by our own code, or by NumPy. All give the same, the first two bit by bit, but for the
sign of a zero: gcc makes one rounding of a cast to an integer and back, which keeps it."""
