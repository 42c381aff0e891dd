"""The command line: results on stdout, one clear message on stderr, and a status that a script can trust."""

from __future__ import annotations

import json
import os
import re
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from gguf import GGUFWriter
from onnx import TensorProto, helper
from safetensors.numpy import save_file
from small_models import BIAS, WEIGHT, dense_model, dense_result, stored, unsupported_model

import graphc
import graphc.runtime.compare
from graphc import onnx_backend
from graphc.errors import EngineError

X = np.array([[1, 2, 3], [-1, 0.5, 2]], np.float32)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    (tmp_path / "a folder").mkdir()
    proto = dense_model()
    helper.set_model_props(proto, {"graphc.example": '{"x": [2, 3]}'})
    return stored(proto, tmp_path / "a folder" / "dénse model.onnx")


@pytest.fixture
def engine(graphc_command, model: Path) -> Path:
    assert graphc_command("compile", model, "-o", "engine.gguf").status == 0
    return Path("engine.gguf").absolute()


def separate(*arguments: object, **settings: object) -> subprocess.CompletedProcess[str]:
    """Runs a command in a process of its own."""
    command = [sys.executable, "-m", "graphc.cli", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, **settings)


def test_compile_says_what_it_wrote(graphc_command, model: Path) -> None:
    done = graphc_command("compile", model)
    assert done.status == 0
    assert model.with_suffix(".gguf").exists()
    assert "16 parameters" in done.out
    assert done.err == ""


def test_run_reads_and_writes_arrays(graphc_command, engine: Path, model: Path) -> None:
    np.savez("in.npz", x=X)
    np.save("x.npy", X)
    for inputs in (("--inputs", "in.npz"), ("--input", "x=x.npy")):
        for source in (engine, model):
            done = graphc_command("run", source, *inputs, "-o", "out.npz")
            assert done.status == 0, done.err
            with np.load("out.npz") as found:
                for name, expected in zip(("scores", "product"), dense_result(X), strict=True):
                    np.testing.assert_allclose(found[name], expected, rtol=1e-5, atol=1e-6)
    assert (
        graphc_command("run", engine, "--input", "x=x.npy", "-o", "folder", "--repeat", 3, "--threads", 1).status == 0
    )
    assert sorted(os.listdir("folder")) == ["product.npy", "scores.npy"]


def test_random_inputs_are_the_same_for_the_same_seed(graphc_command, engine: Path) -> None:
    outputs = [graphc_command("run", engine, "--random", seed, "--dim", "batch=3").out for seed in (1, 1, 2)]
    assert outputs[0] == outputs[1] != outputs[2]
    assert "float32[3, 4]" in outputs[0]


@pytest.mark.parametrize("command", ["run", "profile", "tune", "bench", "diff", "bisect", "view"])
def test_a_seed_below_0_is_none(graphc_command, model: Path, command: str) -> None:
    done = graphc_command(command, model, "--random", -1)
    assert done.status == 2
    assert "greater than or equal to 0" in " ".join(done.err.replace("│", " ").split())


@pytest.mark.parametrize("command", ["run --random 0", "profile", "tune", "bench --runtime graphc", "diff", "bisect"])
def test_open_sizes_are_asked_for_or_those_of_the_example(
    graphc_command, tmp_path: Path, model: Path, command: str
) -> None:
    name, *options = command.split()
    asked = graphc_command(name, stored(dense_model(), tmp_path / "m.onnx"), *options)
    assert (asked.status, asked.out) == (1, "")
    assert "sizes that the model leaves open" in asked.err
    assert "--dim batch=1" in asked.err
    done = graphc_command(name, model, *options)
    assert done.status == 0, done.err
    if name != "bisect":
        assert "sizes: batch=2 (those of the exporter's example; --dim gives others)" in done.err
    done = graphc_command(name, model, *options, "--dim", "batch=3")
    assert done.status == 0, done.err
    assert "example" not in done.err


def test_sizes_of_given_inputs_are_those_of_random_ones(graphc_command, tmp_path: Path) -> None:
    info = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 2]) for name in "xyz"]
    graph = helper.make_graph([helper.make_node("Add", ["x", "y"], ["z"])], "sum", info[:2], info[2:])
    path = stored(helper.make_model(graph, ir_version=10), tmp_path / "m.onnx")
    np.save("x.npy", np.zeros((5, 2), np.float32))
    done = graphc_command("run", path, "--input", "x=x.npy", "--random", 0)
    assert done.status == 0, done.err
    assert "sizes: n=5\n" in done.err
    assert "float32[5, 2]" in done.out


