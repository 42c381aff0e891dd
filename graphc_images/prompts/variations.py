"""Many pictures from one request: values of axes of a grid, prompt matrices, prompts from a file.

Source: AUTOMATIC1111's scripts/xyz_grid.py, prompt_matrix.py and prompts_from_file.py.
"""

from __future__ import annotations

import csv
import itertools
import re
import shlex

from graphc_images.errors import SettingError

WHOLE, DECIMAL = r"[+-]?\s*\d+", r"[+-]?\s*\d+(?:\.\d*)?"
RANGES = {
    kind: re.compile(rf"\s*({number})\s*-\s*({number})(?:\s*\(([+-]{step})\s*\)|\s*\[(\d+)\s*\])?\s*")
    for kind, number, step in ((int, WHOLE, r"\d+"), (float, DECIMAL, r"\d+(?:\.\d*)?"))
}
MOST_VALUES = 10_000


def axis_values(text: str, kind: type[int] | type[float] | type[str] = str) -> list:
    """The values of an axis: `1, 2`, `"a, b", c`, and for numbers `1-5`, `1-5 (+2)` and `1-10 [5]` (five of them).

    `kind` is int, float or str.
    """
    values: list = []
    for item in split_csv(text):
        if issubclass(kind, str):
            values.append(item)
        elif item:
            values += _numbers(item, kind)
    return values


def _numbers(item: str, kind: type[int] | type[float]) -> list:
    """One number, or a range of them."""
    match = RANGES[kind].fullmatch(item)
    try:
        if match is None:
            return [kind(item)]
        first, last = (kind(match[place].replace(" ", "")) for place in (1, 2))
        if match[4] is not None:
            count = _few(int(match[4]), item)
            return [kind(first + (last - first) * place / max(count - 1, 1)) for place in range(count)]
        step = kind(match[3] or 1)
        if step == 0 or (last - first) * step < 0:
            raise SettingError(f"{item!r}: from {first} one does not come to {last} by steps of {step:+}")
        count = _few(int((last - first) / step + 1e-9) + 1, item)
        return [first + place * step for place in range(count)]
    except (ValueError, OverflowError):
        raise SettingError(f"{item!r} is not a number and no range such as 1-5, 1-5 (+2) or 1-10 [5]") from None


def _few(count: int, item: str) -> int:
    if count > MOST_VALUES:
        raise SettingError(f"{item!r} has {count} values; an axis takes {MOST_VALUES}")
    return count


def split_csv(text: str) -> list[str]:
    """What stands between commas, which may be in double quotes to hold commas itself, without spaces around."""
    rows = csv.reader([text.replace("\n", " ")], skipinitialspace=True)
    return [item.strip() for row in rows for item in row]


def search_and_replace(prompt: str, values: list[str]) -> list[str]:
    """The prompt with the first value, which it must hold, replaced by each of them."""
    if values[0] not in prompt:
        raise SettingError(f"the prompt does not hold {values[0]!r}, which is to be replaced")
    return [prompt.replace(values[0], value) for value in values]


def in_orders(prompt: str, words: list[str]) -> list[str]:
    """The prompt with these words, which it must hold, in each order."""
    for word in words:
        if word not in prompt:
            raise SettingError(f"the prompt does not hold {word!r}")
    places = sorted((prompt.index(word), word) for word in words)
    gaps, end = [], 0
    for start, word in places:
        gaps.append(prompt[end:start])
        end = start + len(word)
    orders = itertools.islice(itertools.permutations(words), MOST_VALUES)
    return ["".join(gap + word for gap, word in zip(gaps, order, strict=True)) + prompt[end:] for order in orders]


def prompt_matrix(prompt: str, *, first: bool = False, between: str = ", ") -> list[str]:
    """`base|a|b` as base, base with a, with b, and with both; `first` puts the base behind."""
    base, *options = prompt.split("|")
    if 1 << len(options) > MOST_VALUES:
        raise SettingError(f"a prompt matrix of {len(options)} options would be {1 << len(options)} pictures")
    parts = [option.strip().strip(",") for option in options]
    matrix = []
    for number in range(1 << len(parts)):
        chosen = [part for place, part in enumerate(parts) if number >> place & 1]
        matrix.append(between.join([*chosen, base] if first else [base, *chosen]))
    return matrix


def prompts_of_file(text: str) -> list[tuple[int, dict[str, str]]]:
    """One request for each line that is not empty, with the line's number: a prompt, or `--prompt "…" --steps 20` and other
    options with their values."""
    requests = []
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        if not line.lstrip().startswith("--"):
            requests.append((number, {"prompt": line.strip()}))
            continue
        try:
            requests.append((number, _options(shlex.split(line))))
        except ValueError as problem:
            raise SettingError(f"line {number}: {problem}") from None
    return requests


def _options(words: list[str]) -> dict[str, str]:
    """Options and their values; a prompt has all words up to the next option."""
    options: dict[str, str] = {}
    name = ""
    for word in words:
        if word.startswith("--"):
            name = word[2:]
            options[name] = ""
        elif not options[name]:
            options[name] = word
        elif name in ("prompt", "negative_prompt"):
            options[name] += f" {word}"
        else:
            raise ValueError(f"--{name} has two values, {options[name]} and {word}")
    missing = [name for name, value in options.items() if not value and name not in ("prompt", "negative_prompt")]
    if missing:
        raise ValueError(f"--{missing[0]} has no value")
    return options
