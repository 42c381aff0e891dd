"""Several models in one application, as `docs/cpp.md` has it, which runs them in several threads; under ThreadSanitizer."""

import os
import re
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import frontend_models
import numpy as np
import pytest
import refitting
from cpp_programs import Modules, arrays, repeated, replaced
from gguf import GGMLQuantizationType, GGUFWriter, quantize
from onnx import helper
from shared_outputs import shared_outputs
from suite.quick_cpp import C_OPTIONS, WARNINGS

import graphc
from graphc.build import installed_ggml
from graphc.cmake import find_cmake
from graphc.ggml_source import ggml_source
from graphc.ir.types import F32, I64
from graphc.shapes import symbol
from graphc.targets.ggml.cpp import write_project
from graphc.targets.ggml.engine import read_engine, write_engine

ROOT = Path(__file__).parent.parent
SOURCES = Path(__file__).parent / "cpp_threads"

MORE = """
add_subdirectory(repeated-cpp)
add_subdirectory(replaced-cpp)
add_subdirectory(several-cpp)
add_executable(threads threads.cpp)
target_link_libraries(threads PRIVATE encoder decoder repeated replaced)
add_subdirectory(wide-cpp)
add_executable(wide_of wide.cpp)
target_link_libraries(wide_of PRIVATE wide)
add_subdirectory(shared-cpp)
add_executable(in_place in_place.cpp)
target_link_libraries(in_place PRIVATE shared)
add_executable(sizes sizes.cpp)
target_link_libraries(sizes PRIVATE decoder)
add_executable(beside beside.cpp)
target_link_libraries(beside PRIVATE wide)
foreach(program weights lora)
  add_executable(${program} ${program}.cpp)
  target_link_libraries(${program} PRIVATE several)
endforeach()
"""
"""What the test adds to the application of the page."""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not shutil.which("cmake") or not shutil.which("c++"), reason="needs cmake and a C++ compiler"),
]


def encoder():
    """Rows of a table, and a product; the size is free."""
    b, count = Modules("encoder"), symbol("tokens")
    tokens = b.program.add_input("tokens", I64, (count,), "I32", low=0, high=20)
    x = b.call("ggml_get_rows", b.weight("table", 20, 32), tokens, rank=2)
    return b.output(b.unary("ggml_silu", b.linear(x, "fc", 32, 32)), "states").program


def decoder():
    """Two products and a normalization."""
    b, count = Modules("decoder"), symbol("tokens")
    x = b.norm(b.program.add_input("states", F32, (count, 32), "F32"), "norm", 32)
    return b.output(b.linear(b.unary("ggml_relu", b.linear(x, "up", 32, 48)), "down", 48, 7), "scores").program


WIDE = {"fc.weight": (64, 64), "fc.bias": (64,), "table.weight": (128, 64), "qkv.weight": (192, 64)}


def wide():
    """Rows of a table, through a linear layer and through a third of one; the weights can be in blocks."""
    bounds = {"starts": np.array([64]), "ends": np.array([128])}
    nodes = [
        helper.make_node("Gather", ["table.weight", "ids"], ["rows"]),
        helper.make_node("Add", ["x", "rows"], ["h"]),
        helper.make_node("Gemm", ["h", "fc.weight", "fc.bias"], ["a"], transB=1),
        helper.make_node("Slice", ["qkv.weight", "starts", "ends"], ["part"]),
        helper.make_node("Gemm", ["h", "part"], ["b"], transB=1),
        helper.make_node("Add", ["a", "b"], ["y"]),
    ]
    inputs = [frontend_models.value("x", [3, 64]), frontend_models.value("ids", [3], np.int64)]
    return frontend_models.model(nodes, inputs, ["y"], refitting.weights(1, WIDE) | bounds)


def given(folder):
    """Inputs of `wide`, as files too."""
    found = {"x": np.random.default_rng(5).standard_normal((3, 64)).astype(np.float32), "ids": np.array([0, 127, 5])}
    for name, array in found.items():
        np.save(folder / f"{name}.npy", array)
    return found


MODELS = {"encoder": encoder, "decoder": decoder, "repeated": repeated, "replaced": replaced}


