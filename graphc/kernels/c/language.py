"""What the C renderer knows of C: types, literals, precedence, and the helper functions that give every operation a
defined result for every operand."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from graphc.errors import GraphcError
from graphc.ir.types import BF16, BOOL, F16, F32, F64, FLOATS, INTEGERS, NARROW
from graphc.records import dataclass

_STORED = {F32: "float", F64: "double", F16: "graphc_f16", BF16: "graphc_bf16", BOOL: "uint8_t"}
_BYTES = dict.fromkeys(NARROW, "uint8_t")
_COMPUTED = {F32: "float", F64: "double", F16: "float", BF16: "float", BOOL: "bool"}

ATOM, UNARY, PRODUCT, SUM, ORDER, EQUALITY, AND, OR, CHOICE = 16, 14, 13, 12, 10, 9, 5, 4, 3
"""How tightly an expression binds."""

INFIX: dict[str, tuple[str, int]] = {
    "+": ("+", SUM), "-": ("-", SUM), "*": ("*", PRODUCT), "/": ("/", PRODUCT), "<": ("<", ORDER), "<=": ("<=", ORDER),
    ">": (">", ORDER), ">=": (">=", ORDER), "==": ("==", EQUALITY), "!=": ("!=", EQUALITY), "&": ("&", 8), "^": ("^", 7),
    "|": ("|", 6), "and": ("&&", AND), "or": ("||", OR), "//": ("/", PRODUCT), "%": ("%", PRODUCT),
    "rem": ("%", PRODUCT),
}  # fmt: skip
"""C's spelling of an operator, and how tightly it binds."""


@dataclass(frozen=True)
class Text:
    """A C expression and how tightly it binds."""

    text: str
    level: int = ATOM

    def within(self, level: int) -> str:
        """The expression as an operand of one that binds as `level` says."""
        return self.text if self.level >= level else f"({self.text})"


def stored_type(dtype: np.dtype) -> str:
    """The type of an element in memory. Raises GraphcError if C has none."""
    if dtype not in _STORED and dtype not in INTEGERS and dtype not in NARROW:
        raise GraphcError(f"a kernel cannot hold {dtype}")
    return _STORED.get(dtype) or _BYTES.get(dtype) or f"{dtype.name}_t"


def computed_type(dtype: np.dtype) -> str:
    """The type of an expression: narrow floats are computed in float."""
    return _COMPUTED.get(dtype) or _BYTES.get(dtype) or f"{dtype.name}_t"


def suffix(dtype: np.dtype) -> str:
    """The end of a helper's name: the type that it computes in."""
    return computed_type(dtype).removesuffix("_t")


def literal(value: float, dtype: np.dtype) -> Text:
    """A number."""
    if dtype == BOOL:
        return Text("true" if value else "false")
    if dtype in FLOATS:
        return _float_literal(value, dtype)
    if value == -(2**63):
        return Text("INT64_MIN")
    text = str(int(value)) + ("u" if dtype.kind == "u" and dtype.itemsize >= 4 else "")
    return Text(text, UNARY if value < 0 else ATOM)


def _float_literal(value: float, dtype: np.dtype) -> Text:
    if not np.isfinite(value):
        text = "NAN" if np.isnan(value) else "INFINITY" if value > 0 else "-INFINITY"
        return Text(f"(double) {text}" if dtype == F64 else text, UNARY)
    text = repr(value) if dtype == F64 else f"{np.float32(value)!s}f"
    return Text(text, UNARY if text.startswith("-") else ATOM)


def comment(text: str) -> str:
    """Text from a model as it may stand in a line comment."""
    return re.sub(r"[^ -~]|\\", "?", text)


def identifier(text: str) -> str:
    """Text from a model as a part of a C name."""
    return re.sub(r"[^A-Za-z0-9]+", "_", text).strip("_")[:48] or "x"


def expanded(template: str, args: Sequence[Text], dtype: np.dtype) -> Text:
    """A template of `Kernel.call` with its operands; `dtype` is that of the computation."""

    def operand(match: re.Match[str]) -> str:
        if match[1] == "f":
            return "f" if dtype in FLOATS and dtype != F64 else ""
        alone = template[: match.start()].rstrip()[-1:] in ("(", ",") and template[match.end() :].lstrip()[:1] in (
            ")",
            ",",
        )
        return args[int(match[1])].within(0 if alone else ATOM)

    text = re.sub(r"\{(\w+)\}", operand, template)
    return Text(text, ATOM if _is_closed(text) else CHOICE)