@pytest.mark.parametrize(
    "example", ["{", "[]", "3", '{"x": [2, 4]}', '{"x": [0, 3]}', '{"x": ["a", 3]}', '{"x": 7}', "[" * 5000]
)
def test_an_example_that_does_not_fit_is_none(graphc_command, tmp_path: Path, example: str) -> None:
    proto = dense_model()
    helper.set_model_props(proto, {"graphc.example": example})
    done = graphc_command("run", stored(proto, tmp_path / "m.onnx"), "--random", 0)
    assert (done.status, done.out) == (1, "")
    assert "--dim batch=1" in done.err


def test_a_busy_machine_is_noticed(graphc_command, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from graphc.runtime.busy import Watch

    seconds = iter(range(0, 1000, 100))
    monkeypatch.setattr("graphc.runtime.busy._busy_seconds", lambda: float(next(seconds)))
    for command in ("profile", "tune"):
        assert "measure again when the machine does nothing else" in graphc_command(command, model).err
    monkeypatch.setattr("graphc.runtime.busy._busy_seconds", lambda: None)  # where the system does not tell
    with Watch(1) as watch:
        pass
    assert watch.warning == ""


def test_dim_pins_a_size(graphc_command, model: Path) -> None:
    assert graphc_command("compile", model, "-o", "e.gguf", "--dim", "batch=5").status == 0
    assert "float32[5, 3]" in graphc_command("inspect", "e.gguf").out
    np.save("x.npy", X)
    assert "must be 5" in graphc_command("run", "e.gguf", "--input", "x=x.npy").err


def test_names_of_a_model_stay_names(graphc_command, tmp_path: Path) -> None:
    for name in ("../../evil", '"); system("touch evil', "\x1b[31mred\x07", ".hidden", "a" * 300, "日本"):
        path = stored(dense_model(name), tmp_path / "m.onnx")
        for target in ("folder", "out.npz"):
            done = graphc_command("run", path, "--random", 0, "--dim", "batch=1", "-o", target)
            assert done.status == 0, done.err
            assert "\x1b" not in done.out
            assert "\x07" not in done.out
    assert all(entry.suffix == ".npy" for entry in (tmp_path / "folder").iterdir())
    assert not (tmp_path.parent.parent / "evil.npy").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("compile", "missing.onnx"), "missing.onnx"),
        (("compile", "text.onnx"), "not an ONNX model"),
        (("compile", "m.onnx", "-o", "no/such/folder/e.gguf"), "no such folder"),
        (("compile", "m.onnx", "-o", "."), "is a directory"),
        (("compile", "m.onnx", "-o", "m.onnx"), "overwrite the model"),
        (("compile", "m.onnx", "--dim", "batch"), "must be NAME=SIZE"),
        (("compile", "m.onnx", "--dim", "batch=0"), "must be NAME=SIZE"),
        (("compile", "m.onnx", "--dim", "nothing=4"), "nothing"),
        (("run", "m.onnx"), "give the inputs"),
        (("run", "m.onnx", "--input", "x"), "must be NAME=FILE"),
        (("run", "m.onnx", "--input", "x=missing.npy"), "no such file"),
        (("run", "m.onnx", "--input", "x=text.onnx"), "not an array file"),
        (("run", "m.onnx", "--input", "y=x.npy"), "no such input"),
        (("run", "m.onnx", "--inputs", "x.npy"), "not an .npz file"),
        (("run", "m.onnx", "--inputs", "cut.npz"), "cut.npz"),
        (("run", "m.onnx", "--random", "0", "--device", "abacus"), "abacus"),
        (("run", "m.onnx", "--random", "0", "--dim", "height=3"), "height"),
        (("run", "cut.gguf", "--random", "0"), "cut off"),
        (("diff", "cut.gguf"), "is an engine"),
        (("build", "missing"), "missing"),
    ],
)  # fmt: skip
def test_bad_input_is_one_message(graphc_command, tmp_path: Path, arguments: tuple[str, ...], message: str) -> None:
    stored(dense_model(), tmp_path / "m.onnx")
    (tmp_path / "text.onnx").write_text("not a model\n")
    (tmp_path / "cut.npz").write_bytes(b"PK\x03\x04 cut")
    np.save("x.npy", X)
    graphc_command("compile", "m.onnx", "-o", "e.gguf")
    (tmp_path / "cut.gguf").write_bytes((tmp_path / "e.gguf").read_bytes()[:-32])
    before = sorted(os.listdir(tmp_path))
    done = graphc_command(*arguments)
    assert done.status == 1
    assert done.out == ""
    assert done.err.startswith("error: ")
    assert message in done.err
    assert "Traceback" not in done.err
    assert sorted(os.listdir(tmp_path)) == before


