"""From ggml's headers to `graphc/ggml_declarations.py`: what the bindings know of ggml's functions, structs and constants.

The headers are regular enough for patterns. What is not understood is an error here, not a wrong call later.
"""

from __future__ import annotations

import ast
import operator
import re
import textwrap
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

HEADERS = ("ggml.h", "ggml-alloc.h", "ggml-backend.h", "ggml-cpu.h", "gguf.h")

NUMBERS = {
    **{name: name for name in ("void", "char", "bool", "int", "float", "double", "size_t")},
    **{f"{sign}int{bits}_t": f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)},
    "unsigned int": "uint",
}
"""C's types by the bindings' names of them."""

SIZES = {"int32_t": 4, "int64_t": 8, "char": 1}
"""What `sizeof` is of."""

MODULE = '''"""ggml's functions, structs and constants: made of its headers by `python -m graphc_build declarations`.

A type is named as in C; a pointer to what is not declared here is `void*`. A function has the type of its result, then those of
its parameters.
"""

from __future__ import annotations

from collections.abc import Mapping

# fmt: off

CONSTANTS: Mapping[str, int] = {{
{constants}}}
"""Of its enumerations, and what it defines."""

CALLBACKS: Mapping[str, tuple[str, ...]] = {{
{callbacks}}}
"""Types of functions that it calls."""

STRUCTS: Mapping[str, tuple[tuple[str, str], ...]] = {{
{structs}}}
"""Names and types of their fields."""

FUNCTIONS: Mapping[str, tuple[str, ...]] = {{
{functions}}}
'''


class NotUnderstood(Exception):
    """A header has what the patterns do not know."""


@dataclass
class Declarations:
    """What headers declare, by names. Types are those of C until `named` is asked."""

    constants: dict[str, int] = field(default_factory=dict)
    enums: set[str] = field(default_factory=set)
    types: dict[str, str] = field(default_factory=dict)
    callbacks: dict[str, tuple[str, ...]] = field(default_factory=dict)
    structs: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
    functions: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def read(self, header: str) -> None:
        """Add a header's declarations. Raises NotUnderstood."""
        text = re.sub(r"/\*.*?\*/|//[^\n]*", "", header, flags=re.S).replace("\\\n", " ")
        defined = re.findall(r"^\s*#\s*define\s+(GG\w+)\s+(0x[0-9a-fA-F]+|\d+|\(-\d+\))\s*$", text, re.M)
        once = {
            name for name, count in Counter(name for name, _ in defined).items() if count == 1
        }  # others: by the system
        self.constants |= {name: self.value(value) for name, value in defined if name in once}
        text = re.sub(r"^\s*#[^\n]*", "", text, flags=re.M)
        text = re.sub(r"GGML_DEPRECATED\(.*?\"\s*\)\s*;", "", text, flags=re.S)
        text = re.sub(r"GGML_ATTRIBUTE_FORMAT\([^)]*\)|GGML_RESTRICT|\bconst\b", "", text)
        text = re.sub(r"enum\s+(\w*)\s*\{([^}]*)\}\s*;", self._enum, text)
        text = re.sub(
            r"typedef\s+struct\s*\{([^}]*)\}\s*(\w+)\s*;", lambda found: self._struct(found[2], found[1]), text
        )
        text = re.sub(r"\bstruct\s+(\w+)\s*\{([^}]*)\}\s*;", lambda found: self._struct(found[1], found[2]), text)
        text = re.sub(r"typedef\s+([^;()]+?)\(\s*\*\s*(\w+)\s*\)\s*\(([^;]*)\)\s*;", self._callback, text)
        text = re.sub(r"typedef\s+([^;()\[\]]+?)\b(\w+)\s*;", self._type, text)
        for result, name, parameters in re.findall(
            r"GGML_(?:BACKEND_)?API\s+([^;()]+?)\b(\w+)\s*\(([^;]*)\)\s*;", text
        ):
            self.functions[name] = (result, *self._parameters(parameters.replace("...", "")))

    def value(self, expression: str) -> int:
        """A constant expression's value. Raises NotUnderstood."""
        expression = re.sub(r"sizeof\((\w+)\)", lambda found: str(SIZES[found[1]]), expression.strip())
        try:
            return _evaluated(ast.parse(expression.replace("/", "//"), mode="eval").body, self.constants)
        except (SyntaxError, KeyError) as error:
            raise NotUnderstood(f"the constant {expression}") from error

    def named(self, type: str) -> str:
        """The bindings' name of a type. Raises NotUnderstood."""
        words = re.sub(r"\b(struct|enum)\b", "", type)
        stars = words.count("*")
        base = " ".join(words.replace("*", " ").split())
        if base in self.types:
            return self.named(self.types[base] + "*" * stars)
        if base in NUMBERS:
            return NUMBERS[base] + "*" * stars
        if base in self.enums:
            return "int" + "*" * stars
        if base in self.structs or base in self.callbacks:
            return base + "*" * stars
        if stars:  # nothing is known of it
            return "void" + "*" * stars
        raise NotUnderstood(f"the type {type}")

    def _enum(self, found: re.Match[str]) -> str:
        self.enums.add(found[1])
        following = 0
        for each in filter(None, map(str.strip, found[2].split(","))):
            name, _, value = each.partition("=")
            following = self.value(value) if value.strip() else following
            self.constants[name.strip()] = following
            following += 1
        return ""

    def _struct(self, name: str, body: str) -> str:
        fields = []
        for each in filter(None, map(str.strip, body.split(";"))):
            field = re.fullmatch(r"(.+?)\b(\w+)\s*((?:\[[^\]]*\])*)", each, re.S)
            if field is None:
                raise NotUnderstood(f"the field {each} of {name}")
            counts = "".join(f"[{self.value(count)}]" for count in re.findall(r"\[([^\]]*)\]", field[3]))
            fields.append((field[2], field[1].strip() + counts))
        self.structs[name] = fields
        return ""

    def _callback(self, found: re.Match[str]) -> str:
        self.callbacks[found[2]] = (found[1], *self._parameters(found[3]))
        return ""

    def _type(self, found: re.Match[str]) -> str:
        self.types[found[2]] = found[1]
        return ""

    def _parameters(self, text: str) -> Iterator[str]:
        for each in filter(None, map(str.strip, text.split(","))):
            if each == "void":
                continue
            array = "*" if each.endswith("]") else ""
            each = re.sub(r"\[[^\]]*\]$", "", each).strip()
            words = [word for word in each.replace("*", " * ").split() if word not in ("struct", "enum")]
            has_name = words[-1] not in ("*", *NUMBERS) and len(words) > words.count("*") + 1
            yield " ".join(words[:-1] if has_name else words) + array