def _is_closed(text: str) -> bool:
    """True for a name, a call, and what stands in parentheses."""
    depth = 0
    for position, character in enumerate(text):
        depth += {"(": 1, ")": -1}.get(character, 0)
        if depth == 0 and not (character.isalnum() or character == "_") and position + 1 < len(text):
            return False
    return depth == 0


@dataclass(frozen=True)
class Helper:
    """A C function that the rendered file defines if it is used: `graphc_NAME_TYPE`."""

    name: str
    dtype: np.dtype

    @property
    def function(self) -> str:
        """Its name."""
        return f"graphc_{self.name}_{suffix(self.dtype)}"

    def definition(self) -> str:
        """Its C source."""
        dtype = self.dtype
        kind = "float" if dtype in FLOATS else "unsigned" if dtype.kind == "u" else "signed"
        result, parameters, body = HELPERS[self.name, kind]
        type = computed_type(dtype)
        signature = f"static inline {result.replace('T', type)} {self.function}({parameters.replace('T', type)})"
        body = re.sub(r"\bT\b", type, body)
        body = re.sub(r"\bBITS\b", str(8 * dtype.itemsize), body).replace("{f}", "" if dtype == F64 else "f")
        lines = "\n".join(f"    {line}" for line in body.strip().splitlines())
        return f"{signature} {{\n{lines}\n}}\n"


_PAIR = "T a, T b"
_POWER = """\
uint64_t result = 1, base = (uint64_t) a;
for (; b != 0; b >>= 1) {
    result *= b & 1 ? base : 1;
    base *= base;
}
return (T) result;
"""

HELPERS: dict[tuple[str, str], tuple[str, str, str]] = {
    ("divide", "signed"): ("T", _PAIR, "return b == 0 ? 0 : b == -1 ? (T) (0 - (uint64_t) a) : (T) (a / b);"),
    ("divide", "unsigned"): ("T", _PAIR, "return b == 0 ? 0 : (T) (a / b);"),
    ("remainder", "signed"): ("T", _PAIR, "return b == 0 || b == -1 ? 0 : (T) (a % b);"),
    ("remainder", "unsigned"): ("T", _PAIR, "return b == 0 ? 0 : (T) (a % b);"),
    ("remainder", "float"): ("T", _PAIR, "return fmod{f}(a, b);"),
    ("floor_divide", "signed"): ("T", _PAIR, """\
if (b == 0 || b == -1) return b == 0 ? 0 : (T) (0 - (uint64_t) a);
return (T) (a / b - (a % b != 0 && (a < 0) != (b < 0)));
"""),
    ("floor_divide", "unsigned"): ("T", _PAIR, "return b == 0 ? 0 : (T) (a / b);"),
    ("floor_divide", "float"): ("T", _PAIR, """\
if (b == 0) return a / b;
const T rest = fmod{f}(a, b);
const T quotient = (a - rest) / b - (rest != 0 && (b < 0) != (rest < 0) ? 1 : 0);
if (quotient == 0) return copysign{f}(0, a / b);
const T floored = floor{f}(quotient);
return quotient - floored > (T) 0.5 ? floored + 1 : floored;
"""),
    ("modulo", "signed"): ("T", _PAIR, """\
const T rest = b == 0 || b == -1 ? 0 : (T) (a % b);
return (T) (rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest);
"""),
    ("modulo", "unsigned"): ("T", _PAIR, "return b == 0 ? 0 : (T) (a % b);"),
    ("modulo", "float"): ("T", _PAIR, """\
const T rest = fmod{f}(a, b);
if (rest == 0) return copysign{f}(0, b);
return (b < 0) != (rest < 0) ? rest + b : rest;
"""),
    ("power", "signed"): ("T", _PAIR, f"""\
if (b < 0) return a == 1 ? 1 : a == -1 ? (b & 1 ? -1 : 1) : 0;
{_POWER}"""),
    ("power", "unsigned"): ("T", _PAIR, _POWER),
    ("power", "float"): ("T", _PAIR, "return pow{f}(a, b);"),
    ("shift_left", "signed"): ("T", _PAIR, "return (uint64_t) b < BITS ? (T) ((uint64_t) a << b) : 0;"),
    ("shift_left", "unsigned"): ("T", _PAIR, "return (uint64_t) b < BITS ? (T) ((uint64_t) a << b) : 0;"),
    ("shift_right", "signed"): ("T", _PAIR, "return (T) (a >> ((uint64_t) b < BITS ? b : BITS - 1));"),
    ("shift_right", "unsigned"): ("T", _PAIR, "return (uint64_t) b < BITS ? (T) (a >> b) : 0;"),
    ("max", "signed"): ("T", _PAIR, "return a > b ? a : b;"),
    ("max", "unsigned"): ("T", _PAIR, "return a > b ? a : b;"),
    ("max", "float"): ("T", _PAIR, "return a > b || a != a ? a : b;"),
    ("min", "signed"): ("T", _PAIR, "return a < b ? a : b;"),
    ("min", "unsigned"): ("T", _PAIR, "return a < b ? a : b;"),
    ("min", "float"): ("T", _PAIR, "return a < b || a != a ? a : b;"),
    ("to_int32", "float"): ("int32_t", "T x", "return x >= -(T) 0x1p31 && x < (T) 0x1p31 ? (int32_t) x : INT32_MIN;"),
    ("to_int64", "float"): ("int64_t", "T x", "return x >= -(T) 0x1p63 && x < (T) 0x1p63 ? (int64_t) x : INT64_MIN;"),
    ("to_uint64", "float"): ("uint64_t", "T x", """\
if (x >= (T) 0x1p63) return x < (T) 0x1p64 ? (uint64_t) x : 0;
return x >= -(T) 0x1p63 ? (uint64_t) (int64_t) x : (uint64_t) INT64_MIN;
"""),
}  # fmt: skip
"""Result type, parameters and body of each helper, for floats, signed and unsigned integers; T is the type of operands.

Division by zero gives 0, the lowest integer divided by -1 wraps, and a shift by the width or more leaves nothing but the
sign. Conversions of what does not fit give what x86 does."""

