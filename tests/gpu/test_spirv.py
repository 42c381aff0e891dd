"""Tile kernels as SPIR-V, on Mesa's software device: the interpreter's numbers, valid modules, and a silent validation layer."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from typing import Any

import lavapipe
import numpy as np
import pytest
import test_pointwise_kernels
import test_weights_in_blocks
from exported_models import engine_of
from test_attention_kernel import attended
from test_contraction import STEP, drawn, product
from test_elements import agree
from test_elements import drawn as drawn_use
from tile_runs import empty, steps_of

from graphc.errors import GraphcError
from graphc.ir import TensorType
from graphc.ir.interp import bound
from graphc.ir.types import BOOL, F16, F32, F64, I64
from graphc.kernels.gpu.evaluate import FUNCTIONS
from graphc.kernels.gpu.forms import Spirv
from graphc.kernels.gpu.instructions import INSTRUCTIONS
from graphc.kernels.gpu.interpret import interpret
from graphc.kernels.gpu.launch import grid
from graphc.kernels.gpu.layout import spread
from graphc.kernels.gpu.render.spirv import Binary, render
from graphc.kernels.gpu.skeletons.attention_anywhere import attention_anywhere, tiling_for
from graphc.kernels.gpu.skeletons.contraction import Contraction
from graphc.kernels.gpu.skeletons.operands import matrix
from graphc.kernels.gpu.skeletons.pointwise import pointwise
from graphc.kernels.gpu.tile import Builder, TileKernel
from graphc.kernels.nest import Nest, nest
from graphc.kernels.scalar import Kernel, Scalar, make, variable
from graphc.shapes import integer, symbol
from graphc.targets.ggml.engine import read_engine
from graphc.targets.ggml.generate.generate import generated

K = Kernel(())
COUNT = 1000
"""Numbers that functions and operators are tried on."""


@pytest.fixture(scope="module", params=[256, 128, 512], ids=lambda width: f"{width // 32} lanes")
def every_device(request: pytest.FixtureRequest) -> Iterator[lavapipe.Vulkan]:
    yield from started(request.param)


@pytest.fixture(scope="module")
def device() -> Iterator[lavapipe.Vulkan]:
    yield from started(256)


def started(width: int) -> Iterator[lavapipe.Vulkan]:
    """A device with the validation layer, which must have nothing to say."""
    try:
        found = lavapipe.Vulkan(lavapipe.newer(), width, validate=True)
    except lavapipe.Missing as error:
        pytest.skip(str(error))
    yield found
    said = found.said()
    found.close()
    assert said == ""


def spirv(kernel: TileKernel, lanes: int) -> Binary:
    """A kernel, checked by SPIRV-Tools too."""
    binary = render(kernel, lanes, fused=False)
    libraries = lavapipe.newer()
    checker = [
        *lavapipe.loader(libraries),
        str(libraries.parents[1] / "bin/spirv-val"),
        "--target-env",
        "vulkan1.3",
        "-",
    ]
    found = subprocess.run(checker, input=binary.code, capture_output=True, check=False)
    assert found.returncode == 0, found.stderr.decode() + found.stdout.decode()
    return binary


def both_ways(
    device: lavapipe.Vulkan, steps: list[tuple[TileKernel, list[np.ndarray]]], symbols: dict[str, int]
) -> tuple[np.ndarray, np.ndarray]:
    """What the interpreter and the device write to the last array of the last step."""
    result = steps[-1][1][-1]
    empty(steps)
    for kernel, arrays in steps:
        interpret(kernel, arrays, symbols)
    interpreted = result.copy()
    empty(steps)
    device.run([(spirv(kernel, device.lanes), arrays) for kernel, arrays in steps], symbols)
    return interpreted, result


def multiplied(device: lavapipe.Vulkan, schedule: str, dtype: np.dtype, sizes: tuple[int, int, int, int]) -> None:
    """A product with a bias, SiLU and a residual on its way out."""
    rows, columns, channels, batch = sizes
    a, b = drawn((batch, rows, channels), dtype, 0), drawn((batch, columns, channels), dtype, 1)
    bias, residual = drawn((columns,), F32, 2), drawn((batch, rows, columns), dtype, 3)
    result = np.full((batch, rows, columns), np.nan, dtype)
    steps = steps_of(product(columns, channels, dtype, batch), schedule, [a, b, bias, residual, result], {"m": rows})
    interpreted, found = both_ways(device, steps, {"m": rows})
    limit = STEP[dtype] * float(np.abs(interpreted.astype(F64)).max())
    assert np.abs(interpreted.astype(F64) - found.astype(F64)).max() < limit


@pytest.mark.parametrize(
    ("tile", "dtype", "sizes"),
    [
        ("m32n32k16 w16x16 s3 z2", F32, (65, 40, 72, 2)),
        ("m32n32k16 w16x16 s2 z1", F32, (33, 7, 5, 1)),
        # Mesa compiles it for minutes, the longer the fewer lanes there are
        pytest.param("m32n32k32 w32x32 s2 z1", F32, (33, 7, 5, 1), marks=pytest.mark.thorough),
        ("m32n32k8 w32x16 s2 z1", F32, (1, 33, 16, 1)),
    ],
)
def test_products_one_by_one(
    every_device: lavapipe.Vulkan, tile: str, dtype: np.dtype, sizes: tuple[int, int, int, int]
) -> None:
    multiplied(every_device, f"{tile} fma_4x4_{every_device.lanes}lanes", dtype, sizes)


@pytest.mark.parametrize(
    ("tile", "sizes"),
    [
        ("m32n32k16 w16x16 s3 z2", (65, 40, 72, 2)),
        ("m32n32k16 w16x16 s2 z1", (33, 7, 5, 1)),
        ("m16n32k16 w16x16 s2 z1", (1, 8, 136, 1)),
        pytest.param(
            "m128n64k32 w64x32 s2 z1", (130, 72, 136, 1), marks=pytest.mark.thorough
        ),  # Mesa compiles it for a minute
        ("m64n32k32 w16x32 s2 z4", (65, 40, 520, 1)),
    ],
)
def test_products_of_cooperative_matrices(device: lavapipe.Vulkan, tile: str, sizes: tuple[int, int, int, int]) -> None:
    multiplied(device, f"{tile} coop_8x8x8_half_{device.lanes}lanes", F16, sizes)


@pytest.mark.parametrize("channels", [40, 37])
def test_sums_of_free_length(device: lavapipe.Vulkan, channels: int) -> None:
    """They are copied by 16 bytes where their length allows it."""
    rows, columns, free = 33, 40, symbol("channels")
    a, b, found = drawn((rows, channels), F16, 0), drawn((columns, channels), F16, 1), np.zeros((rows, columns), F32)
    what = Contraction(
        "product", rows, columns, free, matrix(F16, rows, free), matrix(F16, columns, free), F32, rows * columns,
        lambda batch, row, column: row * columns + column,
    )  # fmt: skip
    schedule = f"m32n32k16 w16x16 s2 z1 coop_8x8x8_half_{device.lanes}lanes"
    expected, found = both_ways(
        device, steps_of(what, schedule, [a, b, found], {"channels": channels}), {"channels": channels}
    )
    assert np.abs(expected - found).max() < 2e-6 * np.abs(expected).max()


def test_blocks_that_go_across(device: lavapipe.Vulkan) -> None:
    multiplied(device, f"m32n32k16 w16x16 s2 z1 coop_8x8x8_half_{device.lanes}lanes across", F16, (65, 72, 40, 2))


@pytest.mark.parametrize(
    ("instruction", "shared", "case"),
    [
        ("fma_4x4", 32 << 10, (2, 35, 40, 24, 16, True, 0.3)),
        ("coop_8x8x8_half", 32 << 10, (2, 35, 70, 40, 40, False, 0.3)),
        pytest.param("coop_8x8x8_half", 32 << 10, (1, 33, 40, 512, 512, True, 0.04), marks=pytest.mark.thorough),
    ],
)
def test_attention(device: lavapipe.Vulkan, instruction: str, shared: int, case: tuple) -> None:
    one = INSTRUCTIONS[f"{instruction}_{device.lanes}lanes"]
    tiling = tiling_for(case[3], case[4], one, shared, 1024)
    assert tiling is not None
    steps, symbols, expected = attended(lambda what: attention_anywhere(what, tiling, one), *case, dtype=one.operand)
    interpreted, found = both_ways(device, steps, symbols)
    limit = 2e-3 if one.operand == F16 else 2e-6
    assert np.abs(interpreted - expected).max() < limit
    assert np.abs(found - expected).max() < limit


@pytest.mark.parametrize(
    ("tile", "type", "sizes"),
    [
        ("m32n32k32 w16x16 s3 z1 fma_4x4_8lanes", "Q8_0", (33, 40, 96)),
        ("m32n32k16 w16x16 s2 z2 coop_8x8x8_half_8lanes", "Q4_K", (9, 7, 256)),
    ],
)
def test_products_of_blocks(device: lavapipe.Vulkan, tile: str, type: str, sizes: tuple[int, int, int]) -> None:
    steps, expected = test_weights_in_blocks.multiplied(type, tile, *sizes)
    interpreted, found = both_ways(device, steps, {"m": sizes[0]})
    assert np.abs(interpreted - expected).max() < 2e-6 * np.abs(expected).max()
    assert np.abs(interpreted - found).max() < 2e-6 * np.abs(expected).max()


def test_kernels_of_a_unet_round_as_they_say(device: lavapipe.Vulkan, tmp_path_factory: pytest.TempPathFactory) -> None:
    """One of each kind that a U-Net has in float16, with the same numbers: sums differ by their order alone, and what is stored
    as float16 is the same but where it was nearly in the middle of two. So what error such a model has is not this device's."""
    engine, *_ = engine_of(tmp_path_factory, "sd15_unet_small")
    form = Spirv(device.lanes, abilities=frozenset(("int64", "float64", "layout")), threads=1024, matrices=((8, 8, 8),))
    kernels = [each.kernel for each in generated(read_engine(engine)[0], fast=True, form=form).kernels.values()]
    kinds = {(each.name.rstrip("_0123456789"), *(it.dtype for it in each.tensors)): each for each in kernels}
    assert len(kinds) > 20
    for number, kernel in enumerate(kinds.values()):
        arrays = [drawn((integer(each.size, {}),), each.dtype, number) for each in kernel.tensors]
        expected, found = (each.astype(F64) for each in both_ways(device, [(kernel, arrays)], {}))
        order = 2e-6 * np.abs(expected).max()
        step = np.spacing(np.abs(expected).astype(F16)).astype(F64) if arrays[-1].dtype == F16 else 0
        assert (np.abs(expected - found) <= order + step).all(), kernel.name
        assert arrays[-1].dtype != F16 or (expected == found).mean() > 0.99, kernel.name


