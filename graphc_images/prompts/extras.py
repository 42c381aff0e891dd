"""What stands in a prompt beside its words: comments, networks to load, and AND between sub-prompts.

Source: AUTOMATIC1111's modules/processing_scripts/comments.py, extra_networks.py, prompt_parser.py and the Lora extension.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import NamedTuple

from graphc_images.errors import SettingError

NETWORK = re.compile(r"<(\w+):([^>]+)>")
AND = re.compile(r"\bAND\b")
WEIGHTED = re.compile(r"(.*?)(?:\s*:\s*([-+]?(?:\d{1,9}\.?|\d{0,9}\.\d+)))?\s*", re.DOTALL)
ALIASES = {"lyco": "lora"}


@dataclass(frozen=True)
class Network:
    """`<kind:name:…>`: a LoRA or hypernetwork to use, and how strongly in the text encoders and in the denoiser.

    `name` is a file's stem or what its metadata calls it; `rank` is how many ranks of a LoRA to use, None for all.
    """

    kind: str
    name: str
    text_weight: float = 1.0
    model_weight: float = 1.0
    rank: int | None = None


class SubPrompt(NamedTuple):
    """A part of a prompt between ANDs, and the weight of what it adds to the guidance."""

    text: str
    weight: float


def strip_comments(prompt: str) -> str:
    """Without what follows a # on a line; lines that are only a comment go as a whole."""
    prompt = re.sub(r"(^|\n)#[^\n]*(\n|$)", "\n", prompt)
    return re.sub(r"#[^\n]*(\n|$)", "\n", prompt)


def take_networks(prompt: str) -> tuple[str, list[Network]]:
    """The prompt without its `<kind:…>`, and what they name, in order."""
    found = [_network(match[1], match[2], match[0]) for match in NETWORK.finditer(prompt)]
    return NETWORK.sub("", prompt), found


def _network(kind: str, inside: str, whole: str) -> Network:
    """`name[:text[:model[:rank]]]`, or the three by name: te=, unet= and dyn=."""
    items = inside.split(":")
    positional = [item for item in items if "=" not in item]
    named = dict(item.split("=", 1) for item in items if "=" in item)
    if not positional:
        raise SettingError(f"{whole}: there is no name of a file")
    given = dict(zip(("te", "unet", "dyn"), positional[1:], strict=False)) | named
    try:
        text_weight = float(given.get("te", 1.0))
        model_weight = float(given.get("unet", text_weight))
        rank = int(given["dyn"]) if "dyn" in given else None
    except ValueError:
        raise SettingError(f"{whole}: a weight is not a number") from None
    if not (math.isfinite(text_weight) and math.isfinite(model_weight)):
        raise SettingError(f"{whole}: a weight is not finite")
    kind = kind.lower()
    return Network(ALIASES.get(kind, kind), positional[0].strip(), text_weight, model_weight, rank)


def split_by_and(prompt: str) -> list[SubPrompt]:
    """The sub-prompts around the word AND; one ends in `:weight` if it has another weight than 1."""
    parts = []
    for part in AND.split(prompt):
        text, weight = _weighted(part)
        parts.append(SubPrompt(text, weight))
    return parts


def _weighted(part: str) -> tuple[str, float]:
    """A text and the number behind its last colon."""
    match = WEIGHTED.fullmatch(part)
    assert match is not None, "every text fits"
    return match[1], float(match[2]) if match[2] else 1.0