def test_debug_shows_where(graphc_command) -> None:
    done = graphc_command("--debug", "compile", "missing.onnx")
    assert done.status == 1
    assert "Traceback" in done.err


def test_a_wrong_command_line(graphc_command) -> None:
    assert graphc_command("frobnicate").status == 2
    assert graphc_command("run").status == 2
    assert graphc_command("--version").out.startswith("graphc ")


def test_check_lists_everything_unsupported(graphc_command, tmp_path: Path, model: Path) -> None:
    bad = stored(unsupported_model(), tmp_path / "bad.onnx")
    done = graphc_command("check", bad)
    assert done.status == 1
    assert "first" in done.out
    assert "second" in done.out
    listed = json.loads(graphc_command("check", bad, "--json").out)
    assert not listed["supported"]
    assert {problem["node"] for problem in listed["problems"]} == {"first", "second"}
    assert all("Frobnicate" in problem["operator"] and problem["reason"] for problem in listed["problems"])
    assert graphc_command("check", model).status == 0
    assert json.loads(graphc_command("check", model, "--json").out)["supported"]
    done = graphc_command("compile", bad)
    assert done.status == 1
    assert "second" in done.err


AXES = """<ir_version: 10, opset_import: ["": 21]>
sums (float[2, 3] x, int64[k] axes) => (float[a, b] y) { y = ReduceSum(x, axes) }"""


def test_what_depends_on_an_input_is_one_error_that_says_what_to_do(graphc_command, tmp_path: Path) -> None:
    proto = onnx.parser.parse_model(AXES)
    path = stored(proto, tmp_path / "sums.onnx")
    done = graphc_command("compile", path, "-o", tmp_path / "sums.gguf", "--cpp", tmp_path / "cpp")
    assert done.status == 1
    assert done.err.startswith("error: 1 unsupported node:")
    assert "the axes depends on the input axes; an engine or a C++ project needs it as a constant" in done.err
    assert len(done.err.strip().splitlines()) == 2
    assert os.listdir(tmp_path) == ["sums.onnx"]
    (y,) = onnx_backend.run_model(proto, [np.ones((2, 3), np.float32), np.array([1])])
    np.testing.assert_array_equal(y, [[3], [3]])


WAYS = """<ir_version: 10, opset_import: ["": 21]>
ways (float[n, 4] x, int64 trips) => (float[m, 4] y, float[k, 2] z) {
    axis = Constant<value = int64 {0}>()
    shape = Constant<value = int64[2] {-1, 2}>()
    a = Add(x, x)
    b = CumSum(a, axis)
    c = Erf(b)
    z = Reshape(c, shape)
    y = Loop(trips, , c) <body = body (int64 i, bool going, float[n, 4] p) => (bool again, float[n, 4] q) {
        again = Identity(going)
        r = Erf(p)
        q = Add(r, x)
    }>
}"""