def test_vulkan_has_no_tf32() -> None:
    steps, _ = test_weights_in_blocks.multiplied("Q8_0", "m32n32k32 w32x16 s2 z1 m16n8k8_float_thrice", 8, 32, 32)
    with pytest.raises(GraphcError, match="Vulkan has no instruction m16n8k8_float_thrice"):
        render(steps[0][0], 32)


# Values

SPECIAL = np.array(
    [
        0,
        -0.0,
        1,
        -1,
        0.5,
        -0.5,
        np.inf,
        -np.inf,
        np.nan,
        2,
        -2,
        3,
        1e-30,
        -1e-30,
        1e30,
        -1e30,
        1e-6,
        88,
        -88,
        7.5,
        1e5,
        1e8,
    ],
    F32,
)


def index() -> Scalar:
    return variable("i0", COUNT)


def element(number: int, dtype: np.dtype) -> Scalar:
    return make("element", dtype, (index(),), number)


def elementwise(name: str, bodies: list[Scalar], inputs: list[np.ndarray]) -> list[TileKernel]:
    """A kernel for each expression of the elements of some arrays."""
    types = [TensorType(each.dtype, (COUNT,)) for each in inputs]
    lanes = 8
    return [
        pointwise(f"{name}_{number}", Nest((index(),), body, index()), types, body.dtype, COUNT, lanes)
        for number, body in enumerate(bodies)
    ]


