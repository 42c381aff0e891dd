"""Models on a device other than the CPU: `GRAPHC_TEST_DEVICE=vulkan0 pytest tests/test_device.py`.

The backend must be installed (`graphc backend install vulkan`). CI does it with Mesa's software device.
"""

import functools
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from small_models import dense_model, dense_result
from suite import pool
from suite.cases import load_cases
from suite.cpp import sample
from suite.quick_cpp import build_quickly
from suite.refusals import expected_status
from suite.run import run_case
from ways import ways_in

import graphc
from graphc.backends.install import installed
from graphc.backends.precision import given_up, set_float32_matmul_precision
from graphc.compiler import compile_program
from graphc.errors import GraphcError, InputError
from graphc.ir.graph import Graph
from graphc.ir.types import TensorType
from graphc.ops.attention import Attention
from graphc.ops.conv import Conv
from graphc.runtime.assigned import assigned
from graphc.runtime.compare import relative_error
from graphc.runtime.profile import profile
from graphc.targets.ggml.lowering.lower import lower
from graphc.targets.ggml.run.choose import assign as assigning
from graphc.targets.ggml.run.device.options import Place
from graphc.targets.ggml.run.executor import Executor

DEVICE = os.environ.get("GRAPHC_TEST_DEVICE", "")
pytestmark = pytest.mark.skipif(not DEVICE, reason="GRAPHC_TEST_DEVICE names no device")

MODELS = (
    "tiny_cnn",
    "sd15_clip_small",
    "sd15_unet_small",
    "sd15_vae_decoder_small",
    *(pytest.param(name, marks=pytest.mark.thorough) for name in ("bert", "flux_transformer", "t5_encoder")),
)
"""Of the zoo: what its first models are made of."""

BOUND = 1e-5
"""Of a model's largest output. Float32 itself has errors of some 1e-6 here; float16 inside, of 1e-3."""

SHADER_SECONDS = 600
"""What a case may take whose shaders a device of software compiles for the first time."""


@pytest.fixture(scope="module")
def zoo():
    pytest.importorskip("torch")
    sys.path.insert(0, str(Path(__file__).parent.parent / "examples"))
    import export
    import zoo

    return lambda name, folder: export.export(zoo.EXAMPLES[name], "dynamo", folder)


@pytest.mark.parametrize("name", MODELS)
def test_a_model_gives_the_numbers_of_pytorch(name, zoo, tmp_path):
    path = zoo(name, tmp_path)
    inputs, expected = dict(np.load(tmp_path / "inputs.npz")), dict(np.load(tmp_path / "outputs.npz"))
    on_cpu = relative_error(graphc.compile(path).run(inputs), expected)
    model = graphc.compile(path, device=DEVICE)
    assert relative_error(model.run(inputs), expected) <= max(BOUND, 3 * on_cpu)
    assert relative_error(model.run(inputs), expected) <= max(BOUND, 3 * on_cpu), "the second run"


def test_a_picture_is_that_of_the_cpu():
    """From words to pixels, by the small model that comes with graphc_images."""
    pytest.importorskip("PIL")
    import graphc_images

    asked = {"prompt": "a red circle left of a blue square", "seed": 1, "steps": 2, "sampler": "Euler"}
    (expected,) = graphc_images.load(types="f32")(**asked)
    (found,) = graphc_images.load(types="f32", device=DEVICE)(**asked)  # products with float16 round the other side too
    assert np.abs(found.latent - expected.latent).max() < 1e-4 * np.abs(expected.latent).max()
    apart = np.abs(np.asarray(found.image, int) - np.asarray(expected.image, int))
    assert (apart <= 1).mean() > 0.999


@pytest.mark.thorough
@pytest.mark.parametrize("stride", [16, 1])
def test_cases_of_onnx_do_what_they_do_on_the_cpu(monkeypatch, stride):
    """The first of each operator, and every sixteenth; all of them where that is asked for."""
    monkeypatch.setattr(pool, "TIME_LIMIT", SHADER_SECONDS)
    cases = sample([case for case in load_cases() if case.group != "real"], stride)
    outcomes = pool.run_all(cases, functools.partial(run_case, device=DEVICE))
    surprising = [each for each in outcomes if each.status != expected_status(each.name)]
    assert not surprising, "\n".join(f"{each.status} {each.name}: {each.reason}" for each in surprising)


