"""Generated programs in the user's cache: to write a large model's kernels takes Python ten seconds, to read them half of one."""

from __future__ import annotations

import io
import pickle
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import graphc
from graphc.cache import checked_name, forget_oldest, keep, kept
from graphc.kernels.gpu.forms import Form
from graphc.kernels.gpu.instructions import UNTRIED
from graphc.kernels.gpu.schedule import Schedule
from graphc.kernels.gpu.scheduling import Scheduling
from graphc.targets.ggml.generate.generate import Generated, generated
from graphc.targets.ggml.program.launch import Choice, Launches
from graphc.targets.ggml.program.program import Program, with_blocks
from graphc.targets.ggml.program.text import digest, write_text

KEPT_IN, ENDING = "generated", ".pickle"
"""The folder of the cache, and what names of its files end with."""

MOST_KEPT = 64
"""Programs, of up to 4 MB each. Another graphc, and each new measurement, has others in their place."""

WORTH_KEEPING = 2.0
"""Seconds that it must take to generate a program, for it to be kept."""


def kept_or_generated(program: Program, fast: bool, scheduling: Scheduling | None, form: Form) -> Generated:
    """What `generated` makes, or made of the same in an earlier process. Raises GraphcError as it does."""
    key = _key(program, fast, scheduling, form)

    @cache
    def again() -> list[Choice]:
        return list(choices(generated(program, fast, scheduling, form)))

    for content in kept(KEPT_IN, key, ENDING):
        found: Generated = _Reader(content, again).load()
        found.program.device_code = program.device_code
        return replace(found, scheduling=scheduling)
    begin = time.perf_counter()
    made = generated(program, fast, scheduling, form)
    if time.perf_counter() - begin > WORTH_KEEPING:
        file = io.BytesIO()
        _Writer(file, made).dump(replace(made, names={}, written={}, scheduling=None))
        keep(KEPT_IN, checked_name(key, file.getvalue(), ENDING), file.getvalue())
        forget_oldest(KEPT_IN, ENDING, MOST_KEPT)
    return made


def choices(made: Generated) -> Iterator[Choice]:
    """The choices of all calls, in order."""
    for program in with_blocks(made.program):
        for call in program.calls:
            if call.launches is not None and call.launches.choice is not None:
                yield call.launches.choice


BROUGHT = "brought"
"""What stands for code that the program's engine has."""


class _Writer(pickle.Pickler):
    """Leaves out the code that an engine has, and what makes further ways of a choice, in whose place is the choice's number."""

    def __init__(self, file: io.BytesIO, made: Generated) -> None:
        super().__init__(file, pickle.HIGHEST_PROTOCOL)
        self.left_out: dict[int, int | str] = {id(each.make): number for number, each in enumerate(choices(made))}
        if made.program.device_code is not None:
            self.left_out[id(made.program.device_code)] = BROUGHT

    def persistent_id(self, thing: Any) -> int | str | None:
        """See `pickle`."""
        return self.left_out.get(id(thing))


class _Reader(pickle.Unpickler):
    """Has further ways made by a program that is generated `again` when the first of them is wanted."""

    def __init__(self, content: bytes, again: Callable[[], list[Choice]]) -> None:
        super().__init__(io.BytesIO(content))
        self.again = again

    def persistent_load(self, left_out: int | str) -> Callable[[Schedule], Launches] | None:
        """See `pickle`."""
        return None if isinstance(left_out, str) else lambda schedule: self.again()[left_out].make(schedule)


def _key(program: Program, fast: bool, scheduling: Scheduling | None, form: Form) -> str:
    """The checksum of all that a generated program depends on."""
    depends_on = [write_text(program), program.recipes, str(fast), _text(form), _own_files(), str(sorted(UNTRIED))]
    if scheduling is not None:
        times = sorted(
            f"{sizes} {schedule} {seconds!r}"
            for sizes, every in scheduling.measured.items()
            for schedule, seconds in every.items()
        )
        depends_on += [_text(scheduling.gpu), _text(scheduling.coefficients), *times]
    return digest("\0".join(depends_on))[:32]


def _text(record: Any) -> str:
    """The fields of a record, each set in order."""
    values = [getattr(record, field.name) for field in fields(record)]
    return str([type(record).__name__, *(sorted(each) if isinstance(each, frozenset) else each for each in values)])


@cache
def _own_files() -> str:
    """The checksum of what graphc's own files are, by size and time, and of what else the bytes depend on."""
    root = Path(graphc.__file__).parent
    found = sorted((path, path.stat()) for path in root.rglob("*") if path.suffix in (".py", ".h"))
    names = [f"{path.relative_to(root)} {status.st_size} {status.st_mtime_ns}" for path, status in found]
    return digest("\0".join([sys.version, np.__version__, *names]))