def computed(
    device: lavapipe.Vulkan, bodies: list[Scalar], inputs: list[np.ndarray]
) -> list[tuple[np.ndarray, np.ndarray]]:
    """What the interpreter and the device make of expressions."""
    kernels = elementwise("values", bodies, inputs)
    pairs, steps = [], []
    for kernel, body in zip(kernels, bodies, strict=True):
        expected, found = np.zeros(COUNT, body.dtype), np.zeros(COUNT, body.dtype)
        interpret(kernel, [*inputs, expected], {})
        steps.append((spirv(kernel, device.lanes), [*inputs, found]))
        pairs.append((expected, found))
    device.run(steps, {})
    return pairs


def numbers(seed: int, low: float = -4, high: float = 2) -> np.ndarray:
    rng = np.random.default_rng(seed)
    found = (rng.standard_normal(COUNT) * 10 ** rng.uniform(low, high, COUNT)).astype(F32)
    found[: len(SPECIAL)] = np.roll(SPECIAL, 5 * seed)
    return found


OPERANDS = {"pow": 2, "fmod": 2, "fmax": 2, "fmin": 2, "copysign": 2, "fma": 3}
"""Of functions that have more than one."""
UNITS = {
    "exp": lambda x: 3 + 2 * np.abs(x),
    "exp2": lambda x: 3 + 2 * np.abs(x),
    "fast_exp": lambda x: 3 + 2 * np.abs(x),
    "fast_exp2": lambda x: 3 + 2 * np.abs(x),
    "tan": lambda x: 4,
    "fmod": lambda x: 0,
}
"""Units in the last place by which a function may be off; 2 where nothing is said."""


