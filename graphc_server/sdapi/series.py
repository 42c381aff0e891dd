"""`script_name`: A1111's scripts that make several requests of one, with their arguments in its order.

Source: AUTOMATIC1111's scripts/xyz_grid.py, prompt_matrix.py, prompts_from_file.py, loopback.py, sd_upscale.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from graphc_images import SettingError, Settings
from graphc_images.plots import Axis, axis_of, changed
from graphc_images.prompts.styles import Style, apply_styles
from graphc_images.prompts.variations import axis_values, prompt_matrix, prompts_of_file
from graphc_images.settings import seed_after
from graphc_server.errors import RequestError
from graphc_server.orders import with_seeds
from graphc_server.series import Enlarging, Sheet

AXES: tuple[tuple[str, str], ...] = (
    *(("Nothing", ""), ("Seed", ""), ("Var. seed", ""), ("Var. strength", ""), ("Steps", ""), ("Hires steps", "t")),
    *(("CFG Scale", ""), ("Image CFG Scale", "i"), ("Prompt S/R", ""), ("Prompt order", ""), ("Sampler", "t")),
    *(("Hires sampler", "t"), ("Sampler", "i"), ("Checkpoint name", ""), ("Negative Guidance minimum sigma", "")),
    *(("Sigma Churn", ""), ("Sigma min", ""), ("Sigma max", ""), ("Sigma noise", ""), ("Schedule type", "")),
    *(("Schedule min sigma", ""), ("Schedule max sigma", ""), ("Schedule rho", ""), ("Beta schedule alpha", "")),
    *(("Beta schedule beta", ""), ("Eta", ""), ("Clip skip", ""), ("Denoising", ""), ("Initial noise multiplier", "")),
    *(("Extra noise", ""), ("Hires upscaler", "t"), ("Cond. Image Mask Weight", "i"), ("VAE", ""), ("Styles", "")),
    *(("UniPC Order", ""), ("Face restore", ""), ("Token merging ratio", ""), ("Token merging ratio high-res", "")),
    *(("Always discard next-to-last sigma", ""), ("SGM noise multiplier", ""), ("Refiner checkpoint", "")),
    *(("Refiner switch at", ""), ("RNG source", ""), ("FP8 mode", ""), ("Size", "")),
)
"""Of X/Y/Z plots, in A1111's order, by whose places they may be named: of both, of txt2img, of img2img."""

OURS = {"Negative Guidance minimum sigma": "NGMS"}
"""What axes are called otherwise here."""


@dataclass(frozen=True)
class Series:
    """What a request makes: several, with grids, in loops, of larger pictures, or by several models (see `Order`)."""

    requests: Sequence[Settings]
    sheet: Sheet | None = None
    loops: int = 1
    enlarging: Enlarging | None = None
    files: Sequence[tuple[str, str | None]] = ()


@dataclass(frozen=True)
class Place:
    """Where a script is asked for: in img2img (`of_pictures`), with these upscalers and styles, and with a model and an
    autoencoder; `find_model` and `find_vae` know others by their names, and raise RequestError."""

    of_pictures: bool
    upscalers: Sequence[str]
    styles: Callable[[], Mapping[str, Style]]
    model: str
    vae: str | None
    find_model: Callable[[str], str]
    find_vae: Callable[[str], str | None]


@dataclass(frozen=True)
class FileAxis(Axis):
    """An axis along which the model, or the autoencoder, is another."""

    files: tuple[str | None, ...]


@dataclass(frozen=True)
class Script:
    """A script: its title, its arguments in order with their usual values, and what it makes of a request. Some are img2img's
    alone (`of_pictures`)."""

    title: str
    arguments: tuple[tuple[str, Any], ...]
    make: Callable[[Settings, Sequence[Any], Place], Series]
    of_pictures: bool = False