def test_check_says_how_operators_are_computed(graphc_command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = stored(onnx.parser.parse_model(WAYS), tmp_path / "ways.onnx")
    found = json.loads(graphc_command("check", path, "--json").out)
    assert {name: each["computed_by"] for name, each in found["operators"].items()} == {
        "Add": ["ggml calls"],
        "CumSum": ["routine"],
        "Erf": ["kernel"],
        "Loop": ["host"],
        "Reshape": ["no call"],
    }
    assert (found["operators"]["Add"]["nodes"], found["routines"], found["kernels"]) == (2, 1, 1)
    shown = graphc_command("check", path).out
    assert "1 routines, 1 generated kernels" in shown
    assert re.search(r"CumSum +1  routine\n", shown)
    assert "NumPy" not in shown
    monkeypatch.setattr("graphc.targets.ggml.run.choose.library.find_compiler", lambda: None)
    assert "run in NumPy" in graphc_command("check", path).out


@pytest.mark.parametrize("reference", ["numpy", "onnxruntime"])
def test_diff_finds_no_difference(graphc_command, model: Path, reference: str) -> None:
    pytest.importorskip(reference)
    done = graphc_command("diff", model, "--dim", "batch=3", "--reference", reference, "--json")
    assert done.status == 0, done.err
    found = json.loads(done.out)
    assert found["reference"] == reference
    assert found["first_divergence"] is None
    assert {"scores", "product"} <= {each["name"] for each in found["tensors"]}
    assert all(each["relative"] < 1e-5 for each in found["tensors"])


def test_diff_shows_the_first_divergence(graphc_command, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def disturbed(graph, inputs, names):
        product = inputs["x"] @ np.zeros((3, 4), np.float32)
        product[0, 1] = np.nan
        return {"product": product, "scores": dense_result(inputs["x"])[0] + 0.01}

    monkeypatch.setattr(graphc.runtime.compare, "by_numpy", disturbed)
    done = graphc_command("diff", model, "--reference", "numpy")
    assert done.status == 1
    assert "first divergence: product (MatMul), inf" in done.out
    assert "reference nan" in done.out
    rows = [line.split()[0] for line in done.out.splitlines() if line.startswith(("product", "scores"))]
    assert rows == ["product", "scores"]
    assert (
        json.loads(graphc_command("diff", model, "--reference", "numpy", "--json").out)["tensors"][0]["relative"]
        == "inf"
    )
    assert graphc_command("diff", model, "--reference", "numpy", "--tolerance", "inf").status == 0


def test_profile_times_every_step(graphc_command, model: Path, engine: Path) -> None:
    for path in (model, engine):
        found = json.loads(graphc_command("profile", path, "--dim", "batch=100", "--trace", "trace.json", "--json").out)
        steps = [step["step"] for step in found["steps"]]
        assert steps == ["linear", "scaled_sum + sums + relu"]
        (kind,) = (kind for kind in found["kinds"] if kind["name"] == "linear")
        assert (kind["count"], kind["operations"]) == (1, 2 * 100 * 3 * 4)
        assert all(step["seconds"] > 0 for step in found["steps"])
        events = json.loads(Path("trace.json").read_text())["traceEvents"]
        assert [event["args"]["result"] for event in events] == ["[100, 4]"] * 2
        assert found["peaks"]["gflops"] > 1
        assert (found["products"]["count"], found["copies"]["count"]) == (1, 0)
    text = graphc_command("profile", model, "--dim", "batch=1").out
    assert "linear" in text
    assert "scaled_sum" in text
    assert "of peak" in text
    graphc_command("profile", model, "--dim", "batch=2", "--roofline", "roofline.svg")
    assert Path("roofline.svg").read_text().startswith("<svg")


def test_view_writes_a_page(graphc_command, model: Path, engine: Path) -> None:
    assert graphc_command("view", model).status == 0
    assert model.with_suffix(".html").read_text().startswith("<!DOCTYPE html>")
    done = graphc_command("view", engine, "-o", "timed.html", "--profile", "--dim", "batch=50", "--threads", 1)
    assert (done.status, done.out) == (0, "wrote timed.html\n")
    data = json.loads(
        re.search(r'<script type="application/json" id="model">(.*?)</script>', Path("timed.html").read_text())[1]
    )
    assert data["sizes"] == {"batch": 50}
    assert sum("seconds" in step for step in data["steps"]) == 2
    for arguments in (("view", model, "-o", "."), ("view", "missing.onnx"), ("view", model, "-o", "no/such/x.html")):
        refused = graphc_command(*arguments)
        assert refused.status == 1
        assert len(refused.err.splitlines()) == 1


def test_bench_runs_what_is_installed(graphc_command, model: Path) -> None:
    wanted = ("--runtime", "graphc", "--runtime", "onnxruntime", "--dim", "batch=3", "--rounds", 1)
    found = json.loads(graphc_command("bench", model, *wanted, "--plot", "plot.svg", "--json").out)
    assert found["versions"]["onnxruntime"]
    assert [each["runtime"] for each in found["results"]] == ["graphc", "onnxruntime"]
    for each in found["results"]:
        assert not each["problem"]
        assert each["error"] < 1e-6
    assert Path("plot.svg").read_text().startswith("<svg")
    assert "peak memory" in graphc_command("bench", model, *wanted).out
    refused = graphc_command("bench", model, "--runtime", "abacus")
    assert (refused.status, refused.out) == (1, "")
    assert "no runtime is called abacus" in refused.err


RUNS = (
    "run --random 0",
    "diff",
    "bench --runtime graphc --rounds 1",
    "profile",
    "tune",
    "view --profile",
    "bisect",
    "demo",
)
"""Every command that runs a model, or says how it runs."""


@pytest.mark.parametrize("command", RUNS)
def test_every_command_that_runs_a_model_takes_a_device(graphc_command, model: Path, command: str) -> None:
    name, *options = command.split()
    arguments = [name, *([] if name == "demo" else [model]), *options]
    for place, message in (
        (("--device", "abacus7"), "no device 'abacus7'; there is CPU"),
        (("--device", "rpc://"), "no address of a server"),
        (("--memory", "much"), "not an amount of memory"),
        (("--memory", "1GiB"), "1 limits of memory are given for the CPU, which uses weights where they lie"),
    ):
        done = graphc_command(*arguments, *place)
        if name == "bench" and "amount" not in message:  # a runtime that fails is a row of its table
            assert message[:40] in done.out
            continue
        assert (done.status, done.err.count("error: ")) == (1, 1), done.err
        assert message in done.err


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("view MODEL --device cpu,cpu", "say where --profile runs the model"),
        ("bisect MODEL --by numpy --threads 1", "they are not for --by numpy"),
        ("bench MODEL --device cuda0 --runtime onnxruntime --runtime ggml", "no runtime is called ggml"),
    ],
)
def test_options_that_cannot_be_combined(graphc_command, model: Path, command: str, message: str) -> None:
    done = graphc_command(*(model if word == "MODEL" else word for word in command.split()))
    assert (done.status, done.out) == (1, "")
    assert message in done.err


