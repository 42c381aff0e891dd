"""Numbers in SPIR-V as `evaluate.py` defines them: what operators give for every operand, conversions, and how numbers lie in
words of memory.

In registers, narrow floats are floats of 32 bits, small integers have 32 bits (and the value that their type can hold), and bools
are what SPIR-V calls so. In memory, bfloat16 is an integer of 16 bits, and a bool one of 8.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from graphc.ir.types import BF16, BOOL, F16, F32, F64, FLOATS
from graphc.kernels.gpu.render.spirv_module import Block, Module

Kind = Literal["bool", "i32", "i64", "f32", "f64"]
"""What a value is in registers."""

FLOAT_OPERATORS = {
    "+": "FAdd", "-": "FSub", "*": "FMul", "/": "FDiv", "neg": "FNegate", "<": "FOrdLessThan", "<=": "FOrdLessThanEqual",
    ">": "FOrdGreaterThan", ">=": "FOrdGreaterThanEqual", "==": "FOrdEqual", "!=": "FUnordNotEqual",
}  # fmt: skip
BOOL_OPERATORS = {
    "+": "LogicalOr", "*": "LogicalAnd", "max": "LogicalOr", "min": "LogicalAnd", "|": "LogicalOr", "&": "LogicalAnd",
    "^": "LogicalNotEqual", "==": "LogicalEqual", "!=": "LogicalNotEqual", "not": "LogicalNot", "~": "LogicalNot",
}  # fmt: skip
INTEGER_OPERATORS = {
    "+": "IAdd", "-": "ISub", "*": "IMul", "&": "BitwiseAnd", "|": "BitwiseOr", "^": "BitwiseXor", "neg": "SNegate", "~": "Not",
    "==": "IEqual", "!=": "INotEqual",
}  # fmt: skip
ORDER = {"<": "LessThan", "<=": "LessThanEqual", ">": "GreaterThan", ">=": "GreaterThanEqual"}
EXACT = {"FAdd", "FSub", "FMul", "FDiv"}
COMPARISONS = {*ORDER, "==", "!="}


def kind_in_registers(dtype: np.dtype) -> Kind:
    """What an element of a type is in registers."""
    if dtype == BOOL:
        return "bool"
    if dtype in FLOATS:
        return "f64" if dtype == F64 else "f32"
    return "i64" if dtype.itemsize == 8 else "i32"


class Numbers:
    """Instructions that compute with numbers, in `block`, the block at hand."""

    def __init__(self, module: Module, block: Block) -> None:
        self.module, self.block = module, block

    def type(self, kind: Kind) -> int:
        """The type of a value in registers."""
        if kind == "bool":
            return self.module.truth_value()
        return (self.module.real if kind[0] == "f" else self.module.integer)(int(kind[1:]))

    def constant(self, value: float, kind: Kind) -> int:
        """A number of a kind."""
        if kind == "bool":
            return self.module.truth(bool(value))
        if kind[0] == "f":
            return self.module.float(float(value), int(kind[1:]))
        return self.module.number(int(value), int(kind[1:]))

    def make(self, kind: Kind, operation: str, *operands: int) -> int:
        """An instruction that gives a value of a kind. Arithmetic is done as it is written: functions rely on what it rounds."""
        found = self.block.make(operation, self.type(kind), *operands)
        if operation in EXACT:
            self.module.decorate(found, "NoContraction")
        return found

    def i32(self, operation: str, value: int, by: int) -> int:
        """An operation of a word and a number."""
        return self.make("i32", operation, value, self.module.number(by))

    def choice(self, kind: Kind, condition: int, first: int, second: int) -> int:
        """One of two values that both are computed."""
        return self.make(kind, "Select", condition, first, second)

    # Operators

    def operator(self, name: str, dtype: np.dtype, kind: Kind, operands: Sequence[int]) -> int:
        """An operator of numbers of one type."""
        if kind == "bool":
            if name in BOOL_OPERATORS:
                return self.make("bool", BOOL_OPERATORS[name], *operands)
            as_numbers = [
                self.choice("i32", each, self.constant(1, "i32"), self.constant(0, "i32")) for each in operands
            ]
            return self.make("bool", f"U{ORDER[name]}", *as_numbers)
        if kind[0] == "f":
            return self.of_floats(name, kind, operands)
        return self.of_integers(name, dtype, kind, operands)

    def of_floats(self, name: str, kind: Kind, operands: Sequence[int]) -> int:
        """An operator of floats."""
        if name in FLOAT_OPERATORS:
            return self.make("bool" if name in COMPARISONS else kind, FLOAT_OPERATORS[name], *operands)
        a, b = operands
        if name in ("max", "min"):
            better = self.make("bool", "FOrdGreaterThan" if name == "max" else "FOrdLessThan", a, b)
            first = self.make("bool", "LogicalOr", better, self.make("bool", "IsNan", a))
            return self.choice(kind, first, a, b)
        raise KeyError(name)

    def of_integers(self, name: str, dtype: np.dtype, kind: Kind, operands: Sequence[int]) -> int:
        """An operator of integers, which wrap around."""
        sign = "U" if dtype.kind == "u" else "S"
        if name in ORDER:
            return self.make("bool", sign + ORDER[name], *operands)
        if name in COMPARISONS:
            return self.make("bool", INTEGER_OPERATORS[name], *operands)
        if name in INTEGER_OPERATORS:
            return self.wrapped(self.make(kind, INTEGER_OPERATORS[name], *operands), dtype)
        a, b = operands
        if name in ("max", "min"):
            return self.choice(kind, self.make("bool", sign + ORDER[">" if name == "max" else "<"], a, b), a, b)
        if name in ("<<", ">>"):
            return self.shift(name, dtype, kind, a, b)
        if name == "**":
            return self.integer_power(dtype, kind, a, b)
        return self.wrapped(self.division(name, dtype, kind, a, b), dtype)

    def wrapped(self, value: int, dtype: np.dtype) -> int:
        """What an integer's type can hold of a value of 32 bits."""
        bits = 8 * dtype.itemsize
        if bits >= 32:
            return value
        if dtype.kind == "u":
            return self.i32("BitwiseAnd", value, (1 << bits) - 1)
        return self.i32("ShiftRightArithmetic", self.i32("ShiftLeftLogical", value, 32 - bits), 32 - bits)

    def division(self, name: str, dtype: np.dtype, kind: Kind, a: int, b: int) -> int:
        """`/` and `rem` toward zero, `//` and `%` down; what is divided by 0 is 0."""
        zero, one = self.constant(0, kind), self.constant(1, kind)
        by_zero = self.make("bool", "IEqual", b, zero)
        if dtype.kind == "u":
            safe = self.choice(kind, by_zero, one, b)
            return self.choice(kind, by_zero, zero, self.make(kind, "UDiv" if name in ("/", "//") else "UMod", a, safe))
        by_minus = self.make("bool", "IEqual", b, self.constant(-1, kind))
        safe = self.choice(kind, self.make("bool", "LogicalOr", by_zero, by_minus), one, b)
        whole = self.make(kind, "SDiv", a, safe)
        rest = self.make(kind, "ISub", a, self.make(kind, "IMul", whole, safe))
        rest = self.choice(kind, by_minus, zero, rest)
        whole = self.choice(kind, by_minus, self.make(kind, "SNegate", a), whole)
        if name in ("//", "%"):
            apart = self.make("bool", "SLessThan", self.make(kind, "BitwiseXor", rest, b), zero)
            down = self.make("bool", "LogicalAnd", apart, self.make("bool", "INotEqual", rest, zero))
            whole = self.choice(kind, down, self.make(kind, "ISub", whole, one), whole)
            rest = self.choice(kind, down, self.make(kind, "IAdd", rest, b), rest)
        return self.choice(kind, by_zero, zero, whole if name in ("/", "//") else rest)

    def shift(self, name: str, dtype: np.dtype, kind: Kind, a: int, b: int) -> int:
        """A shift; by the width or more, or less than 0, it gives 0 or the sign."""
        bits = 8 * dtype.itemsize
        inside = self.make("bool", "ULessThan", b, self.constant(bits, kind))
        if name == "<<":
            safe = self.choice(kind, inside, b, self.constant(0, kind))
            found = self.wrapped(self.make(kind, "ShiftLeftLogical", a, safe), dtype)
            return self.choice(kind, inside, found, self.constant(0, kind))
        if dtype.kind == "u":
            safe = self.choice(kind, inside, b, self.constant(0, kind))
            return self.choice(kind, inside, self.make(kind, "ShiftRightLogical", a, safe), self.constant(0, kind))
        safe = self.choice(kind, inside, b, self.constant(bits - 1, kind))
        return self.make(kind, "ShiftRightArithmetic", a, safe)

    def integer_power(self, dtype: np.dtype, kind: Kind, a: int, b: int) -> int:
        """A power, bit by bit of the exponent; one below 0 leaves something of 1 and -1 alone."""
        zero, one, minus = (self.constant(each, kind) for each in (0, 1, -1))
        found, square = one, a
        odd = first_odd = self.make("bool", "INotEqual", self.make(kind, "BitwiseAnd", b, one), zero)
        for bit in range(8 * dtype.itemsize - (dtype.kind == "i")):
            if bit:
                mask = self.constant(1 << bit, kind)
                odd = self.make("bool", "INotEqual", self.make(kind, "BitwiseAnd", b, mask), zero)
            found = self.choice(kind, odd, self.make(kind, "IMul", found, square), found)
            square = self.make(kind, "IMul", square, square)
        found = self.wrapped(found, dtype)
        if dtype.kind == "u":
            return found
        is_one, is_minus = (self.make("bool", "IEqual", a, each) for each in (one, minus))
        below = self.choice(kind, is_minus, self.choice(kind, first_odd, minus, one), zero)
        below = self.choice(kind, is_one, one, below)
        return self.choice(kind, self.make("bool", "SLessThan", b, zero), below, found)

    def divided(self, name: str, number: int, by: int) -> int:
        """The quotient or the rest of a division by a size: see `Divisor` in the dialect."""
        pair = self.module.declared("TypeStruct", self.type("i32"), self.type("i32"))
        twice = self.i32("ShiftLeftLogical", number, 1)
        product = self.block.make("UMulExtended", pair, twice, by + 1)
        high = self.make("i32", "CompositeExtract", product, 1)
        whole = self.make("i32", "ShiftRightLogical", high, by + 2)
        return whole if name == "//" else self.make("i32", "ISub", number, self.make("i32", "IMul", whole, by))

    # Conversions

    def cast(self, value: int, kind: Kind, source: np.dtype, target: np.dtype) -> int:
        """A number in another type, with the value that this type can hold."""
        if target == BOOL:
            if kind == "bool":
                return value
            return self.make("bool", "FUnordNotEqual" if kind[0] == "f" else "INotEqual", value, self.constant(0, kind))
        wanted = kind_in_registers(target)
        if kind == "bool":
            return self.choice(wanted, value, self.constant(1, wanted), self.constant(0, wanted))
        if target in FLOATS:
            if kind[0] == "i":
                value = self.make(wanted, "ConvertUToF" if source.kind == "u" else "ConvertSToF", value)
            elif kind != wanted:
                if target == F16:
                    return self.widened(self.narrowed(value, F16), F16)
                value = self.make(wanted, "FConvert", value)
            return self.widened(self.narrowed(value, target), target) if target in (F16, BF16) else value
        if kind[0] == "f":
            value, kind = self.truncated(value, kind, target)
        if kind != wanted:
            value = self.make(wanted, "UConvert" if source.kind == "u" else "SConvert", value)
        return self.wrapped(value, target)

    def truncated(self, value: int, kind: Kind, target: np.dtype) -> tuple[int, Kind]:
        """A float toward zero, as x86 does it: what does not fit is the lowest number."""
        wide = target.itemsize == 8 or target == np.uint32
        found: Kind = "i64" if wide else "i32"
        top = 2.0 ** (63 if wide else 31)

        def signed(number: int) -> int:
            above = self.make("bool", "FOrdGreaterThanEqual", number, self.constant(-top, kind))
            fits = self.make(
                "bool", "LogicalAnd", above, self.make("bool", "FOrdLessThan", number, self.constant(top, kind))
            )
            safe = self.choice(kind, fits, number, self.constant(0, kind))
            return self.choice(found, fits, self.make(found, "ConvertFToS", safe), self.constant(-int(top), found))

        if target != np.uint64:
            return signed(value), found
        upper = self.make("bool", "FOrdGreaterThanEqual", value, self.constant(top, kind))
        high = signed(self.make(kind, "FSub", value, self.constant(top, kind)))
        flipped = self.make(found, "BitwiseXor", high, self.constant(-int(top), found))
        return self.choice(found, upper, flipped, signed(value)), found

    def bits(self, value: int) -> int:
        """A float's bits."""
        return self.make("i32", "Bitcast", value)

    def narrowed(self, value: int, dtype: np.dtype) -> int:
        """A narrow float as it is in memory, of a float of 32 bits."""
        if dtype == F16:
            return self.block.make("FConvert", self.module.real(16), value)
        whole, is_nan = self.bits(value), self.make("bool", "IsNan", value)
        odd = self.i32("BitwiseAnd", self.i32("ShiftRightLogical", whole, 16), 1)
        up = self.make("i32", "IAdd", self.i32("IAdd", whole, 0x7FFF), odd)
        kept = self.choice("i32", is_nan, self.i32("BitwiseOr", whole, 0x400000), up)
        return self.i32("ShiftRightLogical", kept, 16)

    def widened(self, value: int, dtype: np.dtype) -> int:
        """The other way."""
        if dtype == F16:
            return self.make("f32", "FConvert", value)
        return self.make("f32", "Bitcast", self.i32("ShiftLeftLogical", value, 16))

    # Words of memory

    def unpacked(self, words: Sequence[int], dtype: np.dtype) -> list[int]:
        """The numbers that lie in words, or in one smaller integer that is a number alone, widened to a word."""
        size = dtype.itemsize
        if size == 8:
            pair = self.module.vector(self.type("i32"), 2)
            kind = kind_in_registers(dtype)
            pairs = zip(words[::2], words[1::2], strict=True)
            return [self.make(kind, "Bitcast", self.block.make("CompositeConstruct", pair, *each)) for each in pairs]
        if size == 4:
            return [self.make("f32", "Bitcast", each) if dtype == F32 else each for each in words]
        parts = [
            self.i32("ShiftRightLogical", word, shift) if shift else word
            for word in words
            for shift in range(0, 32, 8 * size)
        ]
        return [self.unpacked_small(part, dtype) for part in parts]

    def unpacked_small(self, part: int, dtype: np.dtype) -> int:
        """The number in the lowest bits of a word."""
        if dtype == F16:
            half = self.module.vector(self.module.real(16), 2)
            pair = self.block.make("Bitcast", half, part)
            return self.widened(self.block.make("CompositeExtract", self.module.real(16), pair, 0), F16)
        if dtype == BF16:
            return self.widened(part, BF16)
        if dtype == BOOL:
            return self.make("bool", "INotEqual", self.i32("BitwiseAnd", part, 0xFF), self.module.number(0))
        return self.wrapped(part, dtype)

    def packed(self, values: Sequence[int], dtype: np.dtype) -> list[int]:
        """Numbers as words; one small number is the lowest bits of a word."""
        size = dtype.itemsize
        if size == 8:
            pair, found = self.module.vector(self.type("i32"), 2), []
            for value in values:
                both = self.block.make("Bitcast", pair, value)
                found += [self.make("i32", "CompositeExtract", both, half) for half in range(2)]
            return found
        if size == 4:
            return [self.bits(each) if dtype == F32 else each for each in values]
        each, found = 4 // size, []
        for first in range(0, len(values), each):
            word = None
            for place, value in enumerate(values[first : first + each]):
                part = self.packed_small(value, dtype)
                part = self.i32("ShiftLeftLogical", part, 8 * size * place) if place else part
                word = part if word is None else self.make("i32", "BitwiseOr", word, part)
            assert word is not None
            found.append(word)
        return found

    def packed_small(self, value: int, dtype: np.dtype) -> int:
        """A number in the lowest bits of a word, with nothing above them."""
        if dtype == F16:
            half = self.module.real(16)
            zero = self.module.declared("Constant", 0, type=half)
            pair = self.block.make("CompositeConstruct", self.module.vector(half, 2), self.narrowed(value, F16), zero)
            return self.bits(pair)
        if dtype == BF16:
            return self.narrowed(value, BF16)
        if dtype == BOOL:
            return self.choice("i32", value, self.module.number(1), self.module.number(0))
        return value if dtype.kind == "u" else self.i32("BitwiseAnd", value, (1 << 8 * dtype.itemsize) - 1)
