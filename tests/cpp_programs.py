"""Small programs, call by call, of which the tests read the C++; they do not depend on how operators are lowered."""

from __future__ import annotations

import numpy as np

from graphc.ir.types import BOOL, F16, F32, I64, TensorType
from graphc.kernels.use import KernelUse
from graphc.ops.activations import Clip, Elu
from graphc.ops.base import Op
from graphc.ops.matmul import MatMul
from graphc.ops.pointwise import Cast
from graphc.ops.pool import MaxPool
from graphc.ops.random import Random
from graphc.ops.recurrent import Recurrent
from graphc.ops.scatter import ScatterElements, ScatterND
from graphc.ops.selection import BestBoxes, NonZero
from graphc.ops.sequences import CumProd, CumSum
from graphc.ops.sorting import ArgSort, ArgSortRows
from graphc.shapes import Dim, product, symbol
from graphc.targets.ggml.lowering.builder import Builder
from graphc.targets.ggml.program.program import Check, Host, Output, Program
from graphc.targets.ggml.program.tensor import STORAGE, Constant, Tensor

NEAREST, BILINEAR = Constant("GGML_SCALE_MODE_NEAREST"), Constant("GGML_SCALE_MODE_BILINEAR")


class Modules(Builder):
    """A builder with modules of PyTorch: each method appends the calls of one, in its scope."""

    def __init__(self, name: str, around: Program | None = None) -> None:
        super().__init__(around.block(name) if around else Program(name))

    def at(self, *scope: str) -> Modules:
        """Append the calls that follow in this module."""
        self.scope = scope
        return self

    def weight(self, name: str, *shape: int, type: str = "") -> Tensor:
        """A parameter."""
        return self.program.add_weight(name, F32, shape, type=type)

    def linear(self, x: Tensor, path: str, inputs: int, outputs: int) -> Tensor:
        """`x @ weight.T + bias`, in the scope of its path."""
        self.at(*path.split("/"))
        name = path.replace("/", ".")
        product = self.matmul(x, self.weight(f"{name}.weight", outputs, inputs))
        return self.binary("ggml_add", product, self.weight(f"{name}.bias", outputs))

    def norm(self, x: Tensor, path: str, size: int) -> Tensor:
        """A layer norm."""
        self.at(*path.split("/"))
        name = path.replace("/", ".")
        x = self.over_last("ggml_norm", x, 1e-5)
        x = self.binary("ggml_mul", x, self.weight(f"{name}.weight", size))
        return self.binary("ggml_add", x, self.weight(f"{name}.bias", size))

    def attention(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, scale: float, *others: Tensor) -> Tensor:
        """Attention over four axes."""
        found = self.call("graphc_attention", self.rows(q), self.rows(k), v, mask, self.single(scale), *others, rank=4)
        return self.transpose(found, (0, 2, 1, 3))

    def conv(self, x: Tensor, path: str, inputs: int, outputs: int, stride: int) -> Tensor:
        """A 3x3 convolution with a bias."""
        self.at(*path.split("/"))
        name = path.replace("/", ".")
        weight = self.weight(f"{name}.weight", outputs, inputs, 3, 3)
        x = self.call("ggml_conv_2d", weight, x, stride, stride, 1, 1, 1, 1, rank=4)
        bias = self.reshape(self.weight(f"{name}.bias", outputs), (1, outputs, 1, 1))
        return self.binary("ggml_add", x, bias)

    def output(self, x: Tensor, name: str, *shape: Dim) -> Modules:
        """Declare an output of float32."""
        self.program.outputs.append(Output(name, F32, shape or x.shape, x))
        return self


def flat() -> Program:
    """No modules: one function."""
    b = Modules("flat")
    x = b.program.add_input("x", F32, (2, 8), "F32")
    y = b.binary("ggml_add", b.matmul(x, b.weight("w", 4, 8)), b.weight("b", 4))
    return b.output(b.unary("ggml_relu", y), "y").program


