"""The tables of images.md that come from the program: `python docs/images_tables.py` writes them anew."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from inspect import Parameter, signature
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from graphc_images.commands.options import OPTIONS
from graphc_images.describing import ENTRIES
from graphc_images.sampling.names import SAMPLERS, SCHEDULERS, Sampler

PAGE = Path(__file__).parent / "images.md"


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A table of the page."""
    head = list(head)
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def code(name: str) -> str:
    """A name, as code."""
    return f"`{name}`" if name else "–"


def summary(function: object) -> str:
    """The first sentence of a docstring."""
    return " ".join((function.__doc__ or "").split("\n\n")[0].split()).replace("|", "\\|")


def makes_noise(sampler: Sampler) -> bool:
    """True if it adds noise as it is called."""
    known = signature(sampler.function).parameters
    if "noise" not in known:
        return False
    needed = known["noise"].default is Parameter.empty
    return bool(sampler.settings.get("eta", known["eta"].default)) if "eta" in known else needed


def use(sampler: Sampler) -> str:
    """What else is to be known of a sampler."""
    notes = [
        f"{sampler.evaluations} evaluations a step" if sampler.evaluations > 1 else "",
        "makes noise" if makes_noise(sampler) else "",
        "Brownian noise" if sampler.brownian else "",
        f"{sampler.scheduler} by itself" if sampler.scheduler else "",
        "penultimate level left out" + ("" if len(sampler.discard) > 1 else f" ({sampler.discard[0]})")
        if sampler.discard
        else "",
        "on times" if sampler.on_times else "",
        "CFG++" if sampler.pair else "",
        f"{sampler.only} only" if sampler.only else "",
    ]
    return ", ".join(note for note in notes if note)


def samplers() -> str:
    """All samplers."""
    head = ["A1111, Forge", "ComfyUI", "diffusers", "stable-diffusion.cpp", "other names", "use"]
    rows = (
        [
            each.label or "–",
            code(each.comfyui),
            each.diffusers or "–",
            code(each.cpp),
            ", ".join(map(code, each.aliases)),
            use(each),
        ]
        for each in SAMPLERS
    )
    return table(head, rows)


def schedulers() -> str:
    """All schedulers."""
    head = ["name", "A1111, Forge", "ComfyUI", "stable-diffusion.cpp", "what it is"]
    rows = (
        [
            code(each.name),
            each.label or "–",
            code(each.comfyui),
            code(each.cpp),
            summary(each.function) if each.function else "The sampler's own; else Uniform, for flow models Simple.",
        ]
        for each in SCHEDULERS
    )
    return table(head, rows)


def settings() -> str:
    """Every setting that can be typed, in the groups of the command's help."""
    head = ["setting", "option", "usual", "what it is"]
    rows = (
        [code(each.setting), code(each.names[0]), each.usual, each.help.replace("|", "\\|")]
        for several in OPTIONS.values()
        for each in several
    )
    return table(head, rows)


def labels() -> str:
    """The labels of a picture's text, in its order."""
    return ", ".join(code(each.label) for each in ENTRIES)


def page(text: str) -> str:
    """The page with its tables made anew, each between two marks."""
    for name, function in TABLES.items():
        made = function()
        begin, end = f"<!-- {name} -->\n", f"\n<!-- end of {name} -->"
        text = re.sub(
            f"(?<={re.escape(begin)}).*?(?={re.escape(end)})", lambda _, made=made: made, text, flags=re.DOTALL
        )
    return text


TABLES = {"samplers": samplers, "schedulers": schedulers, "settings": settings, "labels": labels}
"""What stands between which marks of the page."""

if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