OPERATOR_HELPERS = {
    "/": "divide", "rem": "remainder", "//": "floor_divide", "%": "modulo", "**": "power", "<<": "shift_left",
    ">>": "shift_right", "max": "max", "min": "min",
}  # fmt: skip
"""The helper that computes an operator where C's own is not defined for every operand, or has none."""

BITS = """\
static inline float graphc_float_of(uint32_t bits) {
    float result;
    memcpy(&result, &bits, sizeof(result));
    return result;
}

static inline uint32_t graphc_bits_of(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof(bits));
    return bits;
}
"""

FLOAT16 = """\
typedef uint16_t graphc_f16;

static inline float graphc_from_f16(graphc_f16 x) {
    // Exponent and mantissa move to where float has them; the exponents' biases differ by 112.
    const float size = graphc_float_of((uint32_t) (x & 0x7fff) << 13) * 0x1p112f;
    const uint32_t infinite = (x & 0x7c00) == 0x7c00 ? 0x7f800000 : 0;
    return graphc_float_of(graphc_bits_of(size) | infinite | (uint32_t) (x & 0x8000) << 16);
}

// To nearest, ties to even.
static inline graphc_f16 graphc_to_f16_float(float x) {
    const float size = fabsf(x);
    const uint32_t bits = graphc_bits_of(size), sign = graphc_bits_of(x) >> 16 & 0x8000;
    const uint32_t normal = ((bits + 0xfff + (bits >> 13 & 1)) >> 13) - (112 << 10);
    const uint32_t tiny = graphc_bits_of(size + 0.5f) - 0x3f000000;  // floats at 0.5 have the steps of the smallest halves
    const uint32_t huge = size == size ? 0x7c00 : 0x7e00;
    return (graphc_f16) (sign | (size < 0x1p-14f ? tiny : size < 65520.0f ? normal : huge));
}

// To nearest, ties to even.
static inline graphc_f16 graphc_to_f16_double(double x) {
    const double size = fabs(x);
    const uint16_t sign = signbit(x) ? 0x8000 : 0;
    if (size < 0x1p-14) return sign | (uint16_t) rint(size * 0x1p24);
    if (!(size < 65520.0)) return sign | (size == size ? 0x7c00 : 0x7e00);
    int exponent;
    const double mantissa = rint(frexp(size, &exponent) * 2048.0);
    return sign | (uint16_t) (((exponent + 13) << 10) + (int) mantissa);
}
"""

BFLOAT16 = """\
typedef uint16_t graphc_bf16;

static inline float graphc_from_bf16(graphc_bf16 x) {
    return graphc_float_of((uint32_t) x << 16);
}

// To nearest, ties to even.
static inline graphc_bf16 graphc_to_bf16_float(float x) {
    const uint32_t bits = graphc_bits_of(x);
    return (graphc_bf16) (x != x ? bits >> 16 | 0x40 : (bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
"""

NARROW_TYPES = {F16: FLOAT16, BF16: BFLOAT16}
"""What defines the narrow floating-point types."""

NARROW_NAMES = {F16: "f16", BF16: "bf16"}
