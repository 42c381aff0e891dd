"""Prompts that are drawn: `{a|b}`, `{2$$a|b|c}`, `{0.3::a|b}` and lines of files as `__name__`.

Source: the syntax of adieyal's Dynamic Prompts extension.
"""

from __future__ import annotations

import logging
import random
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path

import graphc
from graphc_images.errors import SettingError

LOG = logging.getLogger("graphc.images")
WILDCARD = re.compile(r"__([\w\-./*?]+?)__")
INNERMOST = re.compile(r"(?<!\$)\{([^{}]*)\}")
COUNT = re.compile(r"(?:(\d{1,9})(?:-(\d{1,9}))?|-(\d{1,9}))\$\$(?:(.*?)\$\$)?", re.DOTALL)
SHARE = re.compile(r"\s*(\d+\.?\d*|\.\d+)::(.*)", re.DOTALL)
DEEPEST, LONGEST = 100, 1_000_000  # choices inside choices, characters


@dataclass
class Wildcards:
    """Lists of texts by name, from a folder with a `.txt` file for each (a text a line; # begins a comment), and from further
    files by name."""

    folder: Path | None = None
    files: Mapping[str, Path] = field(default_factory=dict)
    _lists: dict[str, list[str]] = field(default_factory=dict)

    def choices(self, pattern: str) -> list[str]:
        """The lines of the file of this name, or of all whose names fit a pattern with * or ?."""
        if pattern not in self._lists:
            lines = [line.strip() for path in self._files(pattern) for line in _read(path).splitlines()]
            self._lists[pattern] = [line for line in lines if line and not line.startswith("#")]
        return self._lists[pattern]

    def _files(self, pattern: str) -> list[Path]:
        files = dict(self.files)
        if self.folder is not None:
            files |= {
                path.relative_to(self.folder).with_suffix("").as_posix(): path for path in self.folder.rglob("*.txt")
            }
        return [path for name, path in sorted(files.items()) if fnmatch(name, pattern)]


def _read(path: Path) -> str:
    try:
        with graphc.open_regular(path) as file:
            return file.read().decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as problem:
        raise SettingError(f"{path}: the wildcards cannot be read: {problem}") from None


def draw(prompt: str, seed: int, wildcards: Wildcards | None = None) -> str:
    """The prompt with every choice made, the same for the same seed; what names no file stays as it is, and the log says so."""
    chance = random.Random(seed)
    known = wildcards or Wildcards()
    missing: dict[str, None] = {}

    def line(match: re.Match[str]) -> str:
        choices = known.choices(match[1])
        if not choices:
            missing[match[0]] = None
        return chance.choice(choices) if choices else match[0]

    def option(match: re.Match[str]) -> str:
        return _choose(match[1], chance)

    for _ in range(DEEPEST):
        before = prompt
        prompt = WILDCARD.sub(line, INNERMOST.sub(option, prompt))
        if prompt == before:
            if missing:
                LOG.warning("there is no wildcard %s: it stays as it is", ", ".join(missing))
            return prompt
        if len(prompt) > LONGEST:
            break
    raise SettingError(f"the prompt's wildcards name each other without end: {before[:60]}…")


def _choose(inside: str, chance: random.Random) -> str:
    """One of the options, or as many different ones as `n$$` or `n-m$$` says, with what joins them between `$$` and `$$`."""
    counted = COUNT.match(inside)
    least, most, joined = 1, 1, ", "
    if counted:
        least = int(counted[1] or 0)
        most = int(counted[2] or counted[3] or least)
        joined = ", " if counted[4] is None else counted[4]
        inside = inside[counted.end() :]
    options = []
    for text in inside.split("|"):
        share = SHARE.fullmatch(text)
        options.append((min(float(share[1]), 1e9), share[2]) if share else (1.0, text))
    chosen = []
    for _ in range(min(chance.randint(min(least, most), max(least, most)), len(options))):
        total = sum(share for share, _ in options)
        if total == 0:
            break
        place = chance.choices(range(len(options)), [share for share, _ in options])[0]
        chosen.append(options.pop(place)[1])
    return joined.join(chosen)