def read_headers(folder: Path) -> Declarations:
    """What the headers in a folder declare. Raises NotUnderstood."""
    declared = Declarations()
    for name in HEADERS:
        declared.read((folder / name).read_text(encoding="utf-8"))
    return declared


def module(declared: Declarations) -> str:
    """The text of the module. Raises NotUnderstood."""

    def types(names: tuple[str, ...]) -> str:
        return "(" + ", ".join(f'"{declared.named(name)}"' for name in names) + ("," if len(names) == 1 else "") + ")"

    def fields(of: list[tuple[str, str]]) -> str:
        named = []
        for name, type in of:
            base, bracket, count = type.partition("[")
            named.append(f'("{name}", "{declared.named(base)}{bracket}{count}")')
        return "(" + ", ".join(named) + ("," if len(named) == 1 else "") + ")"

    lines = {
        "constants": [f'"{name}": {value},' for name, value in declared.constants.items()],
        "callbacks": [f'"{name}": {types(each)},' for name, each in declared.callbacks.items()],
        "structs": [f'"{name}": {fields(each)},' for name, each in declared.structs.items()],
        "functions": [f'"{name}": {types(each)},' for name, each in declared.functions.items()],
    }
    return MODULE.format(**{kind: "".join(map(_folded, each)) for kind, each in lines.items()})


def _folded(line: str) -> str:
    return textwrap.fill(line, 120, initial_indent="    ", subsequent_indent="        ", break_long_words=False) + "\n"


OPERATORS: Mapping[type[ast.operator], Callable[[int, int], int]] = {
    ast.LShift: operator.lshift,
    ast.BitOr: operator.or_,
    ast.FloorDiv: operator.floordiv,
    ast.Mult: operator.mul,
}


def _evaluated(node: ast.expr, names: Mapping[str, int]) -> int:
    match node:
        case ast.Constant(int(value)):
            return value
        case ast.Name(name):
            return names[name]
        case ast.UnaryOp(ast.USub(), operand):
            return -_evaluated(operand, names)
        case ast.BinOp(left, kind, right):
            return OPERATORS[type(kind)](_evaluated(left, names), _evaluated(right, names))
    raise KeyError(ast.unparse(node))