def test_inspect_counts(graphc_command, model: Path, engine: Path) -> None:
    for path in (model, engine):
        found = json.loads(graphc_command("inspect", path, "--dim", "batch=10", "--json").out)
        counts = {row["call"]: row["operations"] for row in found["calls"]}
        assert counts["ggml_mul_mat"] == 2 * 10 * 3 * 4
        assert counts["ggml_add"] == 10 * 4
        assert found["operations"] == sum(counts.values())
        assert found["parameters"] == 16
        assert found["weight_bytes"] == 64
        assert found["peak_intermediate_bytes"] >= 10 * (3 + 4 + 4) * 4
    symbolic = json.loads(graphc_command("inspect", engine, "--json").out)
    assert symbolic["peak_intermediate_bytes"] is None
    assert "batch" in symbolic["operations"]
    text = graphc_command("inspect", model).out
    assert "MatMul 1" in text
    assert "x: float32[batch, 3]" in text


def test_inspect_shows_memory(graphc_command, model: Path, engine: Path) -> None:
    for path, where in ((model, "in memory"), (engine, "mapped")):
        done = graphc_command("inspect", path, "--memory", "--dim", "batch=1000")
        assert done.status == 0, done.err
        assert where in done.out
        assert "at step" in done.out
        assert "[1000, 4]" in done.out
    found = json.loads(graphc_command("inspect", engine, "--memory", "--dim", "batch=1000", "--json").out)
    (section,) = found["memory"]["sections"]
    assert found["peak_intermediate_bytes"] <= max(section["live_bytes"]) <= section["reserved_bytes"]
    refused = graphc_command("inspect", engine, "--memory")
    assert refused.status == 1
    assert "memory depends on batch" in refused.err


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """Other weights for the model, in a GGUF file."""
    writer = GGUFWriter(tmp_path / "weights.gguf", "dense")
    writer.add_tensor("dense.weight", WEIGHT * 2)
    writer.add_tensor("dense.bias", BIAS - 1)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return tmp_path / "weights.gguf"


def test_refit_puts_other_weights_in(graphc_command, model: Path, checkpoint: Path) -> None:
    graphc_command("compile", model, "-o", "whole.gguf")
    stripped = graphc_command("compile", model, "-o", "stripped.gguf", "--strip-weights")
    assert "left out: give them with --weights" in stripped.out
    done = graphc_command("refit", "stripped.gguf", checkpoint, "-o", "new.gguf")
    assert (done.status, done.out) == (0, "new.gguf: 2 weights of 2 parameters, 0 as before\n")
    np.save("x.npy", X)
    expected = np.maximum(X @ (WEIGHT * 2) + BIAS - 1, 0)
    for arguments in (["new.gguf"], ["stripped.gguf", "--weights", checkpoint], [model, "--weights", checkpoint]):
        assert graphc_command("run", *arguments, "--input", "x=x.npy", "-o", "out.npz").status == 0
        np.testing.assert_allclose(np.load("out.npz")["scores"], expected, rtol=1e-6)
    refused = graphc_command("run", "stripped.gguf", "--input", "x=x.npy")
    assert refused.status == 1
    assert "2 of its 2 weights were left out" in refused.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("refit", "whole.gguf", "missing.safetensors", "-o", "new.gguf"), "missing.safetensors: no such file"),
        (("refit", "whole.gguf", "whole.gguf", "-o", "new.gguf"), "it has none of the model's parameters"),
        (("refit", "x.npy", "whole.gguf", "-o", "new.gguf"), "it is not a GGUF file"),
        (("refit", "whole.gguf", "x.npy", "-o", "new.gguf"), "it is not a checkpoint"),
        (("refit", "whole.gguf", "x.npy", "-o", "x.npy"), "would overwrite the checkpoint"),
        (("run", "whole.gguf", "--random", "1", "--weights", "x.npy"), "it is not a checkpoint"),
        (("compile", "model.onnx", "--names", "x.npy", "-o", "new.gguf"), "it is not a checkpoint"),
    ],
)
def test_a_bad_checkpoint_is_one_message(graphc_command, model: Path, arguments: tuple[str, ...], message: str) -> None:
    model.rename("model.onnx")
    graphc_command("compile", "model.onnx", "-o", "whole.gguf")
    np.save("x.npy", X)
    done = graphc_command(*arguments)
    assert done.status == 1
    assert message in done.err
    assert done.err.startswith("error: ")
    assert "Traceback" not in done.err
    assert not Path("new.gguf").exists()


