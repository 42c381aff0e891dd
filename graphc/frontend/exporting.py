"""What PyTorch's exporter could not do, in three plain lines: what, where, and what helps."""

from __future__ import annotations

import linecache
import re
import sysconfig
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Any

LONGEST = 200
"""Characters of another library's sentence that are shown."""

LIBRARIES = ("torch", "onnxscript", "onnx_ir", "graphc")
"""Packages whose code is not the user's, nor is that of Python's own library."""

OWN, STANDARD = Path(__file__).parent.parent, Path(sysconfig.get_path("stdlib"))

FIXED = "axis {axis} of {name} is to be free, but the module works for the size {size} alone"
FREE_IT = (
    "leave this axis out of dynamic_shapes, or find what fixes it: a buffer of that size, an if about it, int() of it"
)
"""Of a size that dynamic_shapes leaves open in vain, and what helps."""

CAUSES: tuple[tuple[str, str, str], ...] = (
    (
        r"No ONNX function found for <OpOverload\(op='(?P<operator>[^']+)'",
        "the operator {operator} has no form in ONNX",
        "write it with other operators, or leave it out of the module and compute it outside",
    ),
    (
        r"data-dependent expression",
        "an if, a loop or a size depends on what a tensor holds",
        "torch.where for values, torch.cond for branches, or export the module for one of the cases",
    ),
    (
        r"static shape of (?P<size>\d+) for dimension inputs\['(?P<name>\w+)'\]\.shape\[(?P<axis>\d+)\]",
        FIXED,
        FREE_IT,
    ),
    (
        r"Constraints violated \((?P<names>[^)]*)\)",
        "the module does not work for all sizes of {names} that torch.export.Dim allows",
        "give names instead of torch.export.Dim, or leave these axes out of dynamic_shapes",
    ),
    (
        r"top-level keys must be the arg names (?P<names>\[[^\]]*\])[^\[]*(?P<given>\[[^\]]*\])",
        "dynamic_shapes names {given}, but the example gives forward the arguments {names}",
        "use the same names, or give a tuple in the order of the arguments",
    ),
)  # fmt: skip
"""What exporters' messages say, what that means, and what helps."""

OTHERWISE = (
    "the module must run with example_inputs in PyTorch too, without .item(), NumPy or other libraries on the way"
)


def failure(error: BaseException, module: Any) -> str:
    """Three lines about an exporter's error: what it could not do, at which place of the module, and what helps."""
    causes = list(chain(error))
    texts = [str(each) for each in causes]
    what, helps = next(
        (
            (says.format_map(found.groupdict()), helps)
            for pattern, says, helps in CAUSES
            for text in reversed(texts)
            if (found := re.search(pattern, text, re.DOTALL))
        ),
        (f"{type(causes[-1]).__name__}: {first_sentence(texts[-1])}", OTHERWISE),
    )
    place = next(filter(None, (place_of(each, module) for each in reversed(causes))), "")
    return lines(what, place, helps)


def lines(what: str, place: str, helps: str) -> str:
    """The message: what could not be done, where if that is known, and what helps."""
    where = [f"where: {place}"] if place else []
    return "\n  ".join([f"PyTorch cannot export the module: {what}", *where, f"what helps: {helps}"])


def chain(error: BaseException) -> Iterator[BaseException]:
    """An error and its causes, the first cause last. What was raised on the way of handling another is no cause."""
    current: BaseException | None = error
    while current is not None:
        yield current
        current = current.__cause__


def first_sentence(text: str) -> str:
    """The first line that says something, without a terminal's colours."""
    plain = re.sub(r"\x1b\[[0-9;]*m", "", text)
    line = next(filter(None, map(str.strip, plain.splitlines())), "no reason is given")
    return line if len(line) <= LONGEST else line[: LONGEST - 2] + " …"


def place_of(error: BaseException, module: Any) -> str:
    """The module and the line of the user's code that an error is about; "" if it does not say."""
    frames = list(_frames(error))
    for frame in reversed(frames):  # while translating, the exporter holds the node
        node = frame.f_locals.get("node")
        trace = getattr(node, "meta", {}).get("stack_trace") if node is not None else None
        if trace:
            return _place(_module_of_node(node), *_last_line(trace))
    own = [frame for frame in frames if not _of_library(frame.f_code.co_filename)]
    if not own or own[-1].f_code.co_name == "<module>":
        return ""
    names = {id(each): name for name, each in getattr(module, "named_modules", lambda: ())()}
    inside = next(
        (names[id(each)] for frame in reversed(frames) if id(each := frame.f_locals.get("self")) in names), ""
    )
    last = own[-1]
    line = next(number for frame, number in _lines(error) if frame is last)
    return _place(inside, last.f_code.co_filename, line, linecache.getline(last.f_code.co_filename, line).strip())


def _place(module: str, file: str, line: int, code: str) -> str:
    place = f"{Path(file).name}, line {line}" + (f": {code}" if code else "")
    return f"{module}, {place}" if module else place


def _lines(error: BaseException) -> Iterator[tuple[FrameType, int]]:
    trace = error.__traceback__
    while trace is not None:
        yield trace.tb_frame, trace.tb_lineno
        trace = trace.tb_next


def _frames(error: BaseException) -> Iterator[FrameType]:
    return (frame for frame, _ in _lines(error))


def _of_library(file: str) -> bool:
    path = Path(file)
    installed = next(
        (name for folder, name in pairwise(path.parts) if folder in ("site-packages", "dist-packages")), ""
    )
    if installed:
        return installed in LIBRARIES
    return file.startswith("<") or path.is_relative_to(STANDARD) or path.is_relative_to(OWN)


def _module_of_node(node: Any) -> str:
    """The path of the module that made a node of the exporter's graph."""
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    path: str = stack[-1][0] if stack else ""
    return re.sub(r"^(L\['self'\]|self)\.?", "", path)


def _last_line(trace: str) -> tuple[str, int, str]:
    """File, line and code of the innermost call of a formatted trace that is not a library's."""
    found = re.findall(r'File "([^"]+)", line (\d+), in \S+\n\s*(.*)', trace)
    own = [each for each in found if not _of_library(each[0])] or found
    file, line, code = own[-1] if own else ("", "0", "")
    return file, int(line), code.strip()
