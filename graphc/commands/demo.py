"""`graphc demo`: the whole way from a model to native code, on a model that the package brings."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import Annotated

import typer

from graphc.commands import options
from graphc.commands.output import printable, say, seconds_text
from graphc.trace import terminal_progress

BAR = 30


def demo(
    where: options.Where,
    output: Annotated[Path, typer.Option("-o", "--output", metavar="DIR", help="Where the files go.")] = Path(
        "graphc-demo"
    ),
    digit: Annotated[int, typer.Option(min=0, metavar="NUMBER", help="Which of the test digits is shown.")] = 0,
) -> None:
    """Compile a small digit classifier, run it on real digits, and show what it answers. Needs no download."""
    from importlib.metadata import entry_points

    from graphc.demo.demonstration import demonstrate, picture_lines

    shown = demonstrate(output, digit, where.place(), terminal_progress())
    say("A handwritten digit that the network was not trained on:")
    say()
    for line in picture_lines(shown.picture):
        say(f"    {line}")
    say()
    order = shown.probabilities.argsort()[::-1]
    for answer in order[:3]:
        probability = float(shown.probabilities[answer])
        say(f"    {answer}  {probability:7.2%}  {'█' * round(probability * BAR)}")
    say()
    say(f"answer      {order[0]} (it is a {shown.label})")
    say(f"accuracy    {shown.accuracy:.2%} of {shown.count} test digits")
    say(f"time        {seconds_text(shown.seconds)} for one digit")
    say(f"agreement   scores differ from the NumPy reference by {shown.difference:.1e} of the largest")
    say()
    say(f"model       {printable(shown.model)}")
    say(f"engine      {printable(shown.engine)}")
    say(f"C++         {printable(shown.project)}  (graphc build {quote(printable(shown.project))})")
    for installed in entry_points(group="graphc.demonstrations"):  # of packages that build on this one
        say()
        for line in installed.load()(output, threads=where.place().threads):
            say(line)