def test_inspect_shows_how_weights_are_made(graphc_command, model: Path) -> None:
    graphc_command("compile", model, "-o", "m.gguf", "--strip-weights")
    shown = graphc_command("inspect", "m.gguf", "--weights").out
    assert re.search(r"48 B +float32\[4, 3\] +Transpose\[perm=\(1, 0\)\]\(dense\.weight\)", shown)
    assert "2 of 2 weights are made of 2 parameters; the others have 0 B" in shown
    found = json.loads(graphc_command("inspect", "m.gguf", "--weights", "--json").out)["weights"]
    assert {name for each in found["weights"] for name in each["parameters"]} == {"dense.weight", "dense.bias"}
    assert found["pinned"] == []


def test_devices(graphc_command) -> None:
    assert "CPU" in graphc_command("devices").out
    found = json.loads(graphc_command("devices", "--json").out)
    assert found["devices"][0]["memory_total"] > 0


def test_bfloat16_arrays(graphc_command, tmp_path: Path) -> None:
    import ml_dtypes

    info = [helper.make_tensor_value_info(name, TensorProto.BFLOAT16, ["n"]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "same", info[:1], info[1:])
    path = stored(helper.make_model(graph, ir_version=10), tmp_path / "m.onnx")
    np.save("x.npy", np.arange(5).astype(ml_dtypes.bfloat16))
    assert graphc_command("run", path, "--input", "x=x.npy", "-o", "out").status == 0
    np.testing.assert_array_equal(np.load("out/y.npy").view(ml_dtypes.bfloat16), np.arange(5))


def test_an_interrupt(graphc_command, monkeypatch: pytest.MonkeyPatch, model: Path) -> None:
    def interrupted(*arguments: object, **settings: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("graphc.compiler.compile_weights", interrupted)
    assert graphc_command("compile", model).status == 130


def test_a_full_disk(tmp_path: Path) -> None:
    weight = onnx.numpy_helper.from_array(np.ones((256, 1024), np.float32), "w")
    info = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in (("x", [1, 256]), ("y", [1, 1024]))
    ]
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "large", info[:1], info[1:], [weight])
    path = stored(helper.make_model(graph, ir_version=10), tmp_path / "m.onnx")
    limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, 1 << 16))  # noqa: E731
    done = separate("compile", path, preexec_fn=limit)
    assert done.returncode == 1
    assert done.stderr.startswith("error: ")
    assert "m.gguf" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert os.listdir(tmp_path) == ["m.onnx"]


@pytest.mark.parametrize(
    "arguments", [["--help"], ["run", "ENGINE", "--random", "0"], ["devices"], ["inspect", "ENGINE"]]
)
def test_commands_import_no_more_than_they_need(engine: Path, arguments: list[str]) -> None:
    code = "import sys; from graphc.cli import main\ntry: main(sys.argv[1:])\nfinally: print('MODULES', *sys.modules)"
    given = [str(engine) if each == "ENGINE" else each for each in arguments]
    done = subprocess.run([sys.executable, "-c", code, *given], capture_output=True, text=True, check=True)
    modules = set(done.stdout.rpartition("MODULES")[2].split())
    assert not {"onnx", "torch", "onnx_ir", "onnxruntime", "gguf"} & modules
    assert ("graphc_images.commands" in modules) == (arguments == ["--help"])
    if arguments == ["--help"]:
        assert not {"ggml", "numpy"} & modules