def series_of(name: str, arguments: Sequence[Any], settings: Settings, place: Place) -> Series:
    """The requests of a script, with numbers for seeds, and its grids. Raises RequestError."""
    script = SCRIPTS.get(name.lower())
    if script is None or (script.of_pictures and not place.of_pictures):
        raise RequestError(f"Script '{name[:60]}' not found")
    usual = [value for _, value in script.arguments]
    try:
        made = script.make(settings, [*arguments, *usual[len(arguments) :]], place)
    except (SettingError, ValueError, TypeError, OverflowError) as problem:
        raise RequestError(f"script_args: {script.title}: {problem}") from None
    if not made.requests:
        raise RequestError(f"script_args: {script.title}: there is nothing to paint")
    return made


def _plot(settings: Settings, arguments: Sequence[Any], place: Place) -> Series:
    axes = [_axis(arguments[first : first + 3], place) for first in (0, 3, 6)]
    legend, alone, each, unfixed, *vary = map(bool, arguments[9:16])
    del unfixed  # A1111 draws a seed for each cell then; here an axis of seeds does so
    one = with_seeds(replace(settings, batches=1, batch_size=1))
    across, down = (len(axis.changes) if varied else 1 for axis, varied in zip(axes, vary[:2], strict=False))
    strides = [place * varied for place, varied in zip((1, across, across * down), vary, strict=True)]
    made, files = [], []
    for z, y, x in product(*(range(len(axis.changes)) for axis in reversed(axes))):
        chosen = {
            axis.name: axis.files[n] for axis, n in zip(axes, (x, y, z), strict=True) if isinstance(axis, FileAxis)
        }
        files.append((chosen.get("Checkpoint name") or place.model, chosen.get("VAE", place.vae)))
        cell = changed(one, (axis.changes[n] for axis, n in zip(axes, (x, y, z), strict=True)))
        more = x * strides[0] + y * strides[1] + z * strides[2]
        made.append(replace(cell, seed=seed_after(cell.seed, more)))
    sheet = Sheet(axes[0].labels, axes[1].labels, axes[2].labels, legend, each, alone)
    return Series(made, sheet, files=files if any(isinstance(axis, FileAxis) for axis in axes) else ())


def _axis(given: Sequence[Any], place: Place) -> Axis:
    """An axis by its place in A1111's list, or by its name; its values as text, or those that were ticked."""
    kind, values, chosen = given
    name = kind
    if isinstance(kind, int) and not isinstance(kind, bool):
        own = [name for name, where in AXES if where in ("", "i" if place.of_pictures else "t")]
        if not 0 <= kind < len(own):
            raise ValueError(f"there is no axis {kind}")
        name = own[kind]
    ticked = isinstance(chosen, list) and chosen and not values
    text = ",".join(f'"{each}"' for each in chosen) if ticked else str(values or "")
    of_server = OF_SERVER.get(str(name))
    if of_server is None:
        return axis_of(OURS.get(str(name), str(name)), text)
    values = axis_values(text)
    if not values:
        raise ValueError(f"axis {name}: there are no values")
    return of_server(str(name), values, place)


def _model_axis(name: str, values: list[str], place: Place) -> Axis:
    return FileAxis(
        name, tuple(values), (lambda settings: settings,) * len(values), tuple(map(place.find_model, values))
    )


def _vae_axis(name: str, values: list[str], place: Place) -> Axis:
    return FileAxis(name, tuple(values), (lambda settings: settings,) * len(values), tuple(map(place.find_vae, values)))


def _refiner_axis(name: str, values: list[str], place: Place) -> Axis:
    files = [None if value.lower() == "none" else place.find_model(value) for value in values]

    def change(file: str | None) -> Callable[[Settings], Settings]:
        return lambda settings: replace(settings, refiner=file)

    return Axis(name, tuple(values), tuple(map(change, files)))


def _style_axis(name: str, values: list[str], place: Place) -> Axis:
    known = place.styles()

    def change(value: str) -> Callable[[Settings], Settings]:
        wanted = [each.strip() for each in value.split(",") if each.strip()]
        if unknown := [each for each in wanted if each not in known]:
            raise ValueError(f"there is no style {unknown[0][:60]!r}; there is {', '.join(list(known)[:20]) or 'none'}")
        styles = [known[each] for each in wanted]

        def changed(settings: Settings) -> Settings:
            texts: dict[str, Any] = {
                part: apply_styles(getattr(settings, part), [getattr(style, part) for style in styles])
                for part in ("prompt", "negative_prompt")
            }
            return replace(settings, **texts)

        return changed

    return Axis(name, tuple(values), tuple(map(change, values)))


