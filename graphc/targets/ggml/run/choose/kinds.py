"""The kinds of functions that `calls.c` calls. A kind has a letter for each parameter. There are a few dozen, each with a piece
of code that calls whatever function of this kind lies at an address.
"""

from __future__ import annotations

from functools import cache

from graphc.ggml_declarations import FUNCTIONS
from graphc.targets.ggml.program.calls import CALLS
from graphc.targets.ggml.program.in_c import KINDS as TYPES
from graphc.targets.ggml.program.in_c import built_in_c

KERNEL = "ggml_custom_4d"
"""What calls a generated kernel."""

LETTERS = {"int": "i", "uint32": "u", "int64": "l", "size_t": "z", "bool": "b", "float": "f"}
"""By the names of types; what has another is an address, "p"."""

TENSORS = "t"
"""All arguments that no other letter takes, as an array, and their number."""

PARAMETERS = {
    "p": ("void *", "{}.address"),
    "i": ("int", "(int) {}.integer"),
    "u": ("uint32_t", "(uint32_t) {}.integer"),
    "l": ("int64_t", "{}.integer"),
    "z": ("size_t", "(size_t) {}.integer"),
    "b": ("bool", "{}.integer != 0"),
    "f": ("float", "(float) {}.number"),
    TENSORS: ("void **, int", "more, count - {fixed}"),
}
"""What a letter is in C, and how it is taken from the list."""

CODE = """\
static void * make_{kind}(void * function, const union graphc_argument * list, const int * at, int count) {{
{more}    return ((void * (*)({types})) function)({arguments});
}}
"""

MORE = """\
    void * more[count];
    for (int i = {fixed}; i < count; i++) {{
        more[i - {fixed}] = list[at[i]].address;
    }}
"""

TABLE = """
typedef void * (*graphc_kind)(void * function, const union graphc_argument * list, const int * at, int count);

static const graphc_kind KINDS[] = {{{names}}};
"""


@cache
def kind_of(function: str) -> str:
    """The kind of a function that a program may call. Its first argument is a context, a composite's a builder."""
    if function in built_in_c():
        composite = built_in_c()[function]
        types = ["", *(TYPES.get(kind, "") for kind in composite.parameters.values())]
        return "".join(LETTERS.get(each, "p") for each in types) + (TENSORS if composite.more else "")
    types = " ".join(FUNCTIONS[function][1:]).replace("ggml_tensor** int", TENSORS).split()
    return "".join(LETTERS.get(each, each if each == TENSORS else "p") for each in types)


@cache
def kinds() -> dict[str, int]:
    """The number of each kind."""
    functions = [each for each in CALLS if each in FUNCTIONS or each in built_in_c()]
    return {kind: number for number, kind in enumerate(sorted({*map(kind_of, functions), kind_of(KERNEL)}))}


def kinds_text() -> str:
    """The code of all kinds, `kinds.h`."""
    return "".join(map(_code, kinds())) + TABLE.format(names=", ".join(f"make_{kind}" for kind in kinds()))


def _code(kind: str) -> str:
    letters = [each for each in kind if each != TENSORS]
    places = iter(f"list[at[{number}]]" for number in range(len(letters)))
    arguments = [
        PARAMETERS[each][1].format(fixed=len(letters)) if each == TENSORS else PARAMETERS[each][1].format(next(places))
        for each in kind
    ]
    return CODE.format(
        kind=kind,
        more=MORE.format(fixed=len(letters)) if TENSORS in kind else "",
        types=", ".join(PARAMETERS[each][0] for each in kind),
        arguments=", ".join(arguments),
    )