def blocks() -> Program:
    """Three times the same block in a row: a function and a loop."""
    b = Modules("blocks")
    x = b.program.add_input("tokens", F32, (1, 5, 8), "F32")
    x = b.linear(x, "embed", 8, 8)
    for number in range(3):
        path = f"layers.{number}"
        hidden = b.linear(b.norm(x, f"{path}/norm", 8), f"{path}/mlp/up", 8, 16)
        b.at(path, "mlp")
        hidden = b.linear(b.unary("ggml_silu", hidden), f"{path}/mlp/down", 16, 8)
        x = b.at(path).binary("ggml_add", x, hidden)
    return b.output(b.norm(x, "norm", 8), "features").program


def skips() -> Program:
    """Blocks of different sizes that share functions, with results that are used later."""
    b = Modules("skips")
    x = b.program.add_input("image", F32, (1, 3, 16, 16), "F32")
    x = b.conv(x, "stem", 3, 4, 1)
    kept = []
    for number, (inputs, outputs) in enumerate(((4, 8), (8, 16))):
        path = f"down.{number}"
        x = b.unary("ggml_silu", b.conv(x, f"{path}/conv", inputs, inputs, 1))
        kept.append(x)
        x = b.conv(x, f"{path}/shrink", inputs, outputs, 2)
        b.at(path)
        x = b.reshape(b.unary("ggml_relu", x), x.shape)
        x = b.reshape(x, (1, outputs, x.shape[2] * x.shape[3]))
        x = b.reshape(b.unary("ggml_sqr", x), (1, outputs, 8 >> number, 8 >> number))
    b.at()
    for skip in reversed(kept):
        x = b.call("ggml_interpolate", x, *skip.ne[:2], *x.ne[2:], NEAREST, rank=4)
        x = b.call("ggml_concat", x, skip, 2, rank=4)
    larger = b.call("ggml_interpolate", x, 2 * x.ne[0], 2 * x.ne[1], *x.ne[2:], NEAREST, rank=4)
    b.output(x, "out")
    return b.output(b.conv(larger, "larger", x.ne[2], 6, 1), "larger").program