OF_SERVER: Mapping[str, Callable[[str, list[str], Place], Axis]] = {
    "Checkpoint name": _model_axis,
    "VAE": _vae_axis,
    "Refiner checkpoint": _refiner_axis,
    "Styles": _style_axis,
}
"""Axes of files and styles, which the server knows."""


def _matrix(settings: Settings, arguments: Sequence[Any], place: Place) -> Series:
    first, different, kind, between, _margin = arguments[:5]
    field = {"positive": "prompt", "negative": "negative_prompt"}.get(str(kind))
    joined = {"comma": ", ", "space": " "}.get(str(between))
    if field is None or joined is None:
        raise ValueError(f"it is positive or negative, and comma or space, and not {kind!r} and {between!r}"[:200])
    text = getattr(settings, field)
    prompts = prompt_matrix(text, first=bool(first), between=joined)
    one = with_seeds(replace(settings, batches=1, batch_size=1))
    seeds = [seed_after(one.seed, n * bool(different)) for n in range(len(prompts))]
    texts: list[dict[str, Any]] = [{field: prompt} for prompt in prompts]
    made = [replace(one, seed=seed, **each) for seed, each in zip(seeds, texts, strict=True)]
    parts = [each.strip().strip(",") for each in text.split("|")[1:]]
    half = (len(parts) + 1) // 2
    return Series(made, Sheet(_combined(parts[:half]), _combined(parts[half:]), legend=bool(parts)))


def _combined(parts: Sequence[str]) -> tuple[str, ...]:
    """What of some parts is in each column, or row."""
    return tuple(", ".join(part for n, part in enumerate(parts) if place >> n & 1) for place in range(1 << len(parts)))


def _prompts(settings: Settings, arguments: Sequence[Any], place: Place) -> Series:
    count_on, one_seed, *rest = arguments
    where, text = rest[:2] if rest[0] in ("start", "end") else ("start", rest[0])  # older ones have no place
    settings = with_seeds(settings) if count_on or one_seed else settings
    made = []
    for number, said in prompts_of_file(str(text)):
        try:
            found: dict[str, Any] = {SETTINGS.get(name, name): TAGS[name](value) for name, value in said.items()}
        except KeyError as problem:
            raise ValueError(f"line {number}: unknown option --{problem.args[0]}") from None
        if found.get("prompt") and settings.prompt:
            pair = found["prompt"], settings.prompt
            found["prompt"] = " ".join(reversed(pair) if where == "end" else pair)
        made.append(with_seeds(replace(settings, **found)))
        if count_on:
            settings = replace(settings, seed=seed_after(settings.seed, settings.batch_size * settings.batches))
    return Series(made)


CURVES: Mapping[str, Callable[[float], float]] = {
    "Aggressive": lambda share: math.sin(share * math.pi / 2),
    "Linear": lambda share: share,
    "Lazy": lambda share: 1 - math.cos(share * math.pi / 2),
}
"""How the strength of loops goes from the first to the last."""

MOST_LOOPS = 32


def _loopback(settings: Settings, arguments: Sequence[Any], place: Place) -> Series:
    loops, final, curve, words = int(arguments[0]), float(arguments[1]), str(arguments[2]), arguments[3]
    if not 1 <= loops <= MOST_LOOPS or not 0 <= final <= 1:
        raise ValueError(f"loops are 1 to {MOST_LOOPS}, and the final strength is 0 to 1, and not {loops} and {final}")
    if curve not in CURVES:
        raise ValueError(f"a curve is one of {', '.join(CURVES)}, and not {curve[:60]!r}")
    if words != "None":
        raise ValueError("nothing here puts pictures into words")
    one = with_seeds(replace(settings, batches=1, batch_size=1))
    made = []
    for number in range(settings.batches * loops):
        loop = number % loops
        share = CURVES[curve](loop / max(loops - 1, 1))
        strength = one.denoising_strength + (final - one.denoising_strength) * share
        fill = one.inpainting_fill if loop == 0 else "original"
        made.append(replace(one, seed=seed_after(one.seed, number), denoising_strength=strength, inpainting_fill=fill))
    shown = loops if settings.batches == 1 else settings.batches
    return Series(made, Sheet(("",) * shown, legend=False) if shown > 1 else None, loops)


