"""A1111's text of how a picture was made: the prompt, the negative prompt, and a line of settings.

Source: AUTOMATIC1111's modules/processing.py (create_infotext) and infotext_utils.py (parse_generation_parameters).
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from graphc_images.prompts.attention import parse_attention

NEGATIVE = "Negative prompt:"
PAIR = re.compile(r'\s*(\w[\w \-/]+):\s*("(?:\\.|[^\\"])+"|[^,]*)(?:,|$)')
SIZE = re.compile(r"(\d{1,9})x(\d{1,9})")
FEWEST_PAIRS = 3  # a last line with fewer is a part of the prompt

FIRST = (  # these come first, in this order
    *("Steps", "Sampler", "Schedule type", "CFG scale", "Distilled CFG Scale", "Image CFG scale", "Seed"),
    *("Face restoration", "Size", "Model hash", "Model", "FP8 weight", "Cache FP16 weight for LoRA", "VAE hash", "VAE"),
    *("Variation seed", "Variation seed strength", "Seed resize from", "Denoising strength", "Conditional mask weight"),
    *("Clip skip", "ENSD", "Token merging ratio", "Token merging ratio hr", "Init image hash", "RNG", "Tiling"),
)
LAST = ("Version", "User")
LEFT_OUT = {"Clip skip": "1", "RNG": "GPU"}  # what is so by itself
MEANT = {  # what texts meant that do not say it
    **LEFT_OUT,
    "Schedule type": "Automatic",
    "Hires sampler": "Use same sampler",
    "Hires schedule type": "Use same scheduler",
    "Hires checkpoint": "Use same checkpoint",
    "Hires prompt": "",
    "Hires negative prompt": "",
    "Mask mode": "Inpaint masked",
    "Masked content": "original",
    "Inpaint area": "Whole picture",
    "Masked area padding": "32",
    "VAE Encoder": "Full",
    "VAE Decoder": "Full",
    "FP8 weight": "Disable",
}


@dataclass(frozen=True)
class Parameters:
    """How a picture was made. `settings` are A1111's names and their values as text, in order."""

    prompt: str = ""
    negative_prompt: str = ""
    settings: Mapping[str, str] = field(default_factory=dict)

    def size(self, name: str = "Size") -> tuple[int, int] | None:
        """Width and height of a setting that has them."""
        match = SIZE.fullmatch(self.settings.get(name, ""))
        return (int(match[1]), int(match[2])) if match else None

    def complete(self) -> Parameters:
        """With what the text does not say, but meant when it was written."""
        settings = {**MEANT, **self.settings}
        if "Emphasis" not in settings and _has_emphasis(self.prompt, self.negative_prompt):
            settings["Emphasis"] = "Original"
        prompt = self.prompt
        if "Hypernet" in settings:
            prompt += f"<hypernet:{settings['Hypernet']}:{settings.get('Hypernet strength', '1.0')}>"
        first_pass = self.size("First pass size")
        if first_pass is not None:
            settings["Hires resize"] = settings.get("Size", "512x512")
            settings["Size"] = "{}x{}".format(
                *(first_pass if all(first_pass) else old_first_pass(*(self.size() or (512, 512))))
            )
        return Parameters(prompt, self.negative_prompt, settings)


def _has_emphasis(*prompts: str) -> bool:
    return any(piece.weight not in (1.0, -1.0) for text in prompts for piece in parse_attention(text, "a1111"))


def old_first_pass(width: int, height: int) -> tuple[int, int]:
    """The size of a first pass, of that of the second, in A1111's first versions: about 512 x 512 pixels, in multiples of 64."""
    scale = math.sqrt(512 * 512 / (max(width, 1) * max(height, 1)))
    return math.ceil(scale * max(width, 1) / 64) * 64, math.ceil(scale * max(height, 1) / 64) * 64


def write_parameters(prompt: str, negative_prompt: str, settings: Mapping[str, object]) -> str:
    """The text. A value of None is left out, and what A1111 leaves out because it is so by itself."""
    known = [name for name in FIRST if name in settings]
    others = [name for name in settings if name not in FIRST and name not in LAST]
    pairs = []
    for name in [*known, *others, *(name for name in LAST if name in settings)]:
        value = settings[name]
        if value is not None and str(value) != LEFT_OUT.get(name):
            pairs.append(name if str(value) == name else f"{name}: {quote(str(value))}")
    lines = [prompt, f"{NEGATIVE} {negative_prompt}" if negative_prompt else "", ", ".join(pairs)]
    return "\n".join([lines[0], *(line for line in lines[1:] if line)]).strip()


def without(text: str, labels: Collection[str]) -> str:
    """The text without some labels."""
    if not labels:
        return text
    found = read_parameters(text)
    said = {name: value for name, value in found.settings.items() if name not in labels}
    return write_parameters(found.prompt, found.negative_prompt, said)


def read_parameters(text: str) -> Parameters:
    """What such a text says; any text is a prompt."""
    *lines, last = text.strip().split("\n")
    pairs = PAIR.findall(last)
    if len(pairs) < FEWEST_PAIRS:
        lines.append(last)
        pairs = []
    prompt: list[str] = []
    negative: list[str] = []
    into = prompt
    for line in map(str.strip, lines):
        if line.startswith(NEGATIVE):
            into = negative
            line = line[len(NEGATIVE) :].strip()
        into.append(line)
    return Parameters(
        "\n".join(prompt).strip(), "\n".join(negative).strip(), {name: unquote(value) for name, value in pairs}
    )


def quote(text: str) -> str:
    """As JSON if it could not be told from what is around it."""
    return json.dumps(text, ensure_ascii=False) if any(sign in text for sign in ",:\n") else text


def unquote(text: str) -> str:
    """What was quoted; anything else as it is."""
    if not (len(text) > 1 and text[0] == text[-1] == '"'):
        return text.strip()
    try:
        return str(json.loads(text))
    except json.JSONDecodeError:
        return text
