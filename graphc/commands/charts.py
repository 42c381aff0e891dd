"""Pictures as SVG: a roofline of a profile, and bars of a benchmark. Names are text nodes, so they stay text."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from graphc.commands.output import bytes_text, printable, seconds_text

if TYPE_CHECKING:
    from graphc.runtime.bench import Result
    from graphc.runtime.peaks import Peaks
    from graphc.runtime.profile import Total

COLOURS = ("#2563eb", "#0d9488", "#e07a00", "#9333ea", "#be185d", "#15803d", "#b45309", "#475467")
STYLE = """
text { font: 13px system-ui, sans-serif; fill: #1d2430 } .title { font-size: 16px; font-weight: 600 } .soft { fill: #667085 }
.grid { stroke: #e4e7ec } .roof { stroke: #1d2430; stroke-width: 2; fill: none } .end { text-anchor: end }
.middle { text-anchor: middle }
"""


class Picture:
    """An SVG file in the making; lengths are pixels."""

    def __init__(self, width: float, height: float, title: str) -> None:
        view = {"xmlns": "http://www.w3.org/2000/svg", "viewBox": f"0 0 {width:g} {height:g}"}
        self.root = ElementTree.Element("svg", {**view, "width": f"{width:g}", "height": f"{height:g}"})
        ElementTree.SubElement(self.root, "style").text = STYLE
        self.shape("rect", x=0, y=0, width=width, height=height, fill="#fff")
        self.text(24, 32, title, "title")

    def shape(self, tag: str, tip: str = "", kind: str = "", **attributes: object) -> None:
        """A line, rectangle, circle or path; `tip` is shown under the pointer."""
        given = {name.replace("_", "-"): f"{value:.6g}" if isinstance(value, float) else str(value)
                 for name, value in attributes.items()}  # fmt: skip
        element = ElementTree.SubElement(self.root, tag, {**given, **({"class": kind} if kind else {})})
        if tip:
            ElementTree.SubElement(element, "title").text = printable(tip)

    def text(self, x: float, y: float, text: str, kind: str = "") -> None:
        """A line of text that begins (`end`: ends, `middle`: has its middle) at x, on the line y."""
        ElementTree.SubElement(self.root, "text", {"x": f"{x:g}", "y": f"{y:g}", "class": kind}).text = printable(text)

    def __str__(self) -> str:
        return ElementTree.tostring(self.root, encoding="unicode")


class Logarithm:
    """Places of numbers between two powers of ten."""

    def __init__(self, values: Iterable[float], start: float, end: float) -> None:
        known = [value for value in values if value > 0]
        self.low, self.high = math.floor(math.log10(min(known))), math.ceil(math.log10(max(known) * 1.05))
        self.start, self.end = start, end

    def __call__(self, value: float) -> float:
        """The place of a positive number."""
        part = (math.log10(value) - self.low) / (self.high - self.low)
        return self.start + part * (self.end - self.start)

    def ticks(self) -> list[float]:
        """The powers of ten."""
        return [10.0**power for power in range(self.low, self.high + 1)]


def roofline(title: str, kinds: Sequence[Total], peaks: Peaks) -> str:
    """The kinds of steps by operations for each byte and operations a second, under what the machine can do.

    A disc's area is its share of the time; less than a thousandth is left out. Steps that compute nothing have no place
    there: they are listed below.
    """
    whole = sum(each.seconds for each in kinds)
    shown = [each for each in kinds if each.operations and each.nbytes and each.seconds >= whole / 1000]
    idle = [each for each in kinds if not each.operations and each.seconds >= whole / 1000]
    rows = (len(shown) + 2) // 3
    left, top, width, height = 80.0, 60.0, 860.0, 420.0
    picture = Picture(left + width + 40, top + height + 70 + 22 * (rows + bool(idle)), title)
    ridge = peaks.gflops / peaks.gbytes
    x = Logarithm([ridge / 10, ridge * 10, *(each.operations / each.nbytes for each in shown)], left, left + width)
    y = Logarithm([peaks.gflops, peaks.gflops / 100, *(each.gflops for each in shown)], top + height, top)
    for tick in x.ticks():
        picture.shape("line", kind="grid", x1=x(tick), x2=x(tick), y1=top, y2=top + height)
        picture.text(x(tick), top + height + 18, f"{tick:g}", "soft middle")
    for tick in y.ticks():
        picture.shape("line", kind="grid", x1=left, x2=left + width, y1=y(tick), y2=y(tick))
        picture.text(left - 8, y(tick) + 4, f"{tick:g}", "soft end")
    picture.text(left + width / 2, top + height + 38, "operations for each byte that is read or written", "soft middle")
    picture.text(left - 8, top - 12, "GFLOP/s", "soft end")
    first = max(10.0**x.low, 10.0**y.low / peaks.gbytes)
    corner, end = f"L {x(ridge):.1f} {y(peaks.gflops):.1f}", f"H {left + width:.1f}"
    picture.shape("path", kind="roof", d=f"M {x(first):.1f} {y(first * peaks.gbytes):.1f} {corner} {end}")
    picture.text(left + width, y(peaks.gflops) - 8, f"{peaks.gflops:.0f} GFLOP/s, {peaks.threads} threads", "end")
    picture.text(x(ridge) - 12, y(peaks.gflops) - 8, f"{peaks.gbytes:.0f} GB/s", "end")
    for index, each in enumerate(shown):
        colour, share = COLOURS[index % len(COLOURS)], each.seconds / whole
        label = f"{each.name}: {100 * share:.1f}% of the time, {each.gflops:.1f} GFLOP/s"
        where, high, radius = x(each.operations / each.nbytes), y(each.gflops), 3 + 30 * math.sqrt(share)
        picture.shape("circle", label, cx=where, cy=high, r=radius, fill=colour, fill_opacity=0.55, stroke=colour)
        column, row = divmod(index, rows)
        corner_x, corner_y = left + column * 290, top + height + 66 + 22 * row
        picture.shape("circle", fill=colour, cx=corner_x, cy=corner_y - 4, r=5)
        picture.text(corner_x + 12, corner_y, _shortened(f"{each.name} {100 * share:.1f}%", 38))
    if idle:
        part = sum(each.seconds for each in idle) / whole if whole else 0.0
        names = _shortened(", ".join(each.name for each in idle), 90)
        picture.text(left, top + height + 66 + 22 * rows, f"compute nothing, {100 * part:.1f}%: {names}", "soft")
    return str(picture)


def bars(title: str, results: Sequence[Result]) -> str:
    """The median of each runtime as a bar, with error and peak memory beside it; first ours, then in the given order."""
    left, width, high = 260.0, 420.0, 34.0
    picture = Picture(left + width + 330, 80 + high * len(results), title)
    longest = max((each.median for each in results if not each.problem), default=1.0)
    for index, each in enumerate(results):
        y = 60 + high * index
        picture.text(left - 12, y + 17, each.runtime, "end")
        if each.problem:
            picture.text(left, y + 17, _shortened(each.problem.splitlines()[0], 90), "soft")
            continue
        colour = COLOURS[0] if each.runtime.startswith("graphc") else COLOURS[-1]
        span = f"fastest {seconds_text(each.fastest)}, slowest {seconds_text(max(each.times))}"
        picture.shape(
            "rect", span, x=left, y=y, width=width * each.median / longest, height=high - 10, rx=4, fill=colour
        )
        error = "" if each.error is None else f" · error {each.error:.1e}"
        memory = f" · {bytes_text(each.peak_bytes)}" if each.peak_bytes else ""
        facts = seconds_text(each.median) + memory + error
        picture.text(left + width * each.median / longest + 10, y + 17, facts, "soft")
    return str(picture)


def _shortened(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"