def test_a_gate_is_one_step():
    """What stands between the two products of a feed-forward network of Flux and Llama."""
    torch = pytest.importorskip("torch")

    class Gated(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.left, self.right = torch.nn.Linear(32, 64), torch.nn.Linear(32, 64)

        def forward(self, x):
            left, right = self.left(x), self.right(x)
            return torch.nn.functional.silu(left) * right, right * torch.nn.functional.gelu(left)

    torch.manual_seed(0)
    module, x = Gated().eval(), torch.randn(5, 32)
    model = graphc.from_torch(module, (x,), device=DEVICE)
    with torch.no_grad():
        for got, expected in zip(model.run({model.inputs[0].name: x.numpy()}).values(), module(x), strict=True):
            np.testing.assert_allclose(got, expected.numpy(), rtol=1e-5, atol=1e-6)
    (graph,) = model.executor.graphs
    operators = [assigning.ggml.ggml_op_name(node.contents.op) for node in graph.placement.nodes]
    assert operators.count(b"GLU") == 2
    assert b"MUL" not in operators


def test_sizes_change_from_run_to_run():
    model = graphc.compile(dense_model(), device=DEVICE)
    for rows in (4, 70, 1, 4):
        x = np.random.default_rng(rows).standard_normal((rows, 3)).astype(np.float32)
        result = model.run(x=x)
        for name, expected in zip(("scores", "product"), dense_result(x), strict=True):
            np.testing.assert_allclose(result[name], expected, rtol=1e-5, atol=1e-6)


def test_weights_are_replaced_on_the_device():
    model = graphc.compile(dense_model(), device=DEVICE)
    x = np.ones((2, 3), np.float32)
    before = model.run(x=x)["scores"]
    weight, bias = np.full((3, 4), 0.5, np.float32), np.ones(4, np.float32)
    model.load_weights({"dense.weight": weight, "dense.bias": bias})
    np.testing.assert_allclose(model.run(x=x)["scores"], np.full((2, 4), 2.5), rtol=1e-6)
    assert not np.allclose(before, 2.5)


def test_a_weight_that_is_larger_than_a_device_takes_stays_on_the_host():
    table = (
        np.arange(70_000 * 512, dtype=np.float32).reshape(70_000, 512) % 1000
    )  # 137 MiB; some devices' buffers have 128
    node = helper.make_node("Gather", ["table", "ids"], ["rows"])
    ids = helper.make_tensor_value_info("ids", TensorProto.INT64, [3])
    rows = helper.make_tensor_value_info("rows", TensorProto.FLOAT, [3, 512])
    graph = helper.make_graph([node], "table", [ids], [rows], [numpy_helper.from_array(table, "table")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    chosen = np.array([0, 69_999, 1234])
    assert np.array_equal(graphc.compile(model, device=DEVICE).run(ids=chosen)["rows"], table[chosen])


def between_model() -> onnx.ModelProto:
    """Erf and Mod, which GPUs' backends have not, with a sum between them, and a product before."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["product"]),
        helper.make_node("Mod", ["product", "one"], ["first"], fmod=1),
        helper.make_node("Add", ["first", "one"], ["sum"]),
        helper.make_node("Mod", ["sum", "one"], ["y"], fmod=1),
    ]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [8, 8]) for name in "xy")
    weights = {"w": np.eye(8, dtype=np.float32) * 2.25, "one": np.full((8, 8), 1.5, np.float32)}
    given = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "between", [x], [y], given)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def test_what_the_device_cannot_compute_is_computed_by_the_cpu():
    x = np.random.default_rng(0).random((8, 8), np.float32)
    expected = np.fmod(np.fmod(x * np.float32(2.25), 1.5) + 1.5, 1.5)
    np.testing.assert_allclose(
        graphc.compile(between_model(), device=DEVICE).run(x=x)["y"], expected, rtol=1e-5, atol=1e-6
    )
    found = assigned(compile_program(between_model()), Place(DEVICE), {})
    assert found.devices.total() >= 1
    assert found.cpu["the device cannot"] == {"kernel Fmod": 2}
    assert found.cpu["between two of those"] == {"add": 1}, "the sum between them stays with them"
    assert found.moved_bytes == 2 * 8 * 8 * 4, "the product and a weight"


def test_steps_are_timed_with_what_is_copied_between_devices():
    model, inputs = graphc.compile(between_model(), device=DEVICE), {"x": np.ones((8, 8), np.float32)}
    timings = profile(model, inputs, rounds=2)
    steps = [each.step for each in timings if not each.copies]
    assert steps == ["linear", "kernel Fmod", "add", "kernel Fmod"]
    (there,) = {each.device for each in timings if each.step == "linear"}
    assert there.lower().startswith(DEVICE.rstrip("0123456789"))
    copies = [(each.step, each.nbytes, each.number) for each in timings if each.copies]
    assert copies[0] == (f"copy to {there}", 8 * 8 * 4, -1), "the input"
    assert copies[1][0] == "copy to CPU"
    assert all(each.seconds > 0 for each in timings)
    assert {each.device for each in timings if "Fmod" in each.step} == {"CPU"}


def test_every_instrument_works_on_the_device(zoo, tmp_path):
    path = zoo("bert", tmp_path)
    common = ["--inputs", tmp_path / "inputs.npz", "--device", f"{DEVICE},cpu", "--memory", "300KiB"]
    for command, said in (
        (["diff", path, *common, "--tolerance", "1e-4"], "no divergence"),
        (["profile", path, *common, "--rounds", 1], "copy to"),
        (
            ["bench", path, *common, "--rounds", 1, "--runtime", "graphc", "--runtime", "onnxruntime"],
            f"graphc on {DEVICE}",
        ),
        (["view", path, *common, "--profile", "-o", tmp_path / "page.html"], "wrote"),
        (["check", path, *common[2:]], "intermediate results"),
    ):
        arguments = [sys.executable, "-m", "graphc.cli", *map(str, command)]
        done = subprocess.run(arguments, capture_output=True, text=True, timeout=600, check=False)
        assert done.returncode == 0, done.stderr
        assert said in done.stdout


def test_a_device_keeps_its_precision():
    graphc.compile(dense_model(), device=DEVICE)
    with pytest.raises(InputError, match="opened with the precision highest"):
        set_float32_matmul_precision("high")


def test_fast_gives_up_digits_and_says_so(zoo, tmp_path):
    path = zoo("bert", tmp_path)
    arguments = [
        "run",
        path,
        "--inputs",
        tmp_path / "inputs.npz",
        "--device",
        DEVICE,
        "--fast",
        "-o",
        tmp_path / "got.npz",
    ]
    command = [sys.executable, "-m", "graphc.cli", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    assert "fast: products are computed in" in done.stderr
    assert relative_error(dict(np.load(tmp_path / "got.npz")), dict(np.load(tmp_path / "outputs.npz"))) < 0.02
    assert not given_up("CPU")


def test_an_unknown_device_is_an_error_that_names_those_there_are():
    with pytest.raises(GraphcError, match=r"no device 'abacus7'; there is .*CPU"):
        graphc.compile(dense_model(), device="abacus7")


CONV = Conv((1, 1), (1, 1), (1, 1), (1, 1))
CHOSEN = {
    "convolution": ((CONV, (1, 5, 9, 7), (6, 5, 3, 3)), {"columns": b"IM2COL", "direct": b"CONV_2D"}),
    "attention": ((Attention(0.3), *[(1, 2, 30, 64)] * 3), {"scores": b"SOFT_MAX", "flash": b"FLASH_ATTN_EXT"}),
}  # fmt: skip
"""Operators with the shapes of what they read, and ways of computing them, each with what ggml's graph then has."""


def computed(name, choices):
    """One of `CHOSEN` on the device with these choices: its error, the way that was taken, and the operators of the graph."""
    (op, *shapes), _ = CHOSEN[name]
    rng = np.random.default_rng(3)
    arrays = {f"x{i}": rng.standard_normal(shape).astype(np.float32) for i, shape in enumerate(shapes)}
    graph = Graph()
    values = [graph.input(each, TensorType(array.dtype, array.shape)) for each, array in arrays.items()]
    graph.output(graph.add(op, values).output, "y")
    executor = Executor(lower(graph), [], DEVICE)
    executor.choices = choices
    (result,) = executor.run(arrays, {})
    (exact,) = op.eval(*(array.astype(np.float64) for array in arrays.values()))
    (built,) = executor.graphs
    (taken,) = built.taken.values()
    operators = {assigning.ggml.ggml_op_name(node.contents.op) for node in built.placement.nodes}
    return relative_error({"y": result}, {"y": exact}), taken, operators


@pytest.mark.parametrize("name", CHOSEN)
def test_a_way_that_was_chosen_is_taken(name):
    """If the device has it; the CPU's are not."""
    marks = CHOSEN[name][1]
    usual = computed(name, b"")[1]
    for way in (*marks, "winograd"):
        wrong, taken, operators = computed(name, f"{usual.key} = {way}".encode())
        assert [each for each, mark in marks.items() if mark in operators] == [taken.way]
        assert taken.way == (way if way in marks and DEVICE.startswith("vulkan") else usual.way)
        assert wrong <= BOUND


def test_ways_are_measured_on_the_device(graphc_command, zoo, tmp_path, monkeypatch):
    path = zoo("sd15_vae_decoder_small", tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    done = graphc_command("tune", path, "--device", DEVICE, "--inputs", tmp_path / "inputs.npz", "--json")
    assert done.status == 0, done.err
    found = json.loads(done.out)
    steady = {each["key"]: each["way"] for each in found["calls"] if each["steady"]}
    assert ways_in(Path(found["file"]).read_bytes()) == steady
    assert "conv_2d" in {each["key"].split()[0] for each in found["calls"]}
    monkeypatch.delenv("GRAPHC_WAYS")
    model = graphc.compile(path, device=DEVICE)
    assert ways_in(model.executor.choices) == steady
    inputs, expected = dict(np.load(tmp_path / "inputs.npz")), dict(np.load(tmp_path / "outputs.npz"))
    assert relative_error(model.run(inputs), expected) <= BOUND


@pytest.mark.skipif(not DEVICE.startswith("vulkan"), reason="the backend's library is Vulkan's")
def test_the_cpp_program_runs_on_the_device(zoo, tmp_path, monkeypatch):
    path = zoo("sd15_unet_small", tmp_path)
    inputs, expected = dict(np.load(tmp_path / "inputs.npz")), dict(np.load(tmp_path / "outputs.npz"))
    graphc.compile(path, tmp_path / "model.gguf", cpp=tmp_path / "cpp")
    program = build_quickly(tmp_path / "cpp")
    given = []
    for name, array in inputs.items():
        np.save(tmp_path / f"{name}.npy", array)
        given += ["--input", f"{name}={tmp_path / name}.npy"]
    command = [program, "--engine", tmp_path / "model.gguf", *given, "--device", DEVICE, "--output", tmp_path]
    environment = {**os.environ, "GGML_BACKEND_PATH": str(installed()["vulkan"])}
    model, ways = graphc.load(tmp_path / "model.gguf", device=DEVICE), tmp_path / "ways.txt"
    for options in ([], ["--ways", ways]):
        in_process = model.run(inputs)
        for memory in ([], ["--memory", "4MiB", "--repeat", "3"]):
            done = subprocess.run(
                [*command, *options, *memory],
                env=environment,
                timeout=600,
                check=True,
                stdout=subprocess.PIPE,
                text=True,
            )
            assert ("streamed through 2 x" in done.stdout) == bool(memory)
            got = {name: np.load(tmp_path / f"{name}.npy") for name in expected}
            assert relative_error(got, expected) <= BOUND
            assert all(got[name].tobytes() == in_process[name].tobytes() for name in expected)
        others = {"columns": "direct", "direct": "columns", "scores": "flash", "flash": "scores"}
        taken = {each.key: others[each.way] for graph in model.executor.graphs for each in graph.taken.values()}
        ways.write_text("".join(f"{key} = {way}\n" for key, way in taken.items()))
        monkeypatch.setenv("GRAPHC_WAYS", str(ways))
        model = graphc.load(tmp_path / "model.gguf", device=DEVICE)