def test_functions(device: lavapipe.Vulkan) -> None:
    inputs = [numbers(0), numbers(1), numbers(2)]
    x = inputs[0]
    names = [name for name in FUNCTIONS if name not in ("isnan", "isinf", "int32_t")]
    bodies = [K.call(name, *(element(place, F32) for place in range(OPERANDS.get(name, 1)))) for name in names]
    for name, (_, found) in zip(names, computed(device, bodies, inputs), strict=True):
        operands = [each.astype(F64) for each in inputs[: OPERANDS.get(name, 1)]]
        with np.errstate(all="ignore"):
            expected = np.asarray(FUNCTIONS[name](*operands)).astype(F64)
            units = np.abs(found - expected) / np.spacing(np.abs(expected).astype(F32))
            limit = np.broadcast_to(UNITS.get(name, lambda x: 2)(operands[0]), COUNT)
        assert (np.isnan(expected) == np.isnan(found)).all(), name
        normal = (np.abs(expected) < 3e38) & (np.abs(expected) > 2e-38)
        assert (units <= limit)[normal].all(), (
            name,
            x[normal][np.argmax((units - limit)[normal])],
            units[normal].max(),
        )
        assert np.isinf(found[np.abs(expected) > 4e38]).all(), name
        np.testing.assert_allclose(found[np.abs(expected) < 2e-38], 0, atol=2e-38, err_msg=name)


def test_templates_and_questions(device: lavapipe.Vulkan) -> None:
    x = element(0, F32)
    bodies = [
        K.call("({0} / (1 + exp{f}(-{0})))", x), K.call("0.5{f} * {0} * (1 + erf{f}({0} * 0.7071{f}))", x),
        K.call("isnan", x, dtype=BOOL), K.call("isinf", x, dtype=BOOL),
    ]  # fmt: skip
    for expected, found in computed(device, bodies, [numbers(2)]):
        np.testing.assert_allclose(found.astype(F32), expected.astype(F32), rtol=3e-5, atol=1e-30)


INTEGERS = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]


