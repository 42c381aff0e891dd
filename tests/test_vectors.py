"""Interpreted kernels are the compiled ones, bit by bit: every operator and type, drawn expressions, sizes near a block's."""

from __future__ import annotations

import ctypes
import zlib
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from draws import DRAWS
from loops import Body, Fault, loop, run
from test_elements import SAMPLES, drawn

from graphc.errors import GraphcError, InputError
from graphc.ir.types import BF16, BOOL, F16, F32, F64, FLOATS, I8, I32, I64, INTEGERS, U8
from graphc.kernels.c.routine import routine_of
from graphc.kernels.scalar import COMPARISONS, OPERATORS, Kernel, Scalar, make
from graphc.kernels.use import KernelUse
from graphc.kernels.vectors.code import BLOCK
from graphc.shapes import symbol
from graphc.targets.ggml.run import kernels
from graphc.targets.ggml.run.interpreted import InterpretedKernel
from graphc.targets.ggml.run.kernels import kernels_by, load_kernels
from graphc.targets.ggml.run.native_kernels import NativeKernel
from graphc.targets.ggml.run.numpy_kernels import EvaluatedKernel

ALL = sorted(FLOATS | INTEGERS | {BOOL}, key=str)
EDGES = (0, 1, 2, 255, 256, 257, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK, 3 * BLOCK + 7)


def numbers(random: np.random.Generator, dtype: np.dtype, shape: Sequence[int]) -> np.ndarray:
    """Numbers of a type, with its ends and special ones among them."""
    if dtype == BOOL:
        return random.random(shape) < 0.5
    if dtype in FLOATS:
        usual = random.standard_normal(shape) * random.choice([1e-3, 1.0, 50.0], shape)
        special = random.choice(np.array([0.0, -0.0, 1.0, np.inf, -np.inf, np.nan, 7e4, 1e10, -3e19]), shape)
        with np.errstate(all="ignore"):
            return np.where(random.random(shape) < 0.1, special, usual).astype(dtype)
    limits = np.iinfo(dtype)
    ends = random.choice(np.array([limits.min, limits.max, 0, 1, 2], dtype), shape)
    small = random.integers(max(limits.min, -99), 99, shape).astype(dtype)
    return np.where(random.random(shape) < 0.2, ends, small)


def canonical(array: np.ndarray) -> bytes:
    """Its bytes, with one NaN for all: which of two a sum has is nobody's promise."""
    if array.dtype in FLOATS:
        array = np.where(np.isnan(array), array.dtype.type(np.nan), array)
    return array.tobytes()


def agree(uses: Sequence[KernelUse], arrays: Sequence[Sequence[np.ndarray]], threads: Sequence[int] = (2,)) -> None:
    """Both ways give the same bits, or the same fault, with any number of threads."""
    interpreted, native = kernels_by("interpreted", uses), kernels_by("compiled", uses)
    for number, (use, inputs) in enumerate(zip(uses, arrays, strict=True)):
        assert isinstance(interpreted[number], InterpretedKernel)
        try:
            expected = run(native[number], use, inputs, {})
        except Fault as fault:
            for count in threads:
                with pytest.raises(Fault, match=str(fault)):
                    run(interpreted[number], use, inputs, {}, count)
            continue
        for count in threads:
            found = run(interpreted[number], use, inputs, {}, count)
            if canonical(found) != canonical(expected):
                places = np.flatnonzero(found.ravel() != expected.ravel())
                raise AssertionError(f"kernel {number}, {use}: not the same at {places[:8]} of {found.size}")


@pytest.mark.parametrize("name", DRAWS)
def test_every_operator_is_the_compiled_one(name: str) -> None:
    samples = [(use, arrays) for d, use, arrays in (drawn(name, 20 + sample, False) for sample in range(SAMPLES))]
    samples = [(use, arrays) for use, arrays in samples if routine_of(use) is None]
    agree([use for use, _ in samples], [arrays for _, arrays in samples], (1, 3))


@pytest.mark.parametrize("dtype", ALL, ids=str)
def test_every_operator_of_scalars(dtype: np.dtype) -> None:
    random = np.random.default_rng(zlib.crc32(str(dtype).encode()))
    logical = {"and", "or", "not"} if dtype == BOOL else set()
    whole = {"&", "|", "^", "<<", ">>", "~"} if dtype in INTEGERS else {"~"} if dtype == BOOL else set()
    usual = OPERATORS - {"and", "or", "not", "&", "|", "^", "<<", ">>", "~"}
    if dtype == BOOL:
        usual = {"+", "*", "max", "min", *COMPARISONS}
    bodies: list[tuple[Body, np.dtype]] = []
    for operator in sorted(usual | logical | whole):
        if operator in ("neg", "~", "not"):
            bodies.append((lambda k, i, o=operator: make("operate", dtype, (k.load(0, i),), o), dtype))
            continue
        gives = BOOL if operator in COMPARISONS else dtype
        bodies.append((lambda k, i, o=operator, g=gives: make("operate", g, (k.load(0, i), k.load(1, i)), o), gives))
    bodies += [(lambda k, i, t=target: k.cast(k.load(0, i), t), target) for target in ALL]
    bodies.append((lambda k, i: k.select(k.load(2, i), k.load(0, i), k.load(1, i)), dtype))
    shape = (BLOCK + 13,)
    arrays = [numbers(random, dtype, shape), numbers(random, dtype, shape), numbers(random, BOOL, shape)]
    uses = [loop(body, gives, shape, *arrays) for body, gives in bodies]
    agree(uses, [arrays] * len(uses))