def application(folder, options=()):
    """Write and build the application of the page, with a program that checks threads."""
    for name, make in MODELS.items():
        program = make()
        weights = arrays(program)
        write_project(program, folder / f"{name}-cpp")
        write_engine(folder / f"{name}.gguf", program, weights.__getitem__)
    for name, proto, dtype in (
        ("several", refitting.several(refitting.weights(1)), ()),
        ("wide", wide(), ("q8_0", "table.weight=q8_0")),
        ("shared", shared_outputs(), ()),
    ):
        model = graphc.compile(proto, threads=1, dtype=dtype)
        model.save(folder / f"{name}.gguf")
        write_project(model.program, folder / f"{name}-cpp", name)
    page = (ROOT / "docs" / "cpp.md").read_text()
    (cmake,) = re.findall(r"^```cmake\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    (source,) = (
        each for each in re.findall(r"^```cpp\n(.*?)^```", page, re.DOTALL | re.MULTILINE) if "encoder" in each
    )
    assert "project(app CXX)" in cmake
    (folder / "CMakeLists.txt").write_text(cmake + MORE + first_program(folder))
    (folder / "app.cpp").write_text(source)
    for each in SOURCES.iterdir():
        shutil.copy(each, folder)
    configure = [find_cmake(), "-S", folder, "-B", folder / "build", *options]
    for command in (configure, [find_cmake(), "--build", folder / "build", "--parallel", "2"]):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]


