"""A whole prompt, read: which texts count at which step with which weights, and which networks it names.

In A1111's mode the order is: styles and comments, wildcards, networks, AND, then stages; attention is read when a text is
cut into chunks. ComfyUI's prompts know no AND and no stages.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from graphc_images.modes import Mode
from graphc_images.prompts.extras import Network, SubPrompt, split_by_and, take_networks
from graphc_images.prompts.schedule import Stage, Stages, stages_of
from graphc_images.prompts.styles import apply_styles
from graphc_images.prompts.wildcards import Wildcards, draw


class Part(NamedTuple):
    """A sub-prompt: how much it adds to the guidance, and its texts over the steps."""

    weight: float
    stages: Stages


class Moment(NamedTuple):
    """The sub-prompts of the steps, counted from 0, up to and with `until`."""

    until: int
    prompts: tuple[SubPrompt, ...]


@dataclass(frozen=True)
class PromptPlan:
    """What a prompt asks for. `text` is the prompt after styles and wildcards, as it is written into pictures."""

    text: str
    parts: tuple[Part, ...]
    networks: tuple[Network, ...]

    def texts(self) -> list[str]:
        """Every text that is to be encoded, once."""
        return list(dict.fromkeys(stage.text for part in self.parts for stage in part.stages))

    def at(self, step: int) -> tuple[SubPrompt, ...]:
        """The sub-prompts of a step, counted from 0."""
        return tuple(SubPrompt(part.stages.at(step), part.weight) for part in self.parts)

    def moments(self) -> list[Moment]:
        """The same, for ranges of steps between which nothing changes."""
        ends = sorted({stage.until for part in self.parts for stage in part.stages})
        return [Moment(end, self.at(end)) for end in ends]


def read_prompt(
    prompt: str,
    steps: int,
    mode: Mode = "a1111",
    *,
    negative: bool = False,
    hires_of: int | None = None,
    old_timelines: bool = False,
    styles: Iterable[str] = (),
    seed: int | None = None,
    wildcards: Wildcards | None = None,
) -> PromptPlan:
    """Read a prompt for a picture of `steps` steps.

    `hires_of` is the number of steps of the first pass where this is the second one; `old_timelines` as in `Count`.
    Wildcards are drawn if there is a `seed`. In a negative prompt AND and `<lora:…>` are words as any others, as in A1111.
    """
    text = apply_styles(prompt, styles) if mode == "a1111" else prompt
    if seed is not None:
        text = draw(text, seed, wildcards)
    bare, networks = (text, []) if negative else take_networks(text)
    if mode == "comfyui":
        parts = [Part(1.0, Stages([Stage(steps, bare)]))]
    else:
        subprompts = [SubPrompt(bare, 1.0)] if negative else split_by_and(bare)
        parts = [Part(weight, stages_of(each, steps, hires_of, old=old_timelines)) for each, weight in subprompts]
    return PromptPlan(text, tuple(parts), tuple(networks))