def test_completion() -> None:
    environment = {**os.environ, "_GRAPHC_COMPLETE": "complete_bash", "COMP_WORDS": "graphc insp", "COMP_CWORD": "1"}
    assert separate(env=environment).stdout.split() == ["inspect"]


def test_rules_are_left_out_counted_and_explained(graphc_command, model):
    assert graphc_command("compile", model, "-o", "e.gguf", "--without", "fold", "--stop-after", "1").status == 0
    done = graphc_command("compile", model, "-o", "e.gguf", "--without", "fuse")
    assert done.status == 1
    assert "no rule or pass is called fuse" in done.err
    done = graphc_command("explain", "matmul_of_weight", model)
    assert done.out.splitlines()[1:3] == ["fired once", "  /dense/MatMul"]
    assert json.loads(graphc_command("explain", "silu", model, "--json").out)["fired"] == []
    assert graphc_command("explain", "silo", model).status == 1


@pytest.mark.parametrize(
    "command",
    [
        "bench --runtime graphc --rounds 1",
        "check",
        "diff",
        "explain silu",
        "inspect",
        "profile",
        "run --random 0",
        "view",
    ],
)
def test_every_command_that_compiles_leaves_out_rules(graphc_command, model, command):
    words = (*command.split(), model, "--dim", "batch=2")
    assert graphc_command(*words, "--without", "fold", "--stop-after", "1").status == 0
    done = graphc_command(*words, "--without", "fuse")
    assert done.status == 1
    assert "no rule or pass is called fuse" in done.err


def test_what_is_left_out_shows(graphc_command, engine, tmp_path):
    nodes = [helper.make_node("Sigmoid", ["x"], ["s"]), helper.make_node("Mul", ["x", "s"], ["y"])]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in "xy")
    model = stored(helper.make_model(helper.make_graph(nodes, "gate", [x], [y])), tmp_path / "gate.onnx")
    for options, calls in {
        (): ["silu"],
        ("--without", "silu"): ["sigmoid", "mul"],
        ("--stop-after", 0): ["sigmoid", "mul"],
    }.items():
        found = json.loads(graphc_command("inspect", model, "--json", *options).out)["calls"]
        assert {each["call"] for each in found} == {f"ggml_{name}" for name in calls}
    done = graphc_command("inspect", engine, "--without", "fold")
    assert done.status == 1
    assert "is an engine" in done.err


@pytest.mark.parametrize("by", ["engine", "numpy"])
def test_bisect_finds_nothing_in_a_model_that_is_right(graphc_command, model, by):
    done = graphc_command("bisect", model, "--by", by)
    assert done.status == 0
    assert "none changes the outputs" in done.out


def test_bisect_names_what_is_wrong(graphc_command, model, monkeypatch):
    from graphc.ops.pointwise import Unary
    from graphc.optimize import STAGES, Stage
    from graphc.rewrite.engine import rule

    @rule("Relu(x)")
    def wrong(emit, x):
        return emit(Unary("Tanh"), x)

    monkeypatch.setattr("graphc.optimize.STAGES", [*STAGES, Stage("wrong", [wrong])])
    done = graphc_command("bisect", model)
    assert done.status == 1
    assert ": wrong\n" in done.out
    assert "node     /Relu" in done.out
    assert "Tanh" in done.out


def test_what_is_no_model_says_what_to_do_instead(graphc_command, model: Path, engine: Path, checkpoint: Path) -> None:
    for path, message in (
        (engine, "an engine, which is compiled already"),
        (checkpoint, "Export the model itself to ONNX"),
    ):
        done = graphc_command("compile", path, "-o", "new.gguf")
        assert (done.status, done.out) == (1, "")
        assert done.err.startswith(f"error: {path}: ")
        assert message in done.err
    for path, message in ((model, r"graphc\.compile\(path\)"), (checkpoint, "give it as weights=")):
        with pytest.raises(EngineError, match=message):
            graphc.load(path)
    Path("text.onnx").write_text("no model")
    assert graphc_command("compile", "text.onnx").err.startswith("error: text.onnx: not an ONNX model")


