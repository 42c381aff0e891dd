"""From one request to several: lines of a file, a prompt matrix, styles, and prompts that are drawn."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from graphc_images.errors import SettingError
from graphc_images.prompts.styles import Style, apply_styles
from graphc_images.prompts.variations import prompt_matrix, prompts_of_file
from graphc_images.prompts.wildcards import Wildcards, draw
from graphc_images.settings import LARGEST_SEED, Settings, seed_after

A1111_OPTIONS: Mapping[str, str] = {
    "sampler_name": "sampler",
    "sampler_index": "sampler",
    "n_iter": "batches",
    "cfg": "cfg_scale",
    "negative": "negative_prompt",
}
"""What lines of A1111's files call settings, where we call them otherwise."""


def lines_of(
    text: str, where: str, given: Mapping[str, Any], read: Callable[[str, str], tuple[str, Any]]
) -> list[Settings]:
    """One request for each line of a file of prompts: what it says counts before what is `given`.

    `read` makes a setting, by name, of an option and its text. Raises SettingError with the file and the line.
    """
    asked = []
    try:
        for number, line in prompts_of_file(text):
            found = {A1111_OPTIONS.get(name, name): value for name, value in line.items()}
            if all(side in found for side in ("seed_resize_from_w", "seed_resize_from_h")):
                sides = (found.pop(f"seed_resize_from_{side}") for side in "wh")
                found["seed_resize_from"] = "x".join(sides)
            try:
                read_pairs = [read(*pair) if pair[0] != "prompt" else pair for pair in found.items()]
                asked.append(Settings.of(**{**given, **dict(read_pairs)}))
            except SettingError as error:
                raise SettingError(f"line {number}: {error}") from None
    except SettingError as error:
        raise SettingError(f"{where}: {error}") from None
    if not asked:
        raise SettingError(f"{where}: there are no prompts in it")
    return asked


def in_matrix(asked: Settings) -> list[Settings]:
    """The prompt with each choice of what stands behind its first |, all of one seed (A1111's prompt matrix)."""
    seeded = with_seed(asked)
    return [replace(seeded, prompt=prompt) for prompt in prompt_matrix(asked.prompt)]


def with_seed(asked: Settings) -> Settings:
    """The same with a seed by chance if it has none."""
    return replace(asked, seed=secrets.randbelow(LARGEST_SEED)) if asked.seed < 0 else asked


def in_styles(asked: Settings, names: Iterable[str], styles: Mapping[str, Style]) -> Settings:
    """The prompts put into these styles, one after the other. Raises SettingError for one that there is not."""
    chosen: Sequence[Style] = [_style(name, styles) for name in names]
    return replace(
        asked,
        prompt=apply_styles(asked.prompt, [style.prompt for style in chosen]),
        negative_prompt=apply_styles(asked.negative_prompt, [style.negative_prompt for style in chosen]),
    )


def _style(name: str, styles: Mapping[str, Style]) -> Style:
    if name not in styles:
        raise SettingError(f"there is no style {name!r}; there are {', '.join(styles) or 'none'}")
    return styles[name]


def drawn(asked: Settings, wildcards: Wildcards) -> list[Settings]:
    """One request for each picture, with its own seed, with which the choices in its prompts are made."""
    seeded = with_seed(asked)
    seeds = [seed_after(seeded.seed, number) for number in range(asked.batches * asked.batch_size)]
    return [
        replace(
            seeded,
            seed=seed,
            batches=1,
            batch_size=1,
            prompt=draw(asked.prompt, seed, wildcards),
            negative_prompt=draw(asked.negative_prompt, seed, wildcards),
        )
        for seed in seeds
    ]
