"""Names of files for pictures, from patterns such as `[date]/[number]-[seed].png`.

Source: AUTOMATIC1111's modules/images.py (FilenameGenerator), for what stands between the brackets and what becomes of it.
"""

from __future__ import annotations

import hashlib
import re
import string
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from graphc_images.settings import Settings

FIELD = re.compile(r"\[(\w+)(?:<([^<>\[\]]*)>)?\]")
FORBIDDEN = re.compile(r'[#<>:"/\\|?*\x00-\x1f]')
BETWEEN_WORDS = re.compile(rf"[\s{re.escape(string.punctuation)}]+")
LEADING_NUMBER = re.compile(r"\d{5,}")
LONGEST, WORDS = 128, 8
"""Characters of a text in a name, and words of a prompt."""

USUAL = "[number]-[seed].png"
"""A1111's."""


@dataclass(frozen=True)
class Facts:
    """What a name may say of a picture: its resolved settings with its own seed, the model, and which of all it is, from 1."""

    settings: Settings
    model: str = ""
    model_hash: str = ""
    vae: str = ""
    place: int = 1
    time: datetime = field(default_factory=datetime.now)


def _text(text: str, *, spaces: bool = False) -> str:
    """A text as a part of a name."""
    kept = FORBIDDEN.sub("_", text if spaces else text.replace(" ", "_"))
    return kept.lstrip(" ")[:LONGEST].rstrip(" .")


def _words(text: str) -> str:
    return _text(" ".join([word for word in BETWEEN_WORDS.split(text) if word][:WORDS]) or "empty", spaces=True)


def _short_hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def _sampler(facts: Facts) -> str:
    return _text(facts.settings.sampler or "", spaces=True)


def _scheduler(facts: Facts) -> str:
    return _text(facts.settings.scheduler or "", spaces=True)


FIELDS: Mapping[str, Callable[[Facts], object]] = {
    "seed": lambda facts: facts.settings.seed,
    "steps": lambda facts: facts.settings.steps,
    "cfg": lambda facts: facts.settings.cfg_scale,
    "width": lambda facts: facts.settings.width,
    "height": lambda facts: facts.settings.height,
    "sampler": _sampler,
    "scheduler": _scheduler,
    "sampler_scheduler": lambda facts: f"{_sampler(facts)} {_scheduler(facts)}".strip(),
    "denoising": lambda facts: facts.settings.denoising_strength,
    "clip_skip": lambda facts: facts.settings.clip_skip or 1,
    "model_name": lambda facts: _text(facts.model, spaces=True),
    "model_hash": lambda facts: facts.model_hash,
    "vae_filename": lambda facts: _text(facts.vae, spaces=True),
    "prompt": lambda facts: _text(facts.settings.prompt),
    "prompt_spaces": lambda facts: _text(facts.settings.prompt, spaces=True),
    "prompt_words": lambda facts: _words(facts.settings.prompt),
    "prompt_hash": lambda facts: _short_hash(facts.settings.prompt),
    "negative_prompt_hash": lambda facts: _short_hash(facts.settings.negative_prompt),
    "full_prompt_hash": lambda facts: _short_hash(f"{facts.settings.prompt} {facts.settings.negative_prompt}"),
    "date": lambda facts: facts.time.strftime("%Y-%m-%d"),
    "datetime": lambda facts: facts.time.strftime("%Y%m%d%H%M%S"),
    "generation_number": lambda facts: facts.place,
}


def has_fields(pattern: str) -> bool:
    """True if something in brackets is filled in."""
    return any(match[1] in FIELDS or match[1] == "number" for match in FIELD.finditer(pattern))


def file_for(pattern: str, facts: Facts | None) -> Path:
    """A file that is not there yet: what stands in brackets is filled in, other brackets stay as they are, and without facts all
    but `[number]`.

    `[number]` is one more than the largest that a name in the folder begins with. A name that is taken gets a number behind it.
    """

    def filled(match: re.Match[str]) -> str:
        assert facts is not None
        if match[1] == "datetime" and match[2]:
            return _text(facts.time.strftime(match[2]), spaces=True)
        return str(FIELDS[match[1]](facts)) if match[1] in FIELDS and match[2] is None else match[0]

    path = Path(pattern if facts is None else FIELD.sub(filled, pattern))
    if "[number]" in path.name:
        path = path.with_name(path.name.replace("[number]", f"{next_number(path.parent):05}"))
    name, again = path, 1
    while name.exists():
        again += 1
        name = path.with_stem(f"{path.stem}-{again}")
    return name


def next_number(folder: Path) -> int:
    """One more than the largest number of five digits that a name there begins with; 0 in an empty folder."""
    found = [LEADING_NUMBER.match(each.name) for each in folder.iterdir()] if folder.is_dir() else []
    return max((int(match[0]) + 1 for match in found if match), default=0)