@pytest.mark.parametrize("name", INTEGERS)
def test_operators_of_integers(device: lavapipe.Vulkan, name: str) -> None:
    dtype = np.dtype(name)
    limits, rng = np.iinfo(dtype), np.random.default_rng(3)
    x = rng.integers(limits.min, limits.max, COUNT, dtype=dtype, endpoint=True)
    y = np.where(
        rng.random(COUNT) < 0.5, rng.integers(0, 70, COUNT), rng.integers(limits.min, limits.max, COUNT, dtype)
    ).astype(dtype)
    y[:4], x[4:8], y[4:6] = 0, limits.min, dtype.type(-1 if limits.min else 1)
    a, b = element(0, dtype), element(1, dtype)
    bodies = [
        a + b, a - b, a * b, a / b, a.remainder(b), a // b, a % b, a & b, a | b, a ^ b, a << b, a >> b,
        a.maximum(b), a.minimum(b), -a, ~a,
        a < b, a <= b, a > b, a >= b, a.eq(b), a.ne(b), a**b,
        K.cast(a, F32), K.cast(a, BOOL), K.cast(a, F16),
        *(K.cast(a, np.dtype(other)) for other in INTEGERS if other != name),
        K.cast(K.cast(element(2, F32), dtype), F64) if name != "uint64" else K.cast(a, F64),
        K.select(a < b, a, b), K.reduce("max", (5,), lambda at: make("element", dtype, (at[0] + index() // 7,), 0)),
    ]  # fmt: skip
    z = numbers(4) if limits.min else np.clip(np.nan_to_num(numbers(4)), 0, limits.max // 2)
    for body, (expected, found) in zip(bodies, computed(device, bodies, [x, y, z]), strict=True):
        same = expected == found
        assert same.all(), (body, x[~same][:3], y[~same][:3], expected[~same][:3], found[~same][:3])


@pytest.mark.parametrize("dtype", [F32, F16], ids=str)
def test_operators_of_floats(device: lavapipe.Vulkan, dtype: np.dtype) -> None:
    x, y = numbers(0).astype(dtype), numbers(1).astype(dtype)
    a, b = element(0, dtype), element(1, dtype)
    truths = [a < b, a <= b, a > b, a >= b, a.eq(b), a.ne(b), (a < b).and_(b < 1), (a < b).or_(b < 1), (a < b).not_()]
    bodies = [a + b, a - b, a * b, a / b, a.maximum(b), a.minimum(b), -a, a.remainder(b), a % b, a // b, a**b, *truths]
    for body, (expected, found) in zip(bodies, computed(device, bodies, [x, y]), strict=True):
        fine = np.isclose(
            found.astype(F64), expected.astype(F64), rtol=2e-6 if dtype == F32 else 1e-3, atol=2e-38, equal_nan=True
        )
        assert fine.all(), (body, x[~fine][:3], y[~fine][:3], expected[~fine][:3], found[~fine][:3])


def test_a_sum_loses_little(device: lavapipe.Vulkan) -> None:
    x = numbers(5)[::-1].copy()
    x[-len(SPECIAL) :] = 0
    x[::2] *= np.float32(1e6)
    body = K.reduce("sum", (900,), lambda at: make("element", F32, (at[0] + index() // 20,), 0))
    ((expected, found),) = computed(device, [body], [x])
    np.testing.assert_allclose(found, expected, rtol=2e-7)


def test_faults_are_told(device: lavapipe.Vulkan) -> None:
    x = np.arange(COUNT, dtype=np.int32)
    wanted = K.require(element(0, x.dtype) < 990, element(0, x.dtype), "too large")
    (kernel,) = elementwise("fault", [wanted], [x])
    binary, found, fault = spirv(kernel, device.lanes), np.zeros(COUNT, np.int32), np.zeros(1, np.int32)
    device.run([(binary, [x, found])], {}, fault=fault)
    assert binary.faults[fault[0] - 1] == "too large"
    np.testing.assert_array_equal(found[:990], x[:990])


def test_what_vulkan_does_not_compute_is_named() -> None:
    (kernel,) = elementwise("wide", [K.call("sin", element(0, F64))], [np.zeros(COUNT, F64)])
    with pytest.raises(GraphcError, match="sin in float64"):
        render(kernel, 8)
    k = Builder("lanes", 64)
    k.map(k.tile("values", spread((8, 32), 4, 2)), 0.0)
    with pytest.raises(GraphcError, match="laid out for 32 lanes, and subgroups have 8"):
        render(k.finished(1), 8)


def reduced(shape: tuple[int, int], axis: int, kind: Any, lanes: int, warps: int) -> TileKernel:
    """A kernel that reduces a tile whose warps hold parts of what is reduced."""
    layout = spread(shape, 4, warps, lanes)
    k = Builder("reduced", layout.threads)
    rows, columns = shape
    x = k.tensor("x", F32, rows * columns)
    result = k.tensor("result", F32, rows if axis == 1 else columns, written=True)
    tile, total = k.tile("tile", layout), k.tile("total", layout.without(axis))
    scratch = k.array("scratch", F32, (warps, max(shape)))
    k.load(tile, x, lambda row, column: row * columns + column, vector=4)
    k.reduce(total, tile, axis, kind, scratch)
    k.store(result, lambda row, column: row + column, total)
    return k.finished(1)


@pytest.mark.parametrize(("shape", "axis"), [((16, 32), 0), ((16, 32), 1), ((1, 512), 1)])
@pytest.mark.parametrize("kind", ["sum", "max", "min"])
def test_reductions(device: lavapipe.Vulkan, shape: tuple[int, int], axis: int, kind: str) -> None:
    x = drawn(shape, F32, 0)
    kernel = reduced(shape, axis, kind, device.lanes, 4)
    expected, found = both_ways(device, [(kernel, [x, np.zeros(shape[1 - axis], F32)])], {})
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_replayed_recordings_and_errors(device: lavapipe.Vulkan) -> None:
    x = np.zeros(COUNT, np.int64)
    (kernel,) = elementwise("counting", [element(0, I64) + 1], [x])
    binary = spirv(kernel, device.lanes)
    seconds = device.run([(binary, [x, x])], {}, recorded=5)
    assert (x == 5).all()
    assert 0 < seconds < 60
    with pytest.raises(RuntimeError, match="this is no SPIR-V"):
        device("run", [{"code": b"nothing", "name": "none", "grid": (1, 1, 1), "shared": 0, "arguments": []}], [])
    work = {"code": binary.code, "name": "other", "grid": (1, 1, 1), "shared": 0, "arguments": []}
    with pytest.raises(RuntimeError, match="the module has no kernel other"):
        device("run", [work], [])
    with pytest.raises(RuntimeError, match="has 70000 blocks, and the device takes 65535"):
        device("run", [{**work, "name": "counting_0", "grid": (1, 70000, 1), "arguments": [0]}], [b"0000"])
    with pytest.raises(RuntimeError, match="needs 99999 bytes of shared memory"):
        device("run", [{**work, "name": "counting_0", "shared": 99999}], [])


@pytest.mark.thorough
@pytest.mark.parametrize("name", test_pointwise_kernels.NAMES)
def test_every_operator_with_an_element(device: lavapipe.Vulkan, name: str) -> None:
    d, use, arrays = drawn_use(name, 1, symbolic=True)
    types = [TensorType(dtype, shape) for dtype, shape in use.inputs]
    try:
        kernel = pointwise("operator", nest(use), types, use.dtype, TensorType(use.dtype, use.shape).size, device.lanes)
        binary = spirv(kernel, device.lanes)
    except GraphcError as error:
        if "float64" in str(error) or name in test_pointwise_kernels.BEYOND:
            pytest.skip(str(error))
        raise
    with np.errstate(all="ignore"):
        (expected,) = bound(use.op, d.binding).eval(*arrays)
    result, fault = np.zeros(expected.shape, expected.dtype), np.zeros(1, np.int32)
    if 0 not in grid(binary, d.binding):
        device.run([(binary, [*map(np.ascontiguousarray, arrays), result])], d.binding, fault=fault)
    assert not fault[0]
    agree(result, expected)
