"""Prompts that change while a picture is made: `[from:to:when]`, `[to:when]`, `[from::when]` and `[a|b]`.

Source: AUTOMATIC1111's modules/prompt_parser.py; its grammar, without a parser generator. A prompt that does not fit the
grammar as a whole is taken as it is, and a bracket that nothing closes is a character as any other.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import NamedTuple

from graphc_images.prompts.attention import refuse_deep

CLOSING = {"(": ")", "[": "]"}
PLAIN = re.compile(r"(?:[^\\\[\]():|]|\\.)+")
WHEN = re.compile(r"\s*([+-]?(?:\d+\.\d*|\.\d+|\d+)(?:[eE][+-]?\d+)?)\s*")


class Stage(NamedTuple):
    """A text that is the prompt for the steps, counted from 0, up to and with `until`.

    A step that is counted from 0 makes the first stage a step longer than its number says: so it is in A1111.
    """

    until: int
    text: str


class Stages(tuple[Stage, ...]):
    """Texts in the order of their steps; the last has the last step."""

    def at(self, step: int) -> str:
        """The text of a step, counted from 0."""
        return next((stage.text for stage in self if step <= stage.until), self[-1].text)


@dataclass(frozen=True)
class _Switch:
    """`[before:after:when]`."""

    before: list[_Node]
    after: list[_Node]
    when: str


@dataclass(frozen=True)
class _Turn:
    """`[a|b|c]`: another one with each step."""

    options: list[list[_Node]]


_Node = str | _Switch | _Turn


@dataclass
class _Open:
    """A bracket that is not closed yet: its parts so far, and what stands between them."""

    bracket: str
    parts: list[list[_Node]] = field(default_factory=lambda: [[]])
    separators: list[str] = field(default_factory=list)

    def close(self) -> list[_Node] | None:
        """What the bracket is, or None if the grammar has no such thing."""
        separators = "".join(self.separators)
        if not separators:
            return [self.bracket, *self.parts[0], CLOSING[self.bracket]]
        if self.bracket == "(":
            return ["(", *self.parts[0], ":", *self.parts[1], ")"] if separators == ":" else None
        if separators.strip("|") == "":
            return [_Turn(self.parts)]
        last = self.parts[-1]
        when = WHEN.fullmatch(last[0]) if len(last) == 1 and isinstance(last[0], str) else None
        if when is None or separators not in (":", "::"):
            return None
        return [_Switch(self.parts[0] if separators == "::" else [], self.parts[-2], when[1])]

    def as_characters(self) -> list[_Node]:
        """The bracket and what follows it, when it is none."""
        nodes: list[_Node] = [self.bracket, *self.parts[0]]
        for separator, part in zip(self.separators, self.parts[1:], strict=True):
            nodes += [separator, *part]
        return nodes


@dataclass(frozen=True)
class Count:
    """How the steps of a pass are counted.

    `hires_of` is the number of steps of the first pass where this is the second: whole numbers go on counting from it,
    and fractions from 1. In the `old` way a number below 1 is a share, also without a point, and both passes count alike.
    """

    steps: int
    hires_of: int | None = None
    old: bool = False

    def step(self, when: str) -> int:
        """The step that a number means: with a point a share of the steps, else a step."""
        number = float(when)
        if self.old:
            number = number * self.steps if number < 1 else number
        elif "." in when:
            number = (number - (self.hires_of is not None)) * self.steps
        else:
            number -= self.hires_of or 0
        return int(max(min(number, self.steps), -1))


def stages_of(prompt: str, steps: int, hires_of: int | None = None, *, old: bool = False) -> Stages:
    """The texts of a prompt over the steps of a pass, counted as `Count` says."""
    count = Count(steps, hires_of, old)
    nodes = _parse(prompt)
    if nodes is None:
        return Stages([Stage(steps, prompt)])
    ends = {steps}
    _collect(nodes, count, ends)
    return Stages(Stage(end, "".join(_texts(nodes, end, count))) for end in sorted(ends))


def _parse(prompt: str) -> list[_Node] | None:
    """The prompt as text and constructs, or None if the grammar does not have it."""
    base: list[_Node] = []
    opened: list[_Open] = []

    def give_up() -> None:
        """Every open bracket is a character: what is inside of one that is none cannot be one."""
        for bracket in opened:
            base.extend(bracket.as_characters())
        opened.clear()

    place = 0
    while place < len(prompt):
        character = prompt[place]
        here = opened[-1].parts[-1] if opened else base
        plain = PLAIN.match(prompt, place)
        if plain:
            here.append(plain.group())
            place = plain.end()
            continue
        place += 1
        if character in CLOSING:
            opened.append(_Open(character))
            refuse_deep(len(opened))
        elif character in ":|" and opened:
            opened[-1].separators.append(character)
            opened[-1].parts.append([])
        elif character in ")]" and opened:
            closed = opened[-1].close() if CLOSING[opened[-1].bracket] == character else None
            if closed is None:
                give_up()
                base.append(character)
            else:
                opened.pop()
                (opened[-1].parts[-1] if opened else base).extend(closed)
        elif character in "|\\":
            return None
        else:
            base.append(character)
    give_up()
    return None if "|" in base else base


def _collect(nodes: list[_Node], count: Count, ends: set[int]) -> None:
    """Adds the steps at which something changes."""
    for node in nodes:
        if isinstance(node, _Turn):
            ends.update(range(1, count.steps + 1))
            for option in node.options:
                _collect(option, count, ends)
        elif isinstance(node, _Switch):
            step = count.step(node.when)
            if step >= 1:
                ends.add(step)
            _collect(node.before, count, ends)
            _collect(node.after, count, ends)


def _texts(nodes: list[_Node], end: int, count: Count) -> list[str]:
    """The strings of the prompt as it is until `end`."""
    texts: list[str] = []
    for node in nodes:
        if isinstance(node, str):
            texts.append(node)
        elif isinstance(node, _Turn):
            texts += _texts(node.options[(end - 1) % len(node.options)], end, count)
        else:
            chosen = node.before if end <= count.step(node.when) else node.after
            texts += _texts(chosen, end, count)
    return texts
