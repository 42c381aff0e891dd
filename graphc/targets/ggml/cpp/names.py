"""Names, strings and comments of generated C++. What a model calls its parts never reaches the code as it is."""

from __future__ import annotations

import re

WORDS = """
    alignas alignof and and_eq asm auto bitand bitor bool break case catch char char8_t char16_t char32_t class
    co_await co_return co_yield compl concept const const_cast consteval constexpr constinit continue decltype default
    delete do double dynamic_cast else enum explicit export extern false float for friend goto if import inline int
    long module mutable namespace new noexcept not not_eq nullptr operator or or_eq private protected public register
    reinterpret_cast requires return short signed sizeof static static_assert static_cast struct switch template this
    thread_local throw true try typedef typeid typename union unsigned using virtual void volatile wchar_t while xor
    xor_eq assert errno final override std main linux unix stdin stdout stderr signals slots emit ctx weights sizes
    kernels inputs graphc ggml given values context
"""

RESERVED = frozenset(WORDS.split())
"""C++'s keywords, macros of common headers, and the names that generated functions give their own parts."""

DERIVED = "derived"
"""What the functions are called, with a number, that compute sizes."""

LONGEST = 40


def identifier(text: str, fallback: str = "value") -> str:
    """A C++ identifier that resembles the text; deterministic, not unique. It is not a keyword, and no macro by its looks."""
    name = re.sub(r"\W+", "_", text, flags=re.ASCII).strip("_")
    name = re.sub(r"__+", "_", name)[:LONGEST].rstrip("_") or fallback
    if name[0].isdigit():
        name = f"{fallback}_{name}"
    macro = len(name) > 1 and name.isupper()
    own = name in RESERVED or name.startswith(("ggml_", "graphc_")) or re.fullmatch(rf"{DERIVED}\d+", name)
    return f"{name}_" if macro or own else name


def type_name(text: str) -> str:
    """A name in the style of a C++ class: `down_block` becomes `DownBlock`."""
    words = re.split(r"[\W_]+", text, flags=re.ASCII)
    return identifier("".join(word[:1].upper() + word[1:] for word in words if word), "Part")


def snake(name: str) -> str:
    """A class's name in the style of a function: `DownBlock` becomes `down_block`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def singular(text: str) -> str:
    """The name of one of many: `blocks` becomes `block`, `entries` becomes `entry`."""
    if text.endswith("ies") and len(text) > 4:
        return text[:-3] + "y"
    if text.endswith(("sses", "xes", "ches")):
        return text[:-2]
    return text[:-1] if text.endswith("s") and not text.endswith(("ss", "us", "is", "as")) and len(text) > 2 else text


class Names:
    """The names of one scope: each is given once."""

    def __init__(self, taken: frozenset[str] = frozenset()) -> None:
        self._taken = set(taken)

    @property
    def taken(self) -> frozenset[str]:
        """The names that are given so far."""
        return frozenset(self._taken)

    def fresh(self, name: str, otherwise: str = "") -> str:
        """The name, or `otherwise` where it is taken, with a number where that is taken too. Both are identifiers."""
        name = otherwise if otherwise and name in self._taken else name
        result, count = name, 2
        while result in self._taken:
            result = f"{name}_{count}"
            count += 1
        self._taken.add(result)
        return result


def string_literal(text: str) -> str:
    """A C++ string literal of the text's UTF-8 bytes, in plain ASCII."""
    return '"' + "".join(map(_escaped, text.encode("utf-8", "backslashreplace"))) + '"'


def _escaped(byte: int) -> str:
    # A three-digit octal escape ends by itself, unlike a hexadecimal one; "?" is escaped for the sake of trigraphs.
    plain = 0x20 <= byte < 0x7F and chr(byte) not in '"\\?'
    return chr(byte) if plain else f"\\{byte:03o}"


def short(text: str, longest: int = 60) -> str:
    """The text, or dots for one that is too long for a comment that is read at a glance."""
    return text if len(text) <= longest else "..."


def comment(text: str) -> str:
    """Text that may stand in a `//` comment: one line of plain ASCII that does not continue on the next."""
    return "".join(character if 0x20 <= ord(character) < 0x7F and character not in "\\?" else "_" for character in text)
