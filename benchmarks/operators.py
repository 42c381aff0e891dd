"""Single operators beside onnxruntime: which of them take longer than they should.

    python benchmarks/operators.py
    python benchmarks/operators.py Resize GridSample --threads 2

Sizes are those that models have. An addition stands before the operator, and what that takes alone is taken off both times. Both
run in this process by turns, with one thread unless more are asked for; a figure is the lower quartile of the rounds, in
microseconds. The slowest in comparison come last. With several threads figures say little: both wait for work by spinning.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

import graphc

RANDOM = np.random.default_rng(0)
SECONDS = 0.01
"""Of a round, at least."""


def floats(*shape: int) -> np.ndarray:
    """Numbers around 0."""
    return RANDOM.standard_normal(shape, np.float32)


def positive(*shape: int) -> np.ndarray:
    """Numbers from 0.1 to 2."""
    return RANDOM.uniform(0.1, 2, shape).astype(np.float32)


def below(limit: int, *shape: int) -> np.ndarray:
    """Whole numbers from 0 on."""
    return RANDOM.integers(0, limit, shape)


@dataclass(frozen=True)
class Case:
    """An operator with its first input, which differs from run to run, the others, which are weights, and attributes."""

    operator: str
    x: np.ndarray
    others: tuple[np.ndarray | None, ...] = ()
    attributes: Mapping[str, Any] = field(default_factory=dict)
    note: str = ""
    outputs: int = 1
    opset: int = 18

    @property
    def label(self) -> str:
        """The operator and what is remarkable."""
        return f"{self.operator} {self.note or 'x'.join(map(str, self.x.shape))}"


def case(
    operator: str, x: np.ndarray, *others: Any, note: str = "", outputs: int = 1, opset: int = 18, **attributes: Any
) -> Case:
    """A case; numbers and lists among the others become tensors."""
    tensors = tuple(None if each is None else np.asarray(each) for each in others)
    return Case(operator, x, tensors, attributes, note, outputs, opset)


IMAGE, ROWS, TOKENS = (1, 64, 56, 56), (256, 1024), (1, 256, 768)

UNARY = (
    "Abs",
    "Neg",
    "Exp",
    "Log",
    "Sqrt",
    "Reciprocal",
    "Sin",
    "Cos",
    "Tanh",
    "Sigmoid",
    "Relu",
    "Erf",
    "Floor",
    "Round",
    "Sign",
    "Softplus",
    "Softsign",
    "Elu",
    "Selu",
    "HardSigmoid",
    "HardSwish",
    "LeakyRelu",
    "Mish",
    "Gelu",
    "Celu",
    "ThresholdedRelu",
    "Atan",
    "Sinh",
)


def cases() -> Iterator[Case]:
    """Every case."""
    for operator in UNARY:
        yield case(operator, positive(*ROWS), opset=20 if operator == "Gelu" else 18)
    for operator in ("Add", "Mul", "Div", "Pow", "Max", "PRelu"):
        yield case(operator, positive(*IMAGE), positive(64, 1, 1), note="a vector along channels")
    yield case("Mod", positive(*ROWS), np.float32(0.7), fmod=1)
    yield case("Softmax", floats(*ROWS), axis=-1)
    yield case("Softmax", floats(*IMAGE), axis=1, note="along channels")
    yield case("LogSoftmax", floats(*ROWS), axis=-1)
    yield case("Hardmax", floats(*ROWS), axis=-1)
    yield case("LayerNormalization", floats(*TOKENS), floats(768), floats(768))
    yield case("InstanceNormalization", floats(*IMAGE), floats(64), floats(64))
    yield case("GroupNormalization", floats(*IMAGE), floats(64), floats(64), num_groups=8, opset=21)
    yield case("BatchNormalization", floats(*IMAGE), floats(64), floats(64), floats(64), positive(64))
    yield case("LpNormalization", floats(*ROWS), axis=-1, p=2)
    yield case("LRN", floats(*IMAGE), size=5)
    for operator in ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceL2", "ReduceProd", "ReduceLogSumExp"):
        yield case(operator, positive(*ROWS), [1], note="of rows")
    yield case("ReduceMean", floats(*IMAGE), [2, 3], note="of planes")
    yield case("ReduceMax", floats(*IMAGE), [1], note="of channels")
    yield case("ArgMax", floats(*ROWS), axis=1)
    yield case("ArgMax", floats(*IMAGE), axis=1, note="of channels")
    yield case("TopK", floats(*ROWS), np.array([10]), outputs=2, note="10 of 1024")
    yield case("CumSum", floats(*ROWS), np.array(1))
    yield case("Transpose", floats(*IMAGE), perm=[0, 2, 3, 1], note="channels last")
    yield case("Transpose", floats(1, 256, 12, 64), perm=[0, 2, 1, 3], note="heads")
    yield case("Concat", floats(*IMAGE), floats(*IMAGE), axis=1)
    yield case("Slice", floats(*IMAGE), [0, 0, 1, 1], [1, 64, 55, 55], note="inside")
    yield case("Slice", floats(*IMAGE), [0, 0, 0, 0], [1, 64, 56, 56], [0, 1, 2, 3], [1, 1, 2, 2], note="every second")
    for mode in ("constant", "reflect", "edge"):
        yield case("Pad", floats(*IMAGE), [0, 0, 1, 1, 0, 0, 1, 1], mode=mode, note=mode)
    yield case("Tile", floats(1, 64, 28, 28), [1, 1, 2, 2])
    yield case("Expand", floats(256, 1), [256, 1024])
    yield case("DepthToSpace", floats(1, 64, 56, 56), blocksize=2)
    yield case("SpaceToDepth", floats(1, 64, 56, 56), blocksize=2)
    yield case("Gather", floats(1000, 768), below(1000, 256), note="rows")
    yield case("Gather", floats(*ROWS), below(1024, 512), axis=1, note="columns")
    yield case("GatherElements", floats(*ROWS), below(1024, *ROWS), axis=1)
    yield case("GatherND", floats(64, 64, 256), below(64, 1024, 2))
    yield case("ScatterElements", floats(*ROWS), below(1024, *ROWS), floats(*ROWS), axis=1)
    yield case("ScatterND", floats(1000, 256), below(1000, 500, 1), floats(500, 256))
    yield case("Trilu", floats(1024, 1024), upper=0)
    yield case("Clip", floats(*ROWS), np.float32(-1), np.float32(1))
    for mode, how in (
        ("nearest", "asymmetric"),
        ("linear", "half_pixel"),
        ("linear", "align_corners"),
        ("cubic", "half_pixel"),
    ):
        sizes = [None, np.array([1, 1, 2, 2], np.float32)]
        yield case(
            "Resize", floats(*IMAGE), *sizes, mode=mode, coordinate_transformation_mode=how, note=f"{mode} {how}, twice"
        )
    sizes = [None, np.array([1, 1, 0.4, 0.4], np.float32)]
    yield case("Resize", floats(*IMAGE), *sizes, mode="linear", antialias=1, note="antialiased, 0.4")
    yield case("Resize", floats(1, 3, 640, 480), None, None, [1, 3, 224, 224], mode="linear", note="a photograph")
    for mode in ("bilinear", "nearest", "bicubic"):
        grid = RANDOM.uniform(-1, 1, (1, 56, 56, 2)).astype(np.float32)
        yield case("GridSample", floats(*IMAGE), grid, mode=mode, note=mode, opset=16)
    boxes = np.array([[0, 0, 30, 30], [5, 5, 50, 40]] * 16, np.float32)
    yield case(
        "RoiAlign", floats(*IMAGE), boxes, np.zeros(32, np.int64), output_height=7, output_width=7, sampling_ratio=2
    )
    for operator in ("MaxPool", "AveragePool"):
        yield case(operator, floats(*IMAGE), kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
        yield case(operator, floats(*IMAGE), kernel_shape=[5, 5], pads=[2, 2, 2, 2], note="5 x 5")
        yield case(operator, floats(1, 64, 4096), kernel_shape=[4], strides=[4], note="of lines")
    yield case("LpPool", floats(*IMAGE), kernel_shape=[2, 2], strides=[2, 2])
    yield case("GlobalAveragePool", floats(1, 512, 14, 14))
    yield from convolutions()
    yield case("MatMul", floats(256, 768), floats(768, 768))
    yield case("MatMul", floats(1, 768), floats(768, 3072), note="a row")
    yield case("MatMul", floats(8, 1, 768), floats(768, 3072), note="single rows of a batch")
    yield case("MatMul", floats(12, 256, 64), floats(12, 64, 256), note="heads")
    yield case("Gemm", floats(64, 512), floats(1000, 512), floats(1000), transB=1)
    yield case("Einsum", floats(8, 64, 64), floats(8, 64, 32), equation="bij,bjk->bik")
    yield case(
        "Einsum", floats(1, 12, 64, 64), floats(64, 64, 64), equation="bhid,ijd->bhij", note="relative positions"
    )
    for operator, gates in (("LSTM", 4), ("GRU", 3), ("RNN", 1)):
        weights = floats(1, gates * 128, 64) * 0.1, floats(1, gates * 128, 128) * 0.1
        yield case(operator, floats(100, 1, 64), *weights, hidden_size=128, outputs=2)
        both = floats(2, gates * 128, 64) * 0.1, floats(2, gates * 128, 128) * 0.1
        yield case(
            operator,
            floats(50, 8, 64),
            *both,
            hidden_size=128,
            direction="bidirectional",
            outputs=2,
            note="of 8, both ways",
        )
    yield case("DFT", floats(1, 256, 512, 1), np.array(512), note="of 512", axis=2, opset=19)
    signal = floats(1, 16000, 1)
    yield case(
        "STFT", signal, np.array(160), np.hanning(400).astype(np.float32), np.array(400), note="a second of speech"
    )
    yield case("QuantizeLinear", floats(*ROWS), np.float32(0.05), np.uint8(128))
    yield case("DynamicQuantizeLinear", floats(*ROWS), outputs=3)
    yield case("Cast", floats(*ROWS), to=TensorProto.FLOAT16)
    yield case("IsNaN", floats(*ROWS))
    yield case("NonZero", (floats(*ROWS) > 1).astype(np.float32))
    yield case("Unique", below(500, 20000).astype(np.float32), sorted=1)
    scores = RANDOM.uniform(0, 1, (1, 20, 1000)).astype(np.float32)
    corners = np.sort(RANDOM.uniform(0, 100, (1, 1000, 2, 2)), axis=2).reshape(1, 1000, 4).astype(np.float32)
    yield case(
        "NonMaxSuppression",
        corners,
        scores,
        np.array(50),
        np.float32(0.5),
        np.float32(0.3),
        note="1000 boxes, 20 classes",
    )


def convolutions() -> Iterator[Case]:
    """Those of images, lines and volumes."""
    same = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
    yield case("Conv", floats(*IMAGE), floats(64, 64, 3, 3) * 0.05, **same)
    yield case(
        "Conv",
        floats(1, 3, 224, 224),
        floats(64, 3, 7, 7) * 0.1,
        pads=[3, 3, 3, 3],
        strides=[2, 2],
        note="7 x 7, 3 channels",
    )
    yield case("Conv", floats(*IMAGE), floats(256, 64, 1, 1) * 0.1, note="1 x 1")
    yield case("Conv", floats(*IMAGE), floats(64, 1, 3, 3) * 0.3, group=64, note="of each channel", **same)
    yield case("Conv", floats(*IMAGE), floats(64, 8, 3, 3) * 0.1, group=8, note="8 groups", **same)
    dilated = {"kernel_shape": [3, 3], "pads": [4, 4, 4, 4], "dilations": [4, 4]}
    yield case("Conv", floats(*IMAGE), floats(64, 64, 3, 3) * 0.05, note="dilated", **dilated)
    yield case("Conv", floats(1, 64, 4096), floats(64, 64, 7) * 0.05, pads=[3, 3], note="of lines")
    yield case("Conv", floats(1, 1, 16000), floats(64, 1, 10) * 0.3, strides=[5], note="of a wave")
    yield case("Conv", floats(1, 16, 8, 28, 28), floats(32, 16, 3, 3, 3) * 0.05, pads=[1] * 6, note="of volumes")
    yield case("ConvTranspose", floats(1, 64, 28, 28), floats(64, 32, 4, 4) * 0.05, strides=[2, 2], pads=[1, 1, 1, 1])
    yield case("ConvTranspose", floats(1, 64, 28, 28), floats(64, 32, 2, 2) * 0.1, strides=[2, 2], note="2 x 2")
    yield case(
        "ConvTranspose", floats(1, 128, 256), floats(128, 64, 16) * 0.05, strides=[8], pads=[4, 4], note="of lines"
    )


def model_of(each: Case | None, x: np.ndarray) -> onnx.ModelProto:
    """A case behind an addition; the addition alone without one."""
    weights = {f"w{i}": array for i, array in enumerate(each.others if each else ()) if array is not None}
    weights["one"] = np.float32(1)
    nodes, outputs = [helper.make_node("Add", ["x", "one"], ["x1"])], ["x1"]
    if each is not None:
        names = [f"w{i}" if array is not None else "" for i, array in enumerate(each.others)]
        outputs = [f"y{i}" for i in range(each.outputs)]
        nodes.append(helper.make_node(each.operator, ["x1", *names], outputs, **each.attributes))
    graph = helper.make_graph(
        nodes,
        "operator",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)],
        [onnx.ValueInfoProto(name=name) for name in outputs],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    opset = helper.make_opsetid("", each.opset if each else 18)
    return helper.make_model(graph, opset_imports=[opset], ir_version=9)


def quartiles(runs: Iterable[Callable[[], Any]], rounds: int) -> list[float]:
    """Seconds that each of these takes, by turns."""
    counts, times = [], []
    for run in (each := list(runs)):
        run()
        start = perf_counter()
        run()
        counts.append(max(1, int(SECONDS / (perf_counter() - start))))
        times.append([])
    for _ in range(rounds):
        for run, count, found in zip(each, counts, times, strict=True):
            run()
            start = perf_counter()
            for _ in range(count):
                run()
            found.append((perf_counter() - start) / count)
    return [float(np.quantile(found, 0.25)) for found in times]


def measure(each: Case, threads: int, rounds: int) -> tuple[float, float]:
    """Seconds of graphc and of onnxruntime for a case, without what the addition alone takes."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    runs: list[Callable[[], Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        for number, one in enumerate((each, None)):
            path = Path(folder, f"{number}.onnx")
            onnx.save(model_of(one, each.x), path)
            model, session = graphc.compile(path, threads=threads), onnxruntime.InferenceSession(path, options)
            runs.append(lambda model=model: model.run(x=each.x))  # type: ignore[misc]
            runs.append(lambda session=session: session.run(None, {"x": each.x}))  # type: ignore[misc]
        own, other, own_alone, other_alone = quartiles(runs, rounds)
    return max(own - own_alone, 1e-6), max(other - other_alone, 1e-6)


def main() -> None:
    """Print a line for each case, and the slowest again."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("operators", nargs="*", help="all, if there are none")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=7)
    arguments = parser.parse_args()
    found = []
    for each in cases():
        if arguments.operators and each.operator not in arguments.operators:
            continue
        try:
            own, other = measure(each, arguments.threads, arguments.rounds)
        except Exception as error:
            print(f"{each.label}: {type(error).__name__}: {str(error).splitlines()[0][:120]}", flush=True)
            continue
        found.append((own / other, each.label, own, other))
        print(f"{each.label:48} {own * 1e6:10.0f} {other * 1e6:10.0f} {own / other:7.2f}", flush=True)
    print("\nthe slowest in comparison:")
    for ratio, label, own, other in sorted(found)[-20:]:
        print(f"{label:48} {own * 1e6:10.0f} {other * 1e6:10.0f} {ratio:7.2f}")


if __name__ == "__main__":
    main()