def symbolic() -> Program:
    """Named sizes in shapes, offsets and a condition."""
    b = Modules("symbolic")
    batch, tokens = symbol("batch", high=64), symbol("tokens", multiple=2)
    x = b.program.add_input("x", F32, (batch, tokens, 8), "F32")
    mask = b.program.add_input("mask", F32, (tokens + 1,), "F32")
    b.program.checks.append(Check(tokens % 4, 0, "tokens must be a multiple of 4"))
    half = b.slice(x, (0, tokens // 2, 0), (batch, tokens // 2, 8), (1, 1, 1))
    y = b.reshape(b.cont(half), (batch * (tokens // 2), 8))
    part = b.slice(mask, (1,), (tokens,), (1,))
    y = b.linear(y, "fc", 8, 4)
    b.at()
    b.output(y, "y").output(b.unary("ggml_neg", part), "opposite")
    return b.program


def images() -> Program:
    """A part of an image under a kernel: small images are refused."""
    b = Modules("images")
    height, width = symbol("height"), symbol("width")
    x = b.program.add_input("image", F32, (1, 3, height, width), "F32")
    part = b.slice(x, (0, 0, 2, 1), (1, 3, height - 2, 4), (1, 1, 1, 1))
    y = b.call("ggml_conv_2d", b.weight("kernel", 4, 3, 3, 3), b.cont(part), 1, 1, 0, 0, 1, 1, rank=4)
    return b.output(y, "y").program


def kernels() -> Program:
    """A generated kernel in a module that is called twice."""
    b = Modules("kernels")
    count = symbol("n")
    ids = b.program.add_input("ids", I64, (count, 4), "I64")
    numbers = [
        b.at(f"casts.{i}").kernel(KernelUse(Cast(F32), ((I64, (count, 4)),), F32, (count, 4)), ids) for i in (0, 1)
    ]
    numbers = [b.at(f"casts.{i}").unary("ggml_sqr", x) for i, x in enumerate(numbers)]
    b.at()
    return b.output(b.binary("ggml_add", *numbers), "y").program


def slopes() -> Program:
    """One module with other sizes and other numbers, of which kernels are given some."""
    b = Modules("slopes")
    count = symbol("n")
    x = b.program.add_input("x", F32, (count, 3, 8, 8), "F32")
    for number, (slope, size) in enumerate(((0.1, 8), (0.01, 4), (0.3, 2))):
        b.at(f"halves.{number}")
        x = b.conv(x, f"halves.{number}/conv", 3, 3, 1)
        shape, half = (count, 3, size, size), (count, 3, size // 2, size // 2)
        x = b.at(f"halves.{number}").kernel(KernelUse(Elu(slope), ((F32, shape),), F32, shape), x)
        pool = MaxPool((2, 2), (2, 2), (1, 1), (0, 0), (0, 0), False)
        x = b.kernel(KernelUse(pool, ((F32, shape),), F32, half), x)
    return b.output(x, "y").program


def scattered() -> Program:
    """A call that names no module between two of one, and an expression that two modules share."""
    b = Modules("scattered")
    x = b.program.add_input("x", F32, (2, 8), "F32")
    time = b.program.add_input("time", F32, (1, 8), "F32")
    gate = b.at("blocks.0", "act").unary("ggml_silu", time)
    for number in range(2):
        path = f"blocks.{number}"
        hidden = b.linear(x, f"{path}/fc", 8, 8)
        hidden = b.at().unary("ggml_relu", hidden)
        x = b.at(path).binary("ggml_mul", hidden, gate)
    return b.output(b.at().unary("ggml_tanh", x), "y").program


def repeated() -> Program:
    """A loop around a module with weights, which collects a row in each step."""
    b = Modules("repeated")
    n, steps = symbol("n"), symbol("steps", low=0)
    x = b.program.add_input("x", F32, (n, 4), "F32")
    trips = b.program.add_input("trips", I64, (), "I64", low=0, high=6)
    step, state = Modules("rnn", b.program), TensorType(F32, (n, 4))
    step.program.add_input("i", I64, (), "I64")
    going = step.program.add_input("going", BOOL, (), "I8")
    hidden, seen = (step.program.add_input(name, F32, (n, 4), "F32") for name in ("hidden", "x"))
    hidden = step.unary("ggml_tanh", step.binary("ggml_add", step.linear(hidden, "rnn", 4, 4), seen))
    step.program.outputs.append(Output("again", BOOL, (), step.copy(going)))
    step.output(hidden, "next").output(step.unary("ggml_sqr", hidden), "row")
    types = (TensorType(I64, ()), TensorType(BOOL, ()), state, state)
    rows = TensorType(F32, (steps, n, 4))
    host = Host("Loop", types, (state, rows), (step.program,), carried=1)
    yes = b.at().copy(b.program.add_weight("yes", BOOL, ()))
    last, rows = b.program.call_host(host, [trips, yes, x, x])
    return b.output(b.linear(last, "out", 4, 2), "last").output(rows, "rows", steps, n, 4).program


def counted() -> Program:
    """A size that is measured: perhaps 0, then nothing is computed."""
    b = Modules("counted")
    n, count = symbol("n"), symbol("count", low=0, high=8)
    x = b.program.add_input("x", F32, (n,), "F32")
    number = b.program.add_input("number", I64, (1,), "I64", low=0, high=9)
    host = Host("Measure", (TensorType(I64, (1,)),), size=count, what="the count of y")
    b.program.call_host(host, [number])
    part = b.cont(b.slice(x, (0,), (count,), (1,)))
    return b.output(b.unary("ggml_relu", part), "y").program


def dtypes() -> Program:
    """Each element type in and out, and row numbers of a table."""
    b = Modules("dtypes")
    for dtype in sorted(STORAGE, key=str):
        x = b.program.add_input(dtype.name, dtype, (2, 3), STORAGE[dtype])
        same = b.kernel(KernelUse(Cast(dtype), ((dtype, (2, 3)),), dtype, (2, 3)), x)
        b.program.outputs.append(Output(f"same_{dtype.name}", dtype, (2, 3), same))
    rows = b.program.add_input("rows", I64, (2, 3), "I32", low=0, high=10)
    b.call("ggml_get_rows", b.weight("table", 10, 4), b.reshape(rows, (6,)), rank=2)
    b.program.outputs.append(Output("rows_of_table", F32, (2, 3, 4), b.program.calls[-1].result))
    return b.program


def routines() -> Program:
    """Each routine, for a size that is a symbol."""
    b, n = Modules("routines"), symbol("n")

    def given(name: str, dtype: np.dtype, *shape: Dim) -> tuple[Tensor, TensorType]:
        return b.program.add_input(name, dtype, shape, STORAGE[dtype]), TensorType(dtype, shape)

    def add(op: Op, *inputs: tuple[Tensor, TensorType]) -> tuple[Tensor, TensorType]:
        (type,) = op.infer(*(type for _, type in inputs))
        use = KernelUse(op, tuple((type.dtype, type.shape) for _, type in inputs), type.dtype, type.shape)
        y = b.kernel(use, *(tensor for tensor, _ in inputs))
        name = getattr(op, "cell", op.name)
        b.program.outputs.append(Output(name, type.dtype, type.shape, y))
        return y, type

    x, scores, places = given("x", F16, n, 3), given("scores", F32, 2, 20, n), given("places", I64, n)
    add(CumSum(0, True, True), x)
    add(CumProd(1), scores)
    add(ArgSortRows(), x)
    add(NonZero(3 * n), x)
    add(ScatterElements(0, "add"), given("table", I64, 40), places, places)
    add(ScatterND("max"), given("rows", F32, 40, n), given("numbers", I64, n, 1), given("updates", F32, n, n))
    add(MaxPool((3, 2), (2, 3), (1, 1), (1, 0), (1, 1), False), given("image", F16, 2, 3, n, 9))
    order = add(ArgSort(2, n, True), scores)
    states = [given(name, F32, 1, 2, 40) for name in ("outputs", "cells")]
    lengths = given("lengths", I64, 2)
    add(
        Recurrent("lstm", (True,)),
        given("gates", F32, n, 2, 1, 160),
        given("packed", F32, 1, 2, 41, 4, 32),
        lengths,
        *states,
    )
    both = [given("gates both ways", F32, n, 2, 2, 120), given("packed both ways", F32, 2, 2, 41, 3, 32)]
    add(Recurrent("gru", (False, True)), *both, lengths, given("first", F32, 2, 2, 40))
    add(BestBoxes(n), given("boxes", F32, 2, n, 4), scores, order, given("overlap", F32), given("least", F32))
    return b.program


def nothing() -> Program:
    """Not one element."""
    b = Modules("nothing")
    x = b.program.add_input("x", I64, (2, 0), "I64")
    y = b.kernel(KernelUse(Cast(F32), ((I64, (2, 0)),), F32, (2, 0)), x)
    return b.output(y, "y", 2, 0).program


def products() -> Program:
    """Arrays without elements whose product has as many as there can be."""
    b = Modules("products")
    rows, columns = symbol("rows"), symbol("columns")
    x = b.program.add_input("x", F32, (rows, 0), "F32")
    y = b.program.add_input("y", F32, (columns, 0), "F32")
    types = ((F32, (rows, 0)), (F32, (columns, 0)))
    z = b.kernel(KernelUse(MatMul(transpose_b=True), types, F32, (rows, columns)), x, y)
    return b.output(b.reshape(z, (rows * columns,)), "z").program


def constants() -> Program:
    """No inputs, and a weight without elements."""
    b = Modules("constants")
    joined = b.call("ggml_concat", b.weight("full", 2, 3), b.weight("empty", 0, 3), 1, rank=2)
    return b.output(joined, "joined").output(b.call("ggml_cont", b.weight("single"), rank=0), "single").program


def views() -> Program:
    """An output that is a view of what is computed with afterwards, and several outputs of one tensor."""
    b = Modules("views")
    x = b.program.add_input("x", F32, (16, 16), "F32")
    kept = b.reshape(b.unary("ggml_exp", x), (256,))
    y = b.unary("ggml_sqr", kept)
    for _ in range(6):
        y = b.unary("ggml_abs", b.binary("ggml_add", y, b.unary("ggml_neg", b.unary("ggml_sqr", y))))
    return b.output(kept, "kept").output(y, "y").output(kept, "again").program


NAMES = (
    '"); system("touch pwned',
    "a\n#error ??/",
    "*/ int",
    "int",
    "ggml_add",
    "../../x",
    "é ü",
    "",
    "x",
    "%s%n",
    'R"(',
    "0",
    "a=b",
    "a",
)


def draws() -> Program:
    """Random numbers added to others."""
    b = Modules("draws")
    count = symbol("n")
    x = b.program.add_input("x", F32, (count, 4), "F32")
    for kind in ("uniform", "normal"):
        op = Random(kind, 5, 1.0, 2.0, F32, (count, 4))
        x = b.binary("ggml_add", x, b.kernel(KernelUse(op, (), F32, op.shape)))
    return b.output(x, "y").program


def hostile() -> Program:
    """Names that mean something to C++, a shell or a file system."""
    b = Modules(NAMES[0])
    for index, name in enumerate(NAMES):
        x = b.program.add_input(name, F32, (2, 4), "F32")
        y = b.matmul(x, b.weight(name, 3, 4))
        for depth in range(2):
            y = b.at(name, f"{NAMES[-index]}.{depth}").binary("ggml_mul", y, b.weight(f"{name}.{depth}.{name}", 3))
            y = b.unary("ggml_relu", y)
            b.source = name
        b.output(y, f"{name}/")
    return b.program


def hostile_steps() -> Program:
    """Such names in what the host does."""
    b = Modules("steps")
    x = b.program.add_input("x", F32, (2, 4), "F32")
    yes = b.program.add_input("yes", BOOL, (), "I8")
    count = b.program.add_input("count", I64, (), "I64", low=3, high=4)
    for name in NAMES:
        size = symbol(f"size of {name}", low=0)
        b.program.call_host(Host("Measure", (TensorType(I64, ()),), size=size, what=name), [count], (), name)
        type, scalars = TensorType(F32, (2, 4)), (TensorType(I64, ()), TensorType(BOOL, ()))
        blocks = []
        for kind in ("relu", "neg", "sqr"):
            block = Modules(name, b.program)
            if kind == "sqr":
                block.program.add_input(f"{name} i", I64, (), "I64")
                going = block.program.add_input(f"{name} going", BOOL, (), "I8")
                block.program.outputs.append(Output(name, BOOL, (), block.copy(going)))
            y = block.unary(f"ggml_{kind}", block.program.add_input(name, F32, (2, 4), "F32"))
            blocks.append(block.output(y, name).program)
        (x,) = b.program.call_host(Host("If", (scalars[1], type), (type,), tuple(blocks[:2])), [yes, x], (), name)
        (x,) = b.program.call_host(Host("Loop", (*scalars, type), (type,), (blocks[2],), 1), [count, yes, x], (), name)
        b.output(x, f"{name}/")
    return b.program


def replaced() -> Program:
    """What code of our own computes on the CPU, with what it does on its way out and without."""
    b = Modules("replaced")

    def turned(x: Tensor, interleaved: bool) -> Tensor:
        cos, sin = (b.reshape(b.weight(f"{each}{interleaved}", 480, 16), (480, 1, 16)) for each in ("cos", "sin"))
        return b.rotary(x, cos, sin, interleaved)

    image = b.program.add_input("image", F32, (2, 6, 20, 24), "F32")
    b.output(b.call("ggml_conv_2d", b.weight("plain", 8, 6, 3, 3), image, 2, 2, 1, 1, 1, 1, rank=4), "plain")
    x = b.conv(image, "first", 6, 40, 1)
    x = b.binary("ggml_add", x, b.reshape(b.weight("time", 40), (1, 40, 1, 1)))  # a second sum for each channel

    def group_norm(x: Tensor, name: str) -> Tensor:
        scale, shift = (b.reshape(b.weight(f"{name}.{each}", 40), (1, 40, 1, 1)) for each in ("weight", "bias"))
        return b.binary("ggml_add", b.binary("ggml_mul", b.call("ggml_group_norm", x, 8, 1e-5, rank=4), scale), shift)

    x = b.conv(x, "second", 40, 40, 1)  # enough pixels and channels for Winograd's way
    x = b.unary("ggml_relu", b.binary("ggml_add", b.conv(x, "third", 40, 40, 1), x))
    active = b.unary("ggml_silu", group_norm(x, "norm"))
    twice = group_norm(x, "other")  # read by two
    x = b.binary("ggml_add", active, b.binary("ggml_mul", b.unary("ggml_silu", twice), twice))
    kernel = b.weight("kernel", 32, 40, 1, 1)
    shared = b.call("ggml_conv_2d", kernel, x, 1, 1, 0, 0, 1, 1, rank=4)  # read by a sum and by the outputs
    b.output(shared, "shared")
    b.output(b.call("ggml_interpolate", shared, 36, 25, 32, 2, NEAREST, rank=4), "upscaled")
    b.output(b.call("ggml_interpolate", shared, 36, 25, 32, 2, BILINEAR, rank=4), "interpolated")
    b.output(b.pool_2d("AVG", shared, (3, 2), (2, 1), (1, 0)), "averaged")
    ones = (1, 1, 1)
    b.output(b.conv_2d(image, b.weight("groups", 12, 3, 3, 3), (2, 1), (1, 1), (1, 1), 2), "grouped")
    b.output(b.conv_3d(image, b.weight("deep", 8, 3, 3, 3), b.weight("bias", 4), 2, ones, ones, ones, 1), "volumes")
    b.output(b.conv_3d(image, b.weight("apart", 4, 3, 3, 3), None, 2, (2, 1, 1), ones, ones, 2), "volumes_in_groups")
    b.output(b.unary("ggml_soft_max", shared), "soft")
    b.output(b.cast(b.rounded(image, "F16"), "F32"), "rounded")
    b.output(b.call("ggml_pad_ext", shared, 2, 1, 0, 3, 1, 0, 0, 0, rank=4), "padded")
    alone = b.call("ggml_conv_2d_dw_direct", b.weight("each", 40, 1, 5, 3), x, 2, 1, 1, 2, 1, 1, rank=4)
    alone = b.binary("ggml_add", alone, b.reshape(b.weight("beside", 40), (1, 40, 1, 1)))
    alone = b.kernel(KernelUse(Clip(0.0, 6.0), ((F32, alone.shape),), F32, alone.shape), alone)
    mean = b.call("ggml_mean", b.reshape(alone, (2, 40, 240)), rank=3)
    scaled = b.binary("ggml_mul", alone, b.unary("ggml_sigmoid", b.reshape(mean, (2, 40, 1, 1))))
    sums = b.call("ggml_sum_rows", b.unary("ggml_hardswish", scaled), rank=4)
    active = b.unary("ggml_silu", b.conv(b.binary("ggml_add", scaled, sums), "active", 40, 8, 1))
    b.output(active, "scaled")
    few = b.call("ggml_conv_2d_dw_direct", b.weight("few", 8, 1, 3, 3), active, 1, 1, 1, 1, 1, 1, rank=4)
    b.output(b.binary("ggml_add", few, b.reshape(b.weight("few_beside", 8), (1, 8, 1, 1))), "few")
    halved = b.call("ggml_conv_2d", b.weight("halved", 20, 40, 3, 3), x, 2, 2, 1, 1, 1, 1, rank=4)
    halved = b.binary("ggml_add", halved, b.reshape(b.weight("halved_bias", 20), (1, 20, 1, 1)))
    last = b.call("ggml_conv_2d_dw_direct", b.weight("last", 20, 1, 3, 3), halved, 1, 1, 1, 1, 1, 1, rank=4)
    b.output(last, "last")
    op = MaxPool((3, 3), (2, 2), (1, 1), (1, 1), (1, 1), False)
    (pooled,) = op.infer(TensorType(F32, halved.shape))
    found = b.kernel(KernelUse(op, ((F32, halved.shape),), F32, pooled.shape), halved)
    found = b.call("ggml_conv_2d_dw_direct", b.weight("behind", 20, 1, 3, 3), found, 1, 1, 1, 1, 1, 1, rank=4)
    b.output(found, "pooled")
    window = b.conv(last, "window", 20, 24, 1)
    b.output(b.call("ggml_conv_2d", b.weight("strided", 20, 24, 3, 3), window, 2, 2, 1, 1, 1, 1, rank=4), "strided")
    x = b.binary("ggml_add", shared, b.reshape(b.weight("bias", 32), (1, 32, 1, 1)))
    tokens = b.cont(b.transpose(b.reshape(x, (2, 32, 480)), (0, 2, 1)))
    q, k, v = (
        b.transpose(b.reshape(b.linear(tokens, each, 32, 32), (2, 480, 4, 8)), (0, 2, 1, 3)) for each in ("q", "k", "v")
    )
    heads = turned(turned(b.reshape(tokens, (2, 480, 2, 16)), True), False)
    heads = b.binary("ggml_mul", b.unary("ggml_gelu_erf", heads), b.binary("ggml_add", heads, heads))
    heads = b.binary("ggml_mul", b.binary("ggml_add", heads, heads), b.unary("ggml_silu", heads))
    wide = b.reshape(b.concat([heads, heads, b.unary("ggml_silu", heads)], 2), (2, 480, 2, 48))
    part, rest = (b.slice(wide, (0, 0, 0, start), (2, 480, 2, size), (1,) * 4) for start, size in ((0, 16), (16, 32)))
    b.output(b.concat([turned(part, False), rest], 3), "turned")
    b.at()
    mask = b.program.add_input("mask", F32, (480, 480), "F32")
    x = b.binary("ggml_add", b.attention(q, k, v, None, 0.3), b.attention(q, k, v, mask, 0.3))
    heads = b.call("ggml_l2_norm", b.rows(q), 1e-12, rank=4)
    x = b.binary("ggml_add", x, b.attention(heads, k, v, mask, 0.3, mask))
    x = b.reshape(b.cont(b.transpose(x, (0, 2, 1, 3))), (2, 480, 32))
    x = b.binary("ggml_add", tokens, b.unary("ggml_relu", b.linear(x, "residual", 32, 32)))
    x = b.binary("ggml_add", x, b.linear(b.unary("ggml_relu", x), "wide", 32, 32))
    x = b.binary("ggml_mul", b.call("ggml_rms_norm", x, 1e-6, rank=3), b.weight("rms", 32))
    x = b.binary("ggml_mul", b.call("ggml_norm", x, 1e-5, rank=3), b.weight("factor", 32))
    x = b.binary("ggml_add", x, b.weight("shift", 32))
    x = b.binary("ggml_add", b.linear(x, "out", 32, 33), b.weight("more", 33))
    x = b.unary("ggml_gelu_erf", x)
    x = b.gate(b.gate(x, 1.702), 1.6, 0.07)
    expanded = b.call("ggml_conv_2d", b.weight("expand", 40, 20, 1, 1), last, 1, 1, 0, 0, 1, 1, rank=4)
    expanded = b.binary("ggml_add", expanded, b.reshape(b.weight("expand_bias", 40), (1, 40, 1, 1)))
    expanded = b.unary("ggml_silu", expanded)
    expanded = b.call("ggml_conv_2d_dw_direct", b.weight("expanded", 40, 1, 3, 3), expanded, 2, 1, 1, 1, 1, 1, rank=4)
    rows = b.reshape(expanded, (2, 40, product(expanded.ne[:2])))
    gate = b.unary("ggml_sigmoid", b.reshape(b.call("ggml_mean", rows, rank=3), (2, 40, 1, 1)))
    gated = b.binary("ggml_mul", expanded, gate)
    b.output(b.call("ggml_conv_2d", b.weight("project", 24, 40, 1, 1), gated, 1, 1, 0, 0, 1, 1, rank=4), "gated")
    beside = b.call("ggml_conv_2d", b.weight("window_beside", 24, 24, 3, 3), window, 1, 1, 1, 1, 1, 1, rank=4)
    b.output(b.binary("ggml_add", beside, window), "added")
    b.output(b.conv_2d(window, b.weight("in_groups", 24, 8, 3, 3), (1, 1), (1, 1), (1, 1), 3), "in_groups")
    return b.output(x, "y").program


def narrow() -> Program:
    """Weights in narrower types: a table, products of few rows and of many, convolutions, one that is reshaped."""
    b = Modules("narrow")
    ids = b.program.add_input("ids", I64, (40,), "I32", low=0, high=12)
    x = b.call("ggml_get_rows", b.weight("table", 12, 256, type="Q5_0"), ids, rank=2)
    for type in ("Q8_0", "Q4_K", "F16", "BF16", "IQ4_XS"):
        b.at("layers", type.lower())
        x = b.call("ggml_mul_mat", b.weight(f"layers.{type.lower()}.weight", 256, 256, type=type), b.cont(x), rank=2)
    b.at()
    single = b.program.add_input("single", F32, (1, 256), "F32")
    split = b.call("ggml_reshape_2d", b.weight("split", 4, 64, 256, type="Q6_K"), 256, 256, rank=2)
    b.output(b.call("ggml_mul_mat", split, single, rank=2), "row")
    few = b.program.add_input("few", F32, (3, 256), "F32")
    for type in ("F32", "F16", "Q8_0", "Q5_1", "Q4_K", "IQ4_XS"):
        few = b.call("ggml_mul_mat", b.weight(f"few.{type.lower()}", 256, 256, type=type), few, rank=2)
        few = b.unary("ggml_relu", b.binary("ggml_add", few, b.weight(f"bias.{type.lower()}", 256)))
    b.output(few, "rows")
    image = b.reshape(x, (1, 10, 32, 32))
    for index, function in enumerate(("ggml_conv_2d", "ggml_conv_2d_direct")):
        kernel = b.weight(f"kernel{index}", 10, 10, 3, 3, type="F16")
        image = b.call(function, kernel, image, 1, 1, 1, 1, 1, 1, rank=4)
    return b.output(image, "image").program


PROGRAMS = {
    each.__name__: each
    for each in (flat, blocks, skips, symbolic, images, kernels, slopes, scattered, repeated, counted)
}
"""Those whose C++ is kept, to be read."""

OTHERS = {
    each.__name__: each
    for each in (views, constants, dtypes, draws, hostile, hostile_steps, narrow, nothing, products, replaced, routines)
}
"""Those that are only compiled and run."""


def arrays(program: Program, seed: int = 0) -> list[np.ndarray]:
    """Numbers for the weights, as they are stored."""
    rng = np.random.default_rng(seed)
    numbers = [np.asarray(rng.standard_normal(weight.shape) / 4, weight.dtype) for weight in program.weights]
    return [weight.converted(array) for weight, array in zip(program.weights, numbers, strict=True)]
