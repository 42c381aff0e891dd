"""Every routine for all types that operators ask it for, as one C file: for where nothing compiles what a model needs.

Each is a `ggml_custom_op_t` as `render.py` makes them. Its userdata is a `graphc_kernel_data`: after the fault the routine's
numbers, one each; of an array the place among them where its elements are, of a floating-point number the bits as double.
`graphc_routine` finds them by name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from itertools import product

import numpy as np

from graphc.ir.types import BOOL, BYTES, F32, F64, FLOATS, INTEGERS, NARROW, U8
from graphc.kernels.c.compiler import FLAGS
from graphc.kernels.c.language import BITS, NARROW_TYPES
from graphc.kernels.c.render import DATA, NUMBER, PREAMBLE
from graphc.kernels.c.routine import FOLDER, definitions, function_name
from graphc.ops.base import Routine
from graphc.shapes import Dim

NUMBERS = sorted(FLOATS | INTEGERS, key=str)
ANY = (*NUMBERS, BOOL)

TYPES: dict[tuple[str, str], tuple[Sequence[np.dtype], ...]] = {
    ("boxes", "best_boxes"): (),
    ("channels", "channels_last"): (BYTES,),
    ("integers", "integers"): (BYTES, BYTES),
    ("panels", "packed_sums"): (BYTES, BYTES),
    ("panels", "packed_floats"): (BYTES, BYTES),
    ("panels", "packed_bytes"): (BYTES, BYTES),
    ("coupling", "pairwise_coupling"): (),
    ("depthwise", "depthwise_sums"): (BYTES, BYTES),
    ("depthwise", "depthwise_floats"): (BYTES, BYTES),
    ("depthwise", "depthwise_bytes"): (BYTES, BYTES),
    ("table", "byte_table"): (BYTES, BYTES),
    ("quantize", "quantize"): (),
    ("byte_binary", "quantized_binary"): (BYTES, BYTES),
    ("pad", "pad"): (ANY,),
    ("pool", "max_pool"): (NUMBERS,),
    **{("range", name): ((F32,),) for name in ("extremes", "byte_scale", "byte_zero")},
    **{("recurrent", cell): () for cell in ("lstm", "gru", "linear_gru", "rnn_of_tanh", "rnn_of_relu")},
    ("scan", "scan"): (NUMBERS,),
    ("scatter", "scatter_elements"): (ANY, sorted(INTEGERS, key=str)),
    ("scatter", "scatter_slices"): (ANY, sorted(INTEGERS, key=str)),
    ("select", "nonzero"): (ANY,),
    ("sort", "sort"): (ANY,),
    ("trees", "tree_ensemble"): ((F32, F64),),
}
"""Of each file's functions, what each type parameter may be. Types in which nothing is computed are moved as bytes."""

ENTRY = """\
static void graphc_ready_{name}(struct ggml_tensor * dst, int ith, int nth, void * userdata) {{
    struct graphc_kernel_data * const data = userdata;
    const int64_t * const n = data->sizes;
    {call}
}}
"""

TABLE = """\
ggml_custom_op_t graphc_routine(const char * name) {{
    static const struct {{
        const char * name;
        ggml_custom_op_t function;
    }} routines[] = {{
{rows}    }};
    for (size_t i = 0; i < sizeof(routines) / sizeof(*routines); i++) {{
        if (strcmp(routines[i].name, name) == 0) return routines[i].function;
    }}
    return NULL;
}}
"""


def ready_name(routine: Routine) -> str:
    """What the table calls a routine for its types."""
    types = tuple(U8 if dtype in NARROW else dtype for dtype in routine.types)
    return function_name(replace(routine, types=types)).removeprefix("graphc_")


@cache
def ready_text(export: str = "") -> str:
    """The C file; `export` is how C has a name be known outside of a library."""
    routines = [*_routines()]
    defined: dict[str, str] = {}
    for routine in routines:
        defined |= definitions(routine)
    text = "\n".join(defined.values())
    entries = [_entry(routine, text) for routine in routines]
    rows = "".join(f'        {{"{name}", graphc_ready_{name}}},\n' for name in map(ready_name, routines))
    parts = [PREAMBLE.format(flags=" ".join(FLAGS)), DATA, NUMBER, BITS, *NARROW_TYPES.values(), text, *entries]
    return "\n".join([*parts, f"{export} {TABLE.format(rows=rows)}"])


def ready_numbers(routine: Routine) -> list[Dim | float]:
    """What the userdata of a routine holds after the fault."""
    found: list[Dim | float] = []
    arrays: list[Dim] = []
    for each in routine.numbers:
        if isinstance(each, tuple):
            found.append(len(routine.numbers) + len(arrays))
            arrays += each
        else:
            found.append(constant(each) if isinstance(each, str) else each)
    return [*found, *arrays]


def constant(name: str) -> int | float:
    """The number that a constant in C is."""
    return _constants()[name]


@cache
def _constants() -> dict[str, int | float]:
    """Those that operators give to routines."""
    lowest = {f"{dtype.name.upper()}_MIN": int(np.iinfo(dtype).min) for dtype in INTEGERS if dtype.kind == "i"}
    text = FOLDER.joinpath("reductions.h").read_text(encoding="utf-8")
    reductions = {name: int(value) for name, value in re.findall(r"#define (\w+) (\d+)", text)}
    return {"-INFINITY": -np.inf, "0": 0, **lowest, **reductions}


def _routines() -> Iterator[Routine]:
    """One of each kind, without its numbers."""
    for (subject, function), types in TYPES.items():
        for chosen in product(*types):
            yield Routine(subject, function, chosen, ())


def _entry(routine: Routine, text: str) -> str:
    """A function of ggml's form that calls the routine of this text."""
    function = function_name(routine)
    head = re.search(rf"^static inline (\w+) {function}\(([^)]*)\) {{", text, re.M)
    assert head, function
    parameters = [each.strip() for each in head[2].split(",")][: -len(("ith", "nth"))]
    result = next(place for place, each in enumerate(parameters) if "*" in each and not each.startswith("const"))
    inputs = [f"dst->src[{place}]->data" for place in range(result)]
    numbers = [_number(each, place) for place, each in enumerate(parameters[result + 1 :])]
    call = f"{function}({', '.join([*inputs, 'dst->data', *numbers, 'ith', 'nth'])});"
    if head[1] == "int":
        call = f"const int fault = {call}\n    if (fault != 0) data->fault = fault;"
    elif not numbers:
        call = f"(void) n;\n    {call}"
    return ENTRY.format(name=ready_name(routine), call=call)


def _number(parameter: str, place: int) -> str:
    """What a routine is given for a parameter."""
    if "*" in parameter:
        return f"n + n[{place}]"
    type = parameter.rsplit(" ", 1)[0]
    return f"({type}) graphc_number(n[{place}])" if type in ("float", "double") else f"({type}) n[{place}]"
