"""Saved styles: texts that a prompt is put into, in a CSV file of name, prompt and negative prompt.

Source: AUTOMATIC1111's modules/styles.py.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import graphc
from graphc_images.errors import SettingError
from graphc_images.prompts.extras import strip_comments

PLACE = "{prompt}"
COLUMNS = ("name", "prompt", "negative_prompt")


class Style(NamedTuple):
    """A prompt and a negative prompt that have a name; `{prompt}` in one is where the user's goes, else it goes before."""

    name: str
    prompt: str
    negative_prompt: str


def read_styles(path: Path) -> dict[str, Style]:
    """The styles of a `styles.csv`, by name."""
    try:
        with graphc.open_regular(path) as file:
            rows = list(csv.DictReader(io.TextIOWrapper(file, "utf-8-sig", newline="")))
    except (OSError, UnicodeDecodeError, csv.Error) as problem:
        raise SettingError(f"{path}: the styles cannot be read: {problem}") from None
    if rows and "name" not in rows[0]:
        raise SettingError(f"{path}: there is no column called name")
    styles = (
        Style(*(row.get(column) or row.get("text" if column == "prompt" else column) or "" for column in COLUMNS))
        for row in rows
    )
    return {style.name: style for style in styles if style.name}


def write_styles(path: Path, styles: Iterable[Style]) -> None:
    """A `styles.csv` that A1111 reads too."""
    try:
        with graphc.replacing(path) as unfinished, unfinished.open("w", encoding="utf-8-sig", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(COLUMNS)
            writer.writerows(styles)
    except OSError as problem:
        raise SettingError(f"{path}: the styles cannot be written: {problem.strerror or problem}") from None


def apply_styles(prompt: str, styles: Iterable[str]) -> str:
    """The prompt in each of these texts, one after the other, without comments."""
    prompt = strip_comments(prompt).strip()
    for style in styles:
        text = strip_comments(style).strip()
        if PLACE in text:
            prompt = text.replace(PLACE, prompt)
        elif text:
            prompt = f"{prompt}, {text}" if prompt else text
    return prompt