def _sd_upscale(settings: Settings, arguments: Sequence[Any], place: Place) -> Series:
    _text, overlap, chosen, scale = arguments
    names = {name.lower(): name for name in place.upscalers}
    name = place.upscalers[chosen] if isinstance(chosen, int) and 0 <= chosen < len(names) else str(chosen)
    if name.lower() not in names:
        raise ValueError(f"there is no upscaler {name[:60]!r}; there is {', '.join(place.upscalers)}")
    name = names[name.lower()]
    if not 0 <= int(overlap) <= 256 or not 1 <= float(scale) <= 4:
        raise ValueError(f"tiles overlap by 0 to 256, and scales are 1 to 4, and not {overlap} and {scale}"[:200])
    one = with_seeds(replace(settings, batches=1, batch_size=1))
    made = [replace(one, seed=seed_after(one.seed, number)) for number in range(settings.batches)]
    return Series(made, enlarging=Enlarging(name, 1.0 if name == "None" else float(scale), int(overlap)))


TAGS: Mapping[str, Callable[[str], Any]] = {
    **dict.fromkeys(("prompt", "negative_prompt", "sampler_name"), str),
    **dict.fromkeys(("seed", "subseed", "batch_size", "n_iter", "steps", "width", "height"), int),
    **dict.fromkeys(("cfg_scale", "subseed_strength"), float),
    "tiling": lambda text: "on" if text.lower() == "true" else "off",
}
"""What a line of prompts may say besides."""

SETTINGS = {"sampler_name": "sampler", "n_iter": "batches"}
AXIS_ARGUMENTS: tuple[tuple[str, Any], ...] = tuple(
    (f"{axis} {what}", usual) for axis in "XYZ" for what, usual in (("type", 0), ("values", ""), ("values", []))
)

SCRIPTS: Mapping[str, Script] = {
    script.title.lower(): script
    for script in (
        Script(
            "X/Y/Z plot",
            (
                *AXIS_ARGUMENTS,
                *(("Draw legend", True), ("Include Sub Images", False), ("Include Sub Grids", False)),
                *(("Keep -1 for seeds", False), ("Vary seeds for X", False), ("Vary seeds for Y", False)),
                *(
                    ("Vary seeds for Z", False),
                    ("Grid margins (px)", 0),
                    ("Use text inputs instead of dropdowns", False),
                ),
            ),
            _plot,
        ),
        Script(
            "Prompt matrix",
            (
                *(("Put variable parts at start of prompt", False), ("Use different seed for each picture", False)),
                *(("Select prompt", "positive"), ("Select joining char", "comma"), ("Grid margins (px)", 0)),
            ),
            _matrix,
        ),
        Script(
            "Prompts from file or textbox",
            (
                *(("Iterate seed every line", False), ("Use same random seed for all lines", False)),
                *(("Insert prompts at the", "start"), ("List of prompt inputs", "")),
            ),
            _prompts,
        ),
        Script(
            "Loopback",
            (
                *(("Loops", 4), ("Final denoising strength", 0.5), ("Denoising strength curve", "Linear")),
                ("Append interrogated prompt at each iteration", "None"),
            ),
            _loopback,
            of_pictures=True,
        ),
        Script(
            "SD upscale",
            (("", ""), ("Tile overlap", 64), ("Upscaler", "None"), ("Scale Factor", 2.0)),
            _sd_upscale,
            of_pictures=True,
        ),
    )
}
"""By their titles in small letters."""
