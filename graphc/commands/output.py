"""What commands print: tables, JSON, numbers that a person reads. Names come from models, so they are made printable."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from graphc.weights.lora.apply import Lora


def say(text: str = "") -> None:
    """Print a line of the command's result."""
    typer.echo(text)


def note(text: str) -> None:
    """Print a remark to stderr."""
    typer.echo(text, err=True)


def note_lora(lora: Lora) -> None:
    """Remark what a LoRA changed; what of it the model does not have, the library logs."""
    note(f"{printable(lora.name)}: {lora.strength:g} of the changes of {len(lora.parameters)} parameters")


def note_tokens(ids: Mapping[str, Sequence[int]]) -> None:
    """Remark the numbers of tokens that were added."""
    for token, numbers in ids.items():
        note(f"{printable(token)}: {', '.join(map(str, numbers))}")


def printable(text: object) -> str:
    """The text without characters that would move a terminal's cursor or change its colours."""
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in str(text))


def say_table(headers: Sequence[str], rows: Sequence[Sequence[object]], right: str = "") -> None:
    """Print aligned columns; `right` has an `r` for each column that is aligned to the right."""
    cells = [[printable(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(headers, *cells, strict=True)]
    sides = right.ljust(len(headers), "l")
    for row in [list(headers), ["-" * width for width in widths], *cells]:
        parts = [
            cell.rjust(width) if side == "r" else cell.ljust(width)
            for cell, width, side in zip(row, widths, sides, strict=True)
        ]
        say("  ".join(parts).rstrip())


def say_json(value: Any) -> None:
    """Print a JSON document; numbers that JSON does not have are strings."""
    say(json.dumps(_plain(value), indent=2, ensure_ascii=False))


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def bytes_text(count: float) -> str:
    """Bytes in the unit that fits."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(count) < 1024 or unit == "GiB":
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    raise AssertionError


def count_text(count: float) -> str:
    """A large number with its magnitude: 1.23 G."""
    for unit in ("", " k", " M", " G"):
        if abs(count) < 1000:
            return f"{count:.4g}{unit}"
        count /= 1000
    return f"{count:.4g} T"


def seconds_text(seconds: float) -> str:
    """A duration in the unit that fits."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"


def tolerate_any_encoding() -> None:
    """Print a replacement for characters that the terminal does not have, instead of failing."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="replace")