def test_inspect_knows_a_lora(graphc_command) -> None:
    def array(*shape: int) -> np.ndarray:
        return np.ones(shape, np.float16)

    tensors = {
        "lora_unet_a.lora_down.weight": array(4, 8),
        "lora_unet_a.lora_up.weight": array(8, 4),
        "lora_unet_a.alpha": array(),
        "lora_unet_a.dora_scale": array(8, 1),
        "lora_unet_b.diff": array(3, 3),
        "lora_te_c.hada_w1_a": array(8, 2),
        "lora_te_c.hada_w1_b": array(2, 8),
        "lora_te_c.hada_w2_a": array(8, 2),
        "lora_te_c.hada_w2_b": array(2, 8),
    }
    save_file(tensors, "style.safetensors")
    found = json.loads(graphc_command("inspect", "style.safetensors", "--json").out)
    assert found["architecture"] == "LoRA"
    kinds = {each["component"]: (each["changes"], each["kinds"]) for each in found["components"]}
    assert kinds == {"denoiser": (2, {"LoRA with DoRA": 1, "change": 1}), "text_encoder": (1, {"LoHa": 1})}
    assert "style.safetensors: LoRA\n" in graphc_command("inspect", "style.safetensors").out
    save_file({"a.weight": array(4, 4), "a.alpha": array(4), "b.weight": array(2, 2)}, "model.safetensors")
    assert "LoRA" not in graphc_command("inspect", "model.safetensors").out


def test_flags_have_no_type_in_help(graphc_command) -> None:
    for command in ([], *([name] for name in ("compile", "profile", "backend")), ["backend", "install"]):
        shown = graphc_command(*command, "--help").out
        assert "--help" in shown
        assert "bool" not in shown


def test_what_a_model_and_the_package_say_of_themselves(model: Path) -> None:
    assert set(dir(graphc)) >= set(graphc.__all__)
    assert "import_module" not in dir(graphc)
    compiled = graphc.compile(model, threads=1)
    shown = "x: float32[batch, 3] -> scores: float32[batch, 4], product: float32[batch, 4]"
    assert shown in repr(compiled)
    assert (Path(graphc.__file__).parent / "py.typed").exists()


def test_remarks_of_the_library_go_to_its_log(graphc_command, model: Path) -> None:
    from remarks import remarked

    from graphc.trace import warn

    with remarked("something to know"):
        warn("something to know")
    code = (
        "from graphc import cli, trace, compiler\n"
        "compiler.compile_program = lambda *a, **k: trace.warn('hm \\x1b[31m')\n"
        "cli.main(['check', 'x.onnx'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr.startswith("warning: hm \\x1b[31m\n")


def test_diff_and_bench_say_what_a_type_costs(graphc_command, tmp_path: Path) -> None:
    weights = {name: np.random.default_rng(1).standard_normal((64, 64)).astype(np.float32) for name in ("a.w", "b.w")}
    nodes = [
        helper.make_node("MatMul", ["x", "a.w"], ["h"], name="/a"),
        helper.make_node("MatMul", ["h", "b.w"], ["y"], name="/b"),
    ]
    info = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [3, 64]) for name in "xy"]
    made = [onnx.numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "two", info[:1], info[1:], made)
    path = stored(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), tmp_path / "m.onnx"
    )

    def errors(*options: object) -> dict[str, float]:
        done = graphc_command("diff", path, "--json", *options)
        assert done.status == 0, done.err
        return {each["name"]: each["relative"] for each in json.loads(done.out)["tensors"]}

    exact, first, both = errors(), errors("--dtype", "a.w=q4_0"), errors("--dtype", "q4_0", "--dtype", "b.w=f32")
    assert max(exact.values()) < 1e-5
    assert 0.01 < first["h"] < 0.3
    assert both["h"] == 0 or both["h"] == pytest.approx(first["h"], rel=1e-6) or both["h"] < 1e-5  # too small to matter
    assert graphc_command("diff", path, "--dtype", "a.w=q4_0", "--tolerance", 1e-4).status == 1
    assert graphc_command("compile", path, "-o", "q4.gguf", "--dtype", "a.w=q4_0").status == 0
    assert errors("--engine", "q4.gguf") == {"y": pytest.approx(first["y"], rel=1e-6)}
    only = ("--rounds", 1, "--json", "--runtime", "graphc", "--runtime", "onnxruntime")
    for options in (("--dtype", "a.w=q4_0"), ("--engine", "q4.gguf")):
        ours, _ = json.loads(graphc_command("bench", path, *only, *options).out)["results"]
        assert ours["error"] == pytest.approx(first["y"], rel=1e-5)
    alone = json.loads(graphc_command("bench", "q4.gguf", "--rounds", 1, "--json").out)["results"]
    assert [each["runtime"] for each in alone] == ["graphc", "graphc, ggml's products"]
    for command in ("diff", "bench"):
        assert "give --dtype or --engine" in graphc_command(command, path, "--dtype", "f16", "--engine", "q4.gguf").err