class Drawn:
    """An expression of one element that is drawn: loads at plain, guarded and required indices, arithmetic, casts, choices and
    reductions."""

    SOME = (F32, F64, F16, BF16, I8, U8, I32, I64, BOOL)

    def __init__(self, random: np.random.Generator, k: Kernel, index: Sequence[Scalar], shape: Sequence[int]) -> None:
        self.random, self.k, self.index, self.shape = random, k, list(index), shape
        self.types = [type.dtype for type in k.inputs]

    def of(self, dtype: np.dtype, depth: int) -> Scalar:
        """An expression of a type."""
        kinds = (
            [self.load, self.cast] if depth == 0 else [self.load, self.cast, self.operate, self.operate, self.select]
        )
        kinds += [self.reduce, self.call, self.require] if depth > 1 else []
        return kinds[self.random.integers(len(kinds))](dtype, depth)

    def place(self, axis: int, inner: Scalar | None) -> Scalar:
        at = self.index[axis] if inner is None or self.random.random() < 0.5 else inner % max(self.shape[axis], 1)
        size = self.shape[axis]
        return [at, size - 1 - at, at * 0 + 0, at // 2, (at + 3) % max(size, 1)][self.random.integers(5)]

    def load(self, dtype: np.dtype, depth: int, inner: Scalar | None = None) -> Scalar:
        if dtype not in self.types:
            return self.k.cast(self.load(self.types[0], depth, inner), dtype)
        number = self.types.index(dtype)
        at = [self.place(axis, inner) for axis in range(len(self.shape))]
        if self.random.random() < 0.3:  # an index that is good only where a condition holds
            moved = [*at[:-1], at[-1] + 2]
            inside = (moved[-1] >= 0).and_(moved[-1] < self.shape[-1])
            return self.k.select(inside, self.k.load(number, moved), self.k.const(1, dtype))
        return self.k.load(number, at)

    def cast(self, dtype: np.dtype, depth: int) -> Scalar:
        source = self.SOME[self.random.integers(len(self.SOME))]
        return self.k.cast(self.of(source, depth - 1) if depth else self.load(source, 0), dtype)

    def operate(self, dtype: np.dtype, depth: int) -> Scalar:
        a, b = self.of(dtype, depth - 1), self.of(dtype, depth - 1)
        if dtype == BOOL:
            first = self.SOME[self.random.integers(len(self.SOME))]
            less = self.of(first, depth - 1) < self.of(first, depth - 1)
            return [a.and_(b), a.or_(b), a.not_(), less][self.random.integers(4)]
        choices = [a + b, a - b, a * b, a / b, a // b, a % b, a.remainder(b), a.maximum(b), a.minimum(b), -a]
        choices += [a & b, a | b, a ^ b, a << b, a >> b, ~a] if dtype in INTEGERS else []
        return choices[self.random.integers(len(choices))]

    def select(self, dtype: np.dtype, depth: int) -> Scalar:
        return self.k.select(self.of(BOOL, depth - 1), self.of(dtype, depth - 1), self.of(dtype, depth - 1))

    def call(self, dtype: np.dtype, depth: int) -> Scalar:
        if dtype not in FLOATS:
            return self.operate(dtype, depth)
        name = ("exp", "rint", "sqrt", "fabs", "tanh", "({0} / (1 + exp{f}(-{0})))")[self.random.integers(6)]
        return self.k.call(name, self.of(dtype, depth - 1))

    def require(self, dtype: np.dtype, depth: int) -> Scalar:
        found = self.of(I64, depth - 1) % max(self.shape[-1], 1)
        at = self.k.require(found >= 0, found, "below")
        row = [self.k.const(0, I64)] * (len(self.shape) - 1)
        number = self.types.index(dtype) if dtype in self.types else 0
        return self.k.cast(self.k.load(number, [*row, at]), dtype)

    def reduce(self, dtype: np.dtype, depth: int) -> Scalar:
        kind = ("sum", "prod", "max", "min")[self.random.integers(4)]
        extents = self.random.choice([0, 1, 2, 2, 3, 3, 7, 7, 40, 40, 300], self.random.integers(1, 3)).tolist()
        other = self.of(dtype, depth - 1)

        def body(at: tuple[Scalar, ...]) -> Scalar:
            value = self.load(dtype, 0, at[-1] + at[0])
            return self.k.select(at[0] < self.index[-1], value, other) if depth > 2 else value

        return self.k.reduce(kind, extents, body) if dtype != BOOL else self.k.reduce("max", extents, body)


SHAPES = ((7,), (BLOCK,), (BLOCK + 1,), (3, 5), (40, 3), (2, BLOCK + 3), (3, 4, 5), (130, 1, 9), (1, 1), (0, 3))


@pytest.mark.parametrize("seed", range(12))
def test_drawn_expressions(seed: int) -> None:
    uses, arrays = [], []
    for number, shape in enumerate(SHAPES):
        random = np.random.default_rng([seed, number])
        types = list(random.permutation(np.array(Drawn.SOME, object))[:4])
        dtype = Drawn.SOME[random.integers(len(Drawn.SOME))]
        inputs = [numbers(random, each, shape) for each in types]
        depth = int(random.integers(1, 4))

        def body(k: Kernel, i: Sequence[Scalar], place=(seed, number, shape, dtype, depth)) -> Scalar:
            drawn_ = Drawn(np.random.default_rng([place[0], place[1], 1]), k, i, place[2])
            return drawn_.of(place[3], place[4])

        uses.append(loop(body, dtype, shape, *inputs))
        arrays.append(inputs)
    agree(uses, arrays, (1, 3))


@pytest.mark.parametrize("size", EDGES)
def test_sizes_around_blocks(size: int) -> None:
    random = np.random.default_rng(size)
    x, row = numbers(random, F32, (3, size)), numbers(random, F32, (size,))
    turned = numbers(random, F32, (size, 3))
    bodies: list[Body] = [
        lambda k, i: k.load(0, i) + k.load(1, [i[1]]) * 2,
        lambda k, i: k.load(0, i) - k.load(2, [i[1], i[0]]),
        lambda k, i: k.select((i[1] < 5).or_(i[1] >= 300), k.load(0, i), k.load(0, [i[0], size - 1 - i[1]])),
        lambda k, i: k.load(0, i) * k.reduce("sum", [size], lambda at: k.load(0, [i[0], at[0]])),
        lambda k, i: k.load(0, i) * k.reduce("max", [3], lambda at: k.load(0, [at[0], i[1]])),
    ]
    uses = [loop(body, F32, (3, size), x, row, turned) for body in bodies]
    agree(uses, [[x, row, turned]] * len(uses), (1, 2, 5))


def test_sizes_that_are_known_when_it_runs() -> None:
    n, m = symbol("n"), symbol("m", low=0)
    body: Body = lambda k, i: k.load(0, [i[1], i[0]]) + k.cast(i[1] * (n + m) // 2 % n, F32)  # noqa: E731
    use = loop(body, F32, (m, n), (F32, (n, m)))
    kernel, native = (kernels_by(way, [use])[0] for way in ("interpreted", "compiled"))
    for sizes in ((4, 5), (1, 1), (7, 200), (2, 0), (700, 3)):
        binding = dict(zip("nm", sizes, strict=True))
        x = np.random.default_rng(0).standard_normal(sizes).astype(F32)
        assert canonical(run(kernel, use, [x], binding, 3)) == canonical(run(native, use, [x], binding))


def test_the_environment_chooses(monkeypatch: pytest.MonkeyPatch) -> None:
    use = loop(lambda k, i: k.load(0, i) * 2, F32, (5,), (F32, (5,)))
    for way, kind in (("interpreted", InterpretedKernel), ("evaluated", EvaluatedKernel), ("compiled", NativeKernel)):
        monkeypatch.setenv("GRAPHC_KERNELS", way)
        assert isinstance(load_kernels([use])[0], kind)
    monkeypatch.setenv("GRAPHC_KERNELS", "quickly")
    with pytest.raises(InputError, match="GRAPHC_KERNELS is 'quickly', must be compiled or interpreted or evaluated"):
        load_kernels([use])


@pytest.mark.parametrize(("wheel", "expected"), [(True, InterpretedKernel), (False, NativeKernel)])
def test_in_a_wheel_no_compiler_is_started_for_few_elements(
    monkeypatch: pytest.MonkeyPatch, wheel: bool, expected: type
) -> None:
    """Elsewhere one was started already, for our own code."""
    monkeypatch.delenv(kernels.SETTING, raising=False)
    monkeypatch.setattr(kernels, "loaded", replace(kernels.loaded, own=ctypes.CDLL(None) if wheel else None))
    sizes = {kernels.SMALL // 2: expected, kernels.SMALL // 2 + 1: NativeKernel, symbol("n"): NativeKernel}
    for size, kind in sizes.items():
        use = loop(lambda k, i: k.load(0, i) * 2, F32, (size,), (F32, (size,)))
        assert isinstance(load_kernels([use])[0], kind)


def test_a_function_that_the_interpreter_lacks_is_named() -> None:
    use = loop(lambda k, i: k.call("lgamma", k.load(0, i)), F32, (5,), (F32, (5,)))
    with pytest.raises(GraphcError, match="the interpreter of kernels has no lgamma_f32"):
        kernels_by("interpreted", [use])