def first_program(folder):
    """What `docs/start-cpp.md` says, as a program `first`, for it is not the only `app` here; its lines of cmake."""
    page = (ROOT / "docs" / "start-cpp.md").read_text()
    (folder / "graphc-demo").mkdir()
    shutil.copy(ROOT / "graphc/demo/digits.onnx", folder / "graphc-demo")
    (command,) = re.findall(r"^    graphc (compile .*)", page, re.MULTILINE)
    done = subprocess.run([sys.executable, "-m", "graphc.cli", *command.split()], cwd=folder, check=False)
    assert done.returncode == 0
    (source,) = re.findall(r"^```cpp\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    (folder / "first.cpp").write_text(source)
    (cmake,) = re.findall(r"(?:^    (?:add|target)_.*\n)+", page, re.MULTILINE)
    return re.sub(r"\bapp\b", "first", cmake)


SANITIZED = f"-g1 -fsanitize=thread {WARNINGS}"


def run(folder, *command, **environment):
    """Run a program of an application; threads that wait do not spin."""
    return subprocess.run(
        [folder / "build" / command[0], *command[1:]],
        cwd=folder,
        env={**os.environ, "GOMP_SPINCOUNT": "1000", "TSAN_OPTIONS": "halt_on_error=1", **environment},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.fixture(scope="module")
def watched(tmp_path_factory):
    """The application, of which ThreadSanitizer watches what is C++."""
    folder = tmp_path_factory.mktemp("together")
    cxx = (f"-DCMAKE_CXX_FLAGS={SANITIZED}", "-DCMAKE_CXX_FLAGS_RELEASE=-O0", "-DCMAKE_UNITY_BUILD_BATCH_SIZE=0")
    application(folder, [f"-DCMAKE_PREFIX_PATH={installed_ggml()}", *cxx, *C_OPTIONS])
    return folder


def test_the_application_of_the_page_runs(watched):
    done = run(watched, "app", TSAN_OPTIONS="report_bugs=0")
    assert (done.returncode, done.stdout) == (0, "[1, 7]\n[2, 7]\n[3, 7]\n[4, 7]\n"), done.stderr


def test_the_first_program_of_the_tutorial_runs(watched):
    done = run(watched, "first", TSAN_OPTIONS="report_bugs=0")
    model = graphc.load(watched / "digits.gguf", threads=1)
    scores = model.run(pixels=np.zeros((1, 1, 8, 8), np.float32))["scores"]
    assert (done.returncode, done.stdout) == (0, f"{scores.argmax()}\n"), done.stderr
    (watched / "digits.gguf").rename(watched / "away.gguf")
    done = run(watched, "first", TSAN_OPTIONS="report_bugs=0")
    (watched / "away.gguf").rename(watched / "digits.gguf")
    assert done.returncode == 1
    assert "digits.gguf" in done.stderr


def test_threads_get_what_one_would(watched):
    """With several threads for a run ThreadSanitizer is silent: it does not see how those of OpenMP wait for each other."""
    for threads, options in ((1, "halt_on_error=1"), (4, "report_bugs=0")):
        done = run(watched, "threads", str(threads), TSAN_OPTIONS=options)
        assert done.returncode == 0, done.stdout + done.stderr[:8000]
        assert done.stdout.count(": 0 wrong") == len(MODELS)


def test_arrays_are_used_where_they_lie(watched):
    done = run(watched, "in_place", "shared.gguf")
    assert (done.returncode, done.stdout) == (0, "0 wrong\n"), done.stderr[:8000]


def test_all_sizes_share_one_memory(watched):
    """Each of them needs some 30 MiB, and the graphs of eight are kept."""
    done = run(watched, "sizes", "decoder.gguf")
    assert done.returncode == 0, done.stderr[:8000]
    grown, wrong = re.findall(r"(-?\d+) (?:MiB more|wrong)", done.stdout)
    assert int(grown) < 60
    assert int(wrong) == 0


def damaged(folder):
    """Checkpoints that do not fit the model `several`, or are none, and what is said of each."""
    right = refitting.weights(2)
    lacking = {name: array for name, array in right.items() if name not in ("gate", "bn.bias")}
    surplus = {"more": np.ones(3, np.float32)}
    found = {
        "lacking": (lacking | surplus, ["gate: missing", "bn.bias: missing", "more: the model has no such"]),
        "shapes": (right | {"conv.bias": np.ones(6, np.float32)}, ["conv.bias: shape [6], must be [5]"]),
        "types": (right | {"head.half": np.ones((8, 4), np.float32)}, ["head.half: f32, must be f16"]),
        "stranger": ({"a": np.ones(3, np.float32)}, ["it has none of the model's parameters"]),
    }  # fmt: skip
    for name, (arrays_, said) in found.items():
        yield refitting.file_of(folder / f"{name}.safetensors", arrays_), said
    whole = refitting.file_of(folder / "whole.safetensors", right).read_bytes()
    for name, raw, said in (
        ("cut", whole[:-4], "goes past the end of the file"),
        ("long", whole + b"abcd", "bytes at its end belong to no tensor"),
        ("header", whole[:300], "is neither safetensors nor GGUF"),
        ("json", whole.replace(b'"dtype"', b'"dtype', 1), "is damaged"),
        ("empty", b"", "is empty"),
        ("other", b"PK" + bytes(1000), "is neither safetensors nor GGUF"),
    ):
        (folder / f"{name}.bad").write_bytes(raw)
        yield folder / f"{name}.bad", [said]


def test_a_model_takes_other_weights_while_threads_run_it(watched, tmp_path):
    """The bits are those of the model in this process with the same checkpoint."""
    other = refitting.weights(2)
    shutil.copy(watched / "several.gguf", tmp_path)
    program, weights = read_engine(tmp_path / "several.gguf")
    write_engine(tmp_path / "stripped.gguf", program, weights.__getitem__, stripped=True)
    refitting.file_of(tmp_path / "own.safetensors", refitting.weights(1))
    refitting.file_of(tmp_path / "other.safetensors", other, shift=1)
    for name, array in refitting.INPUTS.items():
        np.save(tmp_path / f"{name}.npy", array)
    bad = list(damaged(tmp_path))
    done = run(watched, "weights", tmp_path, *(path for path, _ in bad))
    assert done.returncode == 0, done.stdout + done.stderr[:8000]
    assert done.stdout.startswith("0 wrong\n")
    for _, said in bad:
        for each in said:
            assert each in done.stdout
    assert "changed" not in done.stdout
    assert "loaded" not in done.stdout
    model = graphc.load(tmp_path / "several.gguf", threads=1)
    model.load_weights(other)
    found = {name: np.load(tmp_path / f"{name}.npy") for name in ("scores", "positive")}
    refitting.same(found, model.run(refitting.INPUTS))


def gguf_of(path, weights, type):
    """A file with the layer's weight in a type."""
    writer, kind = GGUFWriter(path, "test"), GGMLQuantizationType[type]
    for name, array in weights.items():
        if name == "fc.weight":
            writer.add_tensor(name, quantize(array, kind), raw_dtype=kind)
        else:
            writer.add_tensor(name, array)
    for step in (writer.write_header_to_file, writer.write_kv_data_to_file, writer.write_tensors_to_file, writer.close):
        step()
    return path


def test_weights_in_blocks_and_of_gguf(watched, tmp_path):
    """The bits are Python's where a checkpoint has blocks, halves, and numbers that become blocks."""
    shutil.copy(watched / "wide.gguf", tmp_path)
    weights = refitting.weights(3, WIDE)
    files = [refitting.file_of(tmp_path / "plain.safetensors", weights)]
    files += [gguf_of(tmp_path / f"{type}.gguf", weights, type) for type in ("Q8_0", "Q4_0", "F16", "BF16")]
    inputs = given(tmp_path)
    done = run(watched, "wide_of", tmp_path, *files)
    assert done.returncode == 0, done.stdout + done.stderr[:8000]
    model = graphc.load(tmp_path / "wide.gguf", threads=1)
    for number, path in enumerate(files):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what was quantized in another way is quantized again
            model.load_weights(path)
        assert np.load(tmp_path / f"y{number}.npy").tobytes() == model.run(inputs)["y"].tobytes(), path.name


def pair(random, rows, columns, rank):
    """The factors of a LoRA."""
    return {name: (random.standard_normal(shape) / 4).astype(np.float32)
            for name, shape in (("lora_up.weight", (rows, rank)), ("lora_down.weight", (rank, columns)))}  # fmt: skip


def test_loras_go_beside_weights_in_blocks(watched, tmp_path):
    """The bits are Python's, which has them there too, also while threads run the model."""
    shutil.copy(watched / "wide.gguf", tmp_path)
    random = np.random.default_rng(6)
    fc = {f"fc.{name}": array for name, array in pair(random, 64, 64, 3).items()}
    other = {f"fc.{name}": array for name, array in pair(random, 64, 64, 2).items()}
    other |= {f"qkv.{name}": array for name, array in pair(random, 192, 64, 4).items()}
    files = {"b": fc | {"fc.alpha": np.full((), 2, np.float32)}, "a": other}
    bad = {"rows": {f"table.{name}": array for name, array in pair(random, 128, 64, 2).items()},
           "nan": {name: array * np.float32("nan") for name, array in fc.items()}}  # fmt: skip
    for name, tensors in (files | bad).items():
        refitting.file_of(tmp_path / f"{name}.safetensors", tensors)
    weights = refitting.weights(3, WIDE)
    checkpoints = [gguf_of(tmp_path / "blocks.gguf", weights, "Q8_0")]
    checkpoints.append(refitting.file_of(tmp_path / "plain.safetensors", weights))
    inputs = given(tmp_path)
    done = run(watched, "beside", tmp_path, *checkpoints)
    assert done.returncode == 0, done.stdout + done.stderr[:8000]
    assert "'table.weight', which is stored in q8_0 and is not only multiplied with" in done.stdout
    assert "fc: it has elements that are not numbers" in done.stdout
    assert done.stdout.count("wrong") == done.stdout.count(": 0 wrong") == 3, done.stdout
    model = graphc.load(tmp_path / "wide.gguf", threads=1)
    plain = model.run(inputs)["y"]
    model.load_lora(tmp_path / "b.safetensors", 0.5)
    results = [model.run(inputs)["y"]]
    model.load_lora(tmp_path / "a.safetensors")
    results.append(model.run(inputs)["y"])
    model.set_lora({"b": -0.25})
    results.append(model.run(inputs)["y"])
    for number, expected in enumerate(results):
        assert np.abs(expected - plain).max() > 0.1
        assert np.load(tmp_path / f"y{number}.npy").tobytes() == expected.tobytes(), number
    model.unload_lora("a")
    for number, path in enumerate(checkpoints, len(results)):
        model.load_weights(path)
        found, expected = np.load(tmp_path / f"y{number}.npy"), model.run(inputs)["y"]
        if path.suffix == ".gguf":
            assert found.tobytes() == expected.tobytes()
        else:  # the sum is quantized
            np.testing.assert_allclose(found, expected, rtol=0, atol=0.02 * np.abs(expected).max())
    model.unload_lora()
    assert np.load(tmp_path / f"y{number + 1}.npy").tobytes() == model.run(inputs)["y"].tobytes()


def loras(folder):
    """Files of LoRAs as scripts and libraries write them, and whether the engine alone knows what they change."""
    random = np.random.default_rng(4)
    numbers = lambda *shape: random.standard_normal(shape).astype(np.float32)  # noqa: E731
    table = {"lora_te_table.lora_up.weight": numbers(10, 2), "lora_te_table.lora_down.weight": numbers(2, 6),
             "lora_te_table.alpha": np.full((), 3, np.float32)}  # fmt: skip
    peft = {
        f"base_model.model.query.lora_{name}.weight": array
        for name, array in (("A", numbers(3, 8)), ("B", numbers(6, 3)))
    }
    conv = {"unet.conv.lora.down.weight": numbers(2, 3, 3, 3), "unet.conv.lora.up.weight": numbers(5, 2, 1, 1)}
    for name, tensors, told in (("table", table, True), ("peft", peft, False), ("conv", conv, False)):
        yield refitting.file_of(folder / f"{name}.safetensors", tensors), told


def test_loras_go_on_and_off(watched, tmp_path):
    shutil.copy(watched / "several.gguf", tmp_path)
    refitting.file_of(tmp_path / "own.safetensors", refitting.weights(1))
    for name, array in refitting.INPUTS.items():
        np.save(tmp_path / f"{name}.npy", array)
    files = list(loras(tmp_path))
    wrong = {"table.lora_up.weight": np.ones((9, 2), np.float32), "table.lora_down.weight": np.ones((2, 6), np.float32)}
    others = {
        "half": ({"table.lora_up.weight": np.ones((10, 2), np.float32)}, "table: one of its two factors is missing"),
        "sizes": (wrong, "factors of [9, 2] and [2, 6] do not make table.weight of [10, 6]"),
        "kinds": ({"table.hada_w1_a": np.ones((2, 2), np.float32)}, "not a LoRA of a kind that C++ knows (table.hada_w1_a)"),
        "stranger": ({name.replace("table", "a"): array for name, array in wrong.items()}, "it names no module"),
    }  # fmt: skip
    bad = [refitting.file_of(tmp_path / f"{name}.bad", tensors) for name, (tensors, _) in others.items()]
    done = run(watched, "lora", tmp_path, *(path for path, _ in files), *bad)
    assert done.returncode == 0, done.stdout + done.stderr[:8000]
    assert "changed" not in done.stdout
    assert done.stdout.count("done") == len(files) + sum(told for _, told in files)
    assert done.stdout.count("load a checkpoint that has them first") == sum(not told for _, told in files)
    for _, said in others.values():
        assert said in done.stdout
    model = graphc.load(tmp_path / "several.gguf", threads=1)
    model.load_weights(refitting.weights(1))
    plain = model.run(refitting.INPUTS)
    for number, (path, told) in enumerate(files):
        model.load_lora(path, 0.5)
        expected = model.run(refitting.INPUTS)
        assert any(not np.array_equal(array, plain[name]) for name, array in expected.items())
        for known in (0, 1) if told else (1,):
            for name, array in expected.items():
                found = np.load(tmp_path / f"{known}_{number}_{name}.npy")
                np.testing.assert_allclose(found, array, rtol=1e-4, atol=1e-5 * np.abs(array).max())
        model.unload_lora()


@pytest.mark.thorough
def test_nothing_races_in_ggml_or_our_own_code_either(tmp_path):
    """All of it is watched, with ggml's own threads in place of OpenMP's."""
    options = [f"-DGGML_SOURCE_DIR={ggml_source()}", "-DGGML_OPENMP=OFF", "-DGGML_LLAMAFILE=OFF"]
    flags = [f"-DCMAKE_{each}_FLAGS=-g -O1 -fsanitize=thread" for each in ("C", "CXX")]
    application(tmp_path, [*options, *flags])
    done = run(tmp_path, "threads", "4")
    assert done.returncode == 0, done.stdout + done.stderr[:8000]
    assert done.stdout.count(": 0 wrong") == len(MODELS)


def test_models_of_two_versions_are_refused(tmp_path):
    for name in ("encoder", "decoder"):
        write_project(MODELS[name](), tmp_path / f"{name}-cpp")
    (tmp_path / "decoder-cpp" / "runtime" / "graphc" / "model.h").write_text("// of another version")
    text = "cmake_minimum_required(VERSION 3.21)\nproject(app CXX)\n"
    (tmp_path / "CMakeLists.txt").write_text(text + "add_subdirectory(encoder-cpp)\nadd_subdirectory(decoder-cpp)\n")
    configure = [find_cmake(), "-S", tmp_path, "-B", tmp_path / "build", f"-DCMAKE_PREFIX_PATH={installed_ggml()}"]
    done = subprocess.run(configure, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "decoder was written by another graphc" in done.stderr
