"""`graphc inspect --memory`: what lies in memory during a run, and when."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from math import ceil
from typing import TYPE_CHECKING, Any

from graphc.commands.output import bytes_text, printable, say, say_table

if TYPE_CHECKING:
    from graphc.runtime.arena import Arena, Held
    from graphc.targets.ggml.program.program import Program

WIDTH, HEIGHT = 72, 10
"""Characters of the picture of a run."""

SHOWN = 12
"""Tensors that are listed."""


def memory_of(program: Program, sizes: Mapping[str, int]) -> dict[str, Any]:
    """The arenas as JSON."""
    from graphc.runtime.arena import arenas

    found, unknown = arenas(program, sizes)
    return {
        "sections": [
            {
                "program": each.program,
                "reserved_bytes": each.nbytes,
                "live_bytes": each.live(),
                "held": [asdict(held) for held in each.held],
            }
            for each in found
        ],
        "sections_of_unknown_size": unknown,
    }


def say_memory(program: Program, sizes: Mapping[str, int], mapped: bool) -> None:
    """Print what a run holds: the weights, then the arena of the section that needs most."""
    from graphc.runtime.arena import arenas
    from graphc.targets.ggml.program.cost import weight_bytes

    found, unknown = arenas(program, sizes)
    where = (
        "mapped from the engine file"
        if mapped
        else "in memory; `graphc compile -o` makes a file from which they are mapped"
    )
    say(f"weights   {bytes_text(weight_bytes(program))}, {where}")
    if unknown:
        say(f"sections  {unknown} have sizes that only a run can tell; {len(found)} are shown")
    largest = max(found, key=lambda each: each.nbytes, default=None)
    if largest is None or not largest.steps:
        return
    live = largest.live()
    peak = live.index(max(live))
    say(f"arena     {bytes_text(largest.nbytes)} for intermediate results, inputs and outputs")
    if len(found) > 1:
        say(f"          all {len(found)} sections share it; this is {printable(largest.program)}, which needs most")
    say(f"peak      {bytes_text(live[peak])} at step {peak} of {largest.steps}")
    say()
    for line in timeline(live):
        say(line)
    say()
    _say_held(largest, largest.at(peak), peak)


def timeline(live: Sequence[int]) -> list[str]:
    """A picture of the bytes that are needed over the steps; each column shows the most of its steps."""
    width = min(WIDTH, len(live))
    columns = [max(live[len(live) * i // width : max(len(live) * (i + 1) // width, 1)]) for i in range(width)]
    most = max(max(columns), 1)
    levels = [ceil(HEIGHT * each / most) for each in columns]
    lines = []
    for level in range(HEIGHT, 0, -1):
        label = bytes_text(most * level / HEIGHT) if level in (HEIGHT, HEIGHT // 2) else ""
        lines.append(f"{label:>10} |" + "".join("#" if each >= level else " " for each in levels).rstrip())
    last = f"step {len(live) - 1}"
    return [*lines, f"{'':>10} +{'-' * width}", f"{'':>10}  0{last:>{max(width - 1, len(last) + 1)}}"]


def _say_held(arena: Arena, held: Sequence[Held], peak: int) -> None:
    rows = [
        (
            bytes_text(each.nbytes),
            f"{each.first}..{each.last}",
            each.step,
            str(list(each.shape)),
            each.module,
        )
        for each in held[:SHOWN]
    ]
    say_table((f"at step {peak}", "needed", "step", "result", "module"), rows, "rr")
    if len(held) > SHOWN:
        rest = sum(each.nbytes for each in held[SHOWN:])
        say(f"and {len(held) - SHOWN} more, {bytes_text(rest)}")
