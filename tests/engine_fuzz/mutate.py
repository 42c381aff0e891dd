"""Changes to a program's document, of which most leave one that can be read to its end."""

from __future__ import annotations

import copy
from random import Random
from typing import Any

from graphc.ops.base import operators
from graphc.targets.ggml.program.calls import CALLS
from graphc.targets.ggml.program.tensor import TYPE_SIZES
from graphc.targets.ggml.program.text import DTYPES

WHOLE = (-(2**62), -(2**31), -2, -1, 0, 0, 1, 1, 2, 3, 4, 5, 7, 8, 16, 65, 1000, 2**20, 2**31 - 1, 2**31, 2**40, 2**62)
NUMBERS = (0.0, -0.0, 0.5, 1.0, -1.0, 1.5, 1e-30, 1e30, {"number": "nan"}, {"number": "inf"}, {"number": "-inf"})
CONSTANTS = ("GGML_TYPE_F32", "GGML_TYPE_F16", "GGML_TYPE_BF16", "GGML_TYPE_I32", "GGML_TYPE_Q8_0", "GGML_OP_POOL_MAX",
             "GGML_OP_POOL_AVG", "GGML_SCALE_MODE_NEAREST", "GGML_SCALE_MODE_BILINEAR", "GGML_NO")  # fmt: skip


def mutated(document: Any, random: Random) -> Any:
    """The document with one to four changes."""
    document = copy.deepcopy(document)
    for _ in range(random.choice((1, 1, 1, 2, 2, 3, 4))):
        holder, key = random.choice(list(_places(document)))
        changes = [_value, _value, _value, _exchanged]
        changes += [_repeated, _left_out] if isinstance(holder, list) else []
        random.choice(changes)(document, holder, key, random)
    return document


def _places(document: Any) -> Any:
    """Where something stands: what holds it, and its key. What only names something is left alone."""
    items = document.items() if isinstance(document, dict) else enumerate(document)
    for key, value in list(items):
        if key in ("scope", "source", "message", "name", "text", "what"):
            continue
        yield document, key
        if isinstance(value, dict | list):
            yield from _places(value)


def _value(document: Any, holder: Any, key: Any, random: Random) -> None:
    """Another value, mostly of the same kind."""
    value = holder[key]
    match document:
        case {"symbols": list(symbols)}:
            sizes = [each["text"] for each in symbols if isinstance(each, dict) and isinstance(each.get("text"), str)]
        case _:
            sizes = []
    kinds = {
        bool: lambda: not value,
        int: lambda: random.choice([*WHOLE, value + 1, value - 1, 2 * value, value // 2, -value, *map(_size(random), sizes)]),
        float: lambda: random.choice([*NUMBERS, value * 2, -value]),
        str: lambda: _text(value, sizes, random),
        dict: lambda: _object(value, random),
        list: lambda: random.choice([value[::-1], value[:-1], value * 2, []]),
    }  # fmt: skip
    if value is None or random.random() < 0.05:
        value = random.choice([None, True, 1, 0.5, "x", [], {"weight": 0}, {"input": 0}, {"dtype": "float16"}])
        holder[key] = value
        return
    holder[key] = kinds[type(value)]()


def _size(random: Random) -> Any:
    forms = ("{}", "{} - 1", "{} + 1", "2*{}", "{}//2", "-{}", "{}*{}", "{}%3", "{} - 5")
    return lambda size: random.choice(forms).replace("{}", size)


def _text(value: str, sizes: list[str], random: Random) -> str:
    for known in (CALLS, TYPE_SIZES, DTYPES, operators()):
        if value in known:
            return random.choice(sorted(known))
    return random.choice([*map(_size(random), sizes), f"{value} - 1", f"{value} + 1", f"({value})*2", "1", value])


def _object(value: dict[str, Any], random: Random) -> dict[str, Any]:
    if "constant" in value:
        return {"constant": random.choice(CONSTANTS)}
    if "number" in value:
        return {"number": random.choice(["inf", "-inf", "nan"])}
    if "dtype" in value and len(value) == 1:
        return {"dtype": random.choice(sorted(DTYPES))}
    if value.keys() & {"call", "weight", "input"}:
        kind = random.choice(["call", "call", "weight", "input"])
        reference = {kind: random.randrange(12)}
        return reference | ({"rank": random.randrange(6)} if random.random() < 0.2 else {})
    return dict(value)


def _exchanged(document: Any, holder: Any, key: Any, random: Random) -> None:
    """With another of the same holder."""
    other = random.choice(list(holder) if isinstance(holder, dict) else range(len(holder)))
    holder[key], holder[other] = holder[other], holder[key]


def _repeated(document: Any, holder: Any, key: Any, random: Random) -> None:
    holder.insert(key, copy.deepcopy(holder[key]))


def _left_out(document: Any, holder: Any, key: Any, random: Random) -> None:
    del holder[key]
