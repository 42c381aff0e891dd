"""Strings. No program computes with them: what is known of them is worked out while importing."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable

import numpy as np

from graphc.errors import ModelError
from graphc.frontend.onnx.emit import SizeEmit
from graphc.frontend.onnx.node import OnnxNode
from graphc.frontend.onnx.table import onnx_op
from graphc.ir import Value
from graphc.ir.types import BOOL, I64, STRING

CASES: dict[str, Callable[[str], str]] = {"LOWER": str.lower, "UPPER": str.upper, "NONE": str}


def strings(node: OnnxNode, emit: SizeEmit, index: int) -> np.ndarray:
    """An input's strings. Raises ModelError if it holds something else, Refused if they are not known."""
    value = node.input(index)
    if value.dtype != STRING:
        raise ModelError(f"input {index} holds {value.dtype.name}, not strings")
    return emit.array(value, "a string")


def of_strings(items: list[str], shape: tuple[int, ...]) -> np.ndarray:
    """A tensor of strings."""
    array = np.empty(len(items), STRING)
    array[:] = items
    return array.reshape(shape)


@onnx_op("StringConcat")
def string_concat(node: OnnxNode, emit: SizeEmit) -> Value:
    """Two strings as one, with broadcasting."""
    return emit.constant(np.asarray(strings(node, emit, 0) + strings(node, emit, 1), STRING))


@onnx_op("RegexFullMatch")
def regex_full_match(node: OnnxNode, emit: SizeEmit) -> Value:
    """True if a whole string matches."""
    try:
        pattern = re.compile(node.string("pattern"))
    except re.error as error:
        raise ModelError(f"attribute pattern is not a regular expression: {error}") from error
    x = strings(node, emit, 0)
    return emit.constant(np.array([bool(pattern.fullmatch(text)) for text in x.flat], BOOL).reshape(x.shape))


@onnx_op("StringSplit")
def string_split(node: OnnxNode, emit: SizeEmit) -> tuple[Value, Value]:
    """Parts between delimiters, filled up with empty strings, and how many there are."""
    x = strings(node, emit, 0)
    delimiter, most = node.string("delimiter", "") or None, node.int("maxsplit", -1)
    parts = [text.split(delimiter, most) for text in x.flat]
    width = max(map(len, parts), default=0)
    filled = [part for found in parts for part in (*found, *[""] * (width - len(found)))]
    counts = np.array([len(found) for found in parts], I64).reshape(x.shape)
    return emit.constant(of_strings(filled, (*x.shape, width))), emit.constant(counts)


@onnx_op("StringNormalizer")
def string_normalizer(node: OnnxNode, emit: SizeEmit) -> Value:
    """Without stop words, in one case."""
    x = strings(node, emit, 0)
    if x.ndim not in (1, 2) or (x.ndim == 2 and x.shape[0] != 1):
        raise ModelError(f"strings of shape {list(x.shape)}, not [C] or [1, C]")
    change = CASES[node.choice("case_change_action", "NONE", tuple(CASES))]
    stop_words = node.strings("stopwords", [])
    fold = str if node.int("is_case_sensitive", 0) else str.lower
    stopped = {fold(word) for word in stop_words}
    kept = [change(text) for text in map(without_accents, x.flat) if fold(text) not in stopped] or [""]
    return emit.constant(of_strings(kept, (*x.shape[:-1], len(kept))))


def without_accents(text: str) -> str:
    """The base letters."""
    return "".join(letter for letter in unicodedata.normalize("NFKD", text) if not unicodedata.combining(letter))
