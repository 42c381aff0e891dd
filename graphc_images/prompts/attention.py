"""Emphasis in a prompt: round brackets make words matter more, square ones less.

Source: AUTOMATIC1111's modules/prompt_parser.py (parse_prompt_attention); ComfyUI's comfy/sd1_clip.py (token_weights).
"""

from __future__ import annotations

import re
from typing import NamedTuple

from graphc_images.errors import SettingError
from graphc_images.modes import Mode

DEEPEST = 200
ROUND, SQUARE = 1.1, 1 / 1.1
BREAK_WEIGHT = -1.0  # A1111 marks BREAK so, and multiplies it as any word: inside brackets it is no longer a BREAK
NUMBER = r"[+-]?(?:\d{1,9}(?:\.\d*)?|\.\d+)"
A1111_TOKEN = re.compile(rf"\\[()\[\]\\]|\\|\(|\[|:\s*({NUMBER})\s*\)|\)|\]|[^\\()\[\]:]+|:")
BREAK_WORD = re.compile(r"\s*\bBREAK\b\s*")
COMFYUI_WEIGHT = re.compile(rf"(.+):\s*({NUMBER}(?:[eE][+-]?\d\d?)?)\s*", re.DOTALL)


def refuse_deep(brackets: int) -> None:
    """Refuses more brackets inside each other than anybody means."""
    if brackets > DEEPEST:
        raise SettingError(f"the prompt has more than {DEEPEST} brackets inside each other")


class Piece(NamedTuple):
    """A part of a prompt, and how much it matters; 1 is plain."""

    text: str
    weight: float

    @property
    def is_break(self) -> bool:
        """True if the chunk of tokens ends here."""
        return self == ("BREAK", BREAK_WEIGHT)


def parse_attention(prompt: str, mode: Mode) -> list[Piece]:
    """The pieces of a prompt in order, with the brackets' meaning as weights; there is at least one."""
    return _parse_a1111(prompt) if mode == "a1111" else _parse_comfyui(prompt)


def _parse_a1111(prompt: str) -> list[Piece]:
    """`(x)`, `[x]`, `(x:1.3)`, backslashes before brackets (others go), BREAK. What is not closed runs to the end."""
    texts: list[str] = []
    weights: list[float] = []
    opened: dict[str, list[int]] = {"(": [], "[": []}

    def multiply(start: int, factor: float) -> None:
        weights[start:] = [weight * factor for weight in weights[start:]]

    for token in A1111_TOKEN.finditer(prompt):
        text, explicit = token.group(), token.group(1)
        if text in opened:
            opened[text].append(len(texts))
            refuse_deep(len(opened["("]) + len(opened["["]))
        elif opened["("] and explicit is not None:
            multiply(opened["("].pop(), float(explicit))
        elif opened["("] and text == ")":
            multiply(opened["("].pop(), ROUND)
        elif opened["["] and text == "]":
            multiply(opened["["].pop(), SQUARE)
        elif text[0] == "\\":
            texts.append(text[1:])
            weights.append(1.0)
        else:
            for place, part in enumerate(BREAK_WORD.split(text)):
                texts += ["BREAK", part] if place else [part]
                weights += [BREAK_WEIGHT, 1.0] if place else [1.0]
    for bracket, factor in (("(", ROUND), ("[", SQUARE)):
        for start in opened[bracket]:
            multiply(start, factor)
    return _merge(texts, weights)


def _merge(texts: list[str], weights: list[float]) -> list[Piece]:
    """Neighbours of equal weight become one."""
    merged: list[Piece] = []
    for text, weight in zip(texts, weights, strict=True):
        if merged and merged[-1].weight == weight:
            merged[-1] = Piece(merged[-1].text + text, weight)
        else:
            merged.append(Piece(text, weight))
    return merged or [Piece("", 1.0)]


def _parse_comfyui(prompt: str) -> list[Piece]:
    """`(x)` and `(x:1.3)`, the number in place of what stands around it; backslashes before round brackets."""
    escaped = prompt.replace("\\)", "\0\1").replace("\\(", "\0\2")
    pieces: list[Piece] = []
    waiting = [(escaped, 1.0, 0)]
    while waiting:
        text, weight, depth = waiting.pop()
        refuse_deep(depth)
        parts = []
        for part in _outer_brackets(text):
            if not (part[0] == "(" and part[-1] == ")" and len(part) > 1):
                parts.append((part, weight, False))
                continue
            explicit = COMFYUI_WEIGHT.fullmatch(part[1:-1])
            parts.append((explicit[1], float(explicit[2]), True) if explicit else (part[1:-1], weight * ROUND, True))
        while parts and not parts[0][2]:
            plain, weight, _ = parts.pop(0)
            pieces.append(Piece(plain.replace("\0\1", ")").replace("\0\2", "("), weight))
        waiting += [(part, weight, depth + bracketed) for part, weight, bracketed in reversed(parts)]
    return pieces or [Piece("", 1.0)]


def _outer_brackets(text: str) -> list[str]:
    """A text cut around its outermost round brackets. After one that closes nothing, ComfyUI counts from below zero."""
    parts, start, depth = [], 0, 0
    for place, character in enumerate(text):
        if character == "(":
            if depth == 0:
                parts.append(text[start:place])
                start = place
            depth += 1
        elif character == ")":
            depth -= 1
            if depth == 0:
                parts.append(text[start : place + 1])
                start = place + 1
    return [part for part in [*parts, text[start:]] if part]
