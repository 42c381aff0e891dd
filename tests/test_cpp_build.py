"""Generated projects, compiled and run: the numbers are those of the in-process model, bit by bit."""

import functools
import os
import shutil
import struct
import subprocess
import warnings
from pathlib import Path

import numpy as np
import onnx
import pytest
from built_once import built_once
from cpp_hosts import HOSTED, X
from cpp_programs import OTHERS, PROGRAMS, arrays, dtypes, hostile, hostile_steps, replaced
from nodes import text_of
from onnx.backend.test.loader import load_model_tests
from suite.quick_cpp import OPTIONS, WARNINGS

import graphc
from graphc.build import build, installed_ggml
from graphc.cmake import find_cmake
from graphc.compiler import Settings, compile_program, evaluated
from graphc.targets.ggml.cpp import write_project
from graphc.targets.ggml.engine import write_engine
from graphc.targets.ggml.program.composites import COMPOSITES
from graphc.targets.ggml.run.executor import Executor

ALL = {**PROGRAMS, **OTHERS}
SIZES = {"symbolic": [{"batch": 2, "tokens": 8}, {"batch": 1, "tokens": 4}], "kernels": [{"n": 5}, {"n": 1}],
         "slopes": [{"n": 3}, {"n": 1}], "routines": [{"n": 50}, {"n": 1}], "products": [{"rows": 3, "columns": 4}],
         "images": [{"height": 8, "width": 9}, {"height": 5, "width": 5}], "draws": [{"n": 70}],
         "repeated": [{"n": 3}, {"n": 1}], "counted": [{"n": 9}, {"n": 20}]}  # fmt: skip
SUITE = (
    "test_attention_4d",
    "test_Conv2d_depthwise_padded",
    "test_ConvTranspose2d",
    "test_hardmax_axis_1",
    "test_layer_normalization_4d_axis2",
    "test_lstm_defaults",
    "test_AvgPool3d_stride",
    "test_einsum_batch_matmul",
)
"""Cases of the ONNX backend suite."""

GATHERED = """\
cmake_minimum_required(VERSION 3.18)
project(gathered LANGUAGES C CXX)
add_subdirectory(flat/runtime runtime)
add_library(nodes OBJECT {nodes})
target_link_libraries(nodes PRIVATE graphc)
file(WRITE "${{CMAKE_BINARY_DIR}}/headers.cpp" "")
add_library(headers OBJECT "${{CMAKE_BINARY_DIR}}/headers.cpp")  # they take longer than what is in the models' files
target_link_libraries(headers PRIVATE graphc)
target_precompile_headers(headers PRIVATE <graphc/command.h>)
foreach(model IN ITEMS {names})
  add_executable(${{model}} ${{model}}/main.cpp ${{model}}/model.cpp ${{model}}/weights.cpp)
  set_target_properties(${{model}} PROPERTIES UNITY_BUILD ON)
  target_precompile_headers(${{model}} REUSE_FROM headers)
  target_include_directories(${{model}} BEFORE PRIVATE ${{model}}/include)
  target_link_libraries(${{model}} PRIVATE nodes graphc "-Wl,--wrap=graphc_runner_new")
  if(EXISTS "${{CMAKE_SOURCE_DIR}}/${{model}}/kernels.c")
    add_library(${{model}}-kernels OBJECT ${{model}}/kernels.c)
    target_link_libraries(${{model}}-kernels PRIVATE graphc)
    target_link_libraries(${{model}} PRIVATE ${{model}}-kernels)
  endif()
endforeach()
"""

NODES = Path(__file__).parent / "cpp_nodes" / "nodes.c"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not shutil.which("cmake") or not shutil.which("c++"), reason="needs cmake and a C++ compiler"),
]


def run_program(program, *args):
    """Run a compiled model: its exit status, and what it prints."""
    command = [str(program), *map(str, args)]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=60, check=False)
    return done.returncode, done.stdout + done.stderr


def inputs_of(program, sizes, seed=0):
    """Numbers for the inputs, at these sizes."""
    from graphc.shapes import bind

    rng = np.random.default_rng(seed)
    result = {}
    for declared in program.inputs:
        shape = tuple(int(bind(size, sizes)) for size in declared.shape)
        numbers = rng.standard_normal(shape) * 3 if declared.high is None else rng.integers(0, declared.high, shape)
        result[declared.name] = (
            np.abs(numbers).astype(declared.dtype) if declared.dtype.kind == "u" else numbers.astype(declared.dtype)
        )
    return result


@functools.cache
def hosted():
    """The models in which the host acts."""
    return {name: graphc.compile(proto, threads=2) for name, (proto, _) in HOSTED.items()}


@functools.cache
def suite_cases():
    """For each case of the suite, its program, weights and inputs."""
    found = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cases = [case for kind in ("node", "pytorch-converted") for case in load_model_tests(kind=kind)]
    for case in cases:
        if case.name in SUITE:
            model = case.model or onnx.load(Path(case.model_dir) / "model.onnx")
            program = compile_program(model, Settings(name=case.name))
            found[case.name] = program, evaluated(program), inputs_of(program, {})
    return found


@pytest.fixture(scope="session")
def compiled(tmp_path_factory):
    """The folder with every program's project, engine and executable, compiled together."""
    return built_once(tmp_path_factory, "cpp with spaces ü", compile_all)


def compile_all(folder):
    for name, make in ALL.items():
        program = make()
        write_project(program, folder / name)
        weights = arrays(program)
        write_engine(folder / name / "model.gguf", program, weights.__getitem__)
    for name, (program, weights, _) in suite_cases().items():
        write_project(program, folder / name)
        write_engine(folder / name / "model.gguf", program, weights.__getitem__)
    for name, model in hosted().items():
        write_project(model.program, folder / name, name)
        model.save(folder / name / "model.gguf")
    names = " ".join((*ALL, *SUITE, *HOSTED))
    (folder / "CMakeLists.txt").write_text(GATHERED.format(names=names, nodes=NODES))
    configure = [find_cmake(), "-S", folder, "-B", folder / "build", *OPTIONS]
    for command in (configure, [find_cmake(), "--build", folder / "build", "--parallel", "2"]):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]


def test_everything_of_our_own_is_met():
    program = replaced()
    executor = Executor(program, arrays(program), threads=2)
    executor.run(inputs_of(program, {}), {})
    (graph,) = executor.graphs
    sources = {call: sum(map(bool, graph.computed_as(call).contents.src)) for call in graph.own}
    kinds = {(name, sources[call] - (name == "winograd")) for call, name in graph.own.items()}
    assert kinds >= {
        ("conv_2d", 4),
        ("conv_2d", 2),
        ("winograd", 3),
        ("winograd", 4),
        ("mul_mat", 3),
        ("mul_mat", 4),
        ("norm", 1),
        ("norm", 2),
        ("norm", 3),
        ("attention", 3),
        ("attention", 4),
        ("attention", 5),
        ("activate", 1),
        ("activate", 2),
        ("broadcast", 2),
        ("conv_2d_dw", 3),
        ("conv_2d_dw_last", 3),
        ("conv_2d_dw_last", 2),
        ("conv_2d_groups_last", 2),
        ("conv_2d_last", 3),
        ("conv_2d_last", 2),
        ("winograd_last", 4),
        ("expanded_conv_2d", 4),
        ("sum_over_rows", 1),
        ("sum_rows", 1),
        ("soft_max", 1),
        ("group_norm", 3),
        ("rotary", 3),
        ("rotary", 4),
        ("concat", 3),
        ("permuted_copy", 1),
        ("upscale", 1),
        ("interpolate", 1),
        ("average_pool", 1),
        ("cast", 1),
    }


def test_it_runs_on_devices_of_generated_kernels(compiled, tmp_path, monkeypatch):
    from gpu.emulated_device import stand_in

    monkeypatch.setenv("GRAPHC_EMULATED", stand_in())
    program = ALL["flat"]()
    given = inputs_of(program, {})
    (expected,) = Executor(program, arrays(program), threads=2).run(given, {})
    np.save(tmp_path / "x.npy", given["x"])
    files = ["--input", f"x={tmp_path / 'x.npy'}", "--output", f"y={tmp_path / 'y.npy'}", "--repeat", 3]
    command = [compiled / "build" / "flat", "--engine", compiled / "flat" / "model.gguf", *files]
    status, text = run_program(*command, "--device", "emulated0")
    assert status == 0, text
    np.testing.assert_allclose(np.load(tmp_path / "y.npy"), expected, rtol=1e-5, atol=1e-5)
    for call, code, said in (
        ("cuDevicePrimaryCtxRetain", 101, "emulated0: opening the device: cuDevicePrimaryCtxRetain"),
        ("cuMemAlloc", 2, "emulated0: 0.0 MiB of memory: cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY (out of memory)"),
        ("cuMemcpyHtoDAsync", 1, "emulated0: copying to the device"),
        (
            "cuMemcpyDtoHAsync",
            700,
            "emulated0: the device is lost, and with it all that was loaded on it: copying from the",
        ),
    ):
        monkeypatch.setenv("FAKE_CUDA_FAIL", f"{call}:1:{code}")
        status, text = run_program(*command, "--device", "Emulated0 (generated)")
        assert status == 1
        assert said in text.splitlines()[-1]


@pytest.mark.parametrize("name", [*ALL, *SUITE])
def test_the_numbers_are_those_of_the_process(compiled, tmp_path, name):
    program, weights, given = suite_cases()[name] if name in SUITE else (ALL[name](), None, None)
    executor = Executor(program, weights if name in SUITE else arrays(program), threads=2)
    for sizes in SIZES.get(name, [{}]):
        compare(compiled, tmp_path, name, executor, given if name in SUITE else inputs_of(program, sizes), sizes)


def compare(compiled, folder, name, executor, inputs, sizes, *args):
    """Have the program compute what the process does, with the same bits; what the process made of it."""
    args = list(args)
    for number, (input_name, array) in enumerate(inputs.items()):
        np.save(folder / f"{number}.npy", array)
        args += ["--input", f"{input_name}={folder / f'{number}.npy'}"]
    for number, output in enumerate(executor.program.outputs):
        args += ["--output", f"{output.name}={folder / f'out{number}.npy'}"]
    engine = compiled / name / "model.gguf"
    status, said = run_program(compiled / "build" / name, "--engine", engine, "--threads", 2, "--repeat", 3, *args)
    assert status == 0, said
    results = executor.run(inputs, sizes)
    for number, expected in enumerate(results):
        got = np.load(folder / f"out{number}.npy")
        assert got.shape == expected.shape
        assert got.tobytes() == expected.tobytes()
    return results


@pytest.mark.parametrize("name", [*ALL, *SUITE])
def test_the_calls_are_those_of_the_process(compiled, tmp_path, monkeypatch, name):
    """Which of ggml's calls a graph has, which functions of ours, in which order, with which settings: the same text."""
    program, weights, given = suite_cases()[name] if name in SUITE else (ALL[name](), None, None)
    monkeypatch.setenv("GRAPHC_TEST_NODES", str(tmp_path / "nodes.txt"))
    for sizes in SIZES.get(name, [{}]):
        (tmp_path / "nodes.txt").unlink(missing_ok=True)
        executor = Executor(program, weights if name in SUITE else arrays(program), threads=2)
        compare(compiled, tmp_path, name, executor, given if name in SUITE else inputs_of(program, sizes), sizes)
        written = tmp_path / "nodes.txt"  # there is none where there is nothing to compute
        met = written.read_text().split("\n\n")[:-1] if written.exists() else []
        assert {each for each in met if each} == {text.rstrip() for text in map(text_of, executor.graphs)} - {""}


@pytest.mark.parametrize(
    "others", [{"winograd": "tiles", "flash": "scores"}, {"winograd": "direct", "tiles": "direct"}]
)
def test_ways_that_were_chosen_have_the_bits_of_the_process(compiled, tmp_path, monkeypatch, others):
    program = replaced()
    inputs = inputs_of(program, {})
    usual = Executor(program, arrays(program), threads=2)
    before = usual.run(inputs, {})
    (graph,) = usual.graphs
    ways = tmp_path / "ways ü.txt"
    lines = []
    for each in graph.taken.values():
        other = others.get(each.way, each.way)
        known = other in COMPOSITES[f"graphc_{each.key.split()[0]}"].ways
        lines.append(f"{each.key} = {other if known else each.way}  # a = b\n")
    ways.write_text("".join(["# a device\n\n", *lines]))
    monkeypatch.setenv("GRAPHC_WAYS", str(ways))
    other = Executor(program, arrays(program), threads=2)
    after = compare(compiled, tmp_path, "replaced", other, inputs, {}, "--ways", ways)
    assert any(a.tobytes() != b.tobytes() for a, b in zip(before, after, strict=True))
    for got, expected in zip(after, before, strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5 * np.abs(expected).max())


def test_fast_products_have_the_bits_of_the_process(compiled, tmp_path, monkeypatch):
    """Others than usual where the processor multiplies bfloat16, and else the same."""
    program = replaced()
    inputs = inputs_of(program, {})
    before = Executor(program, arrays(program), threads=2).run(inputs, {})
    monkeypatch.setattr("graphc.backends.precision._chosen", "high")
    fast = Executor(program, arrays(program), threads=2)
    after = compare(compiled, tmp_path, "replaced", fast, inputs, {}, "--fast")
    assert fast.rounds == any(a.tobytes() != b.tobytes() for a, b in zip(before, after, strict=True))
    for got, expected in zip(after, before, strict=True):
        np.testing.assert_allclose(got, expected, atol=0.03 * np.abs(expected).max())


def run_hosted(compiled, folder, name, feed):
    """Run a model in which the host acts: its exit status, what it prints, and its outputs by name."""
    args = []
    for input_name, array in feed.items():
        np.save(folder / f"{input_name}.npy", array)
        args += ["--input", f"{input_name}={folder / f'{input_name}.npy'}"]
    args += ["--engine", compiled / name / "model.gguf", "--threads", 2, "--repeat", 2, "--output", folder / "out"]
    status, said = run_program(compiled / "build" / name, *args)
    return status, said, {path.stem: np.load(path) for path in (folder / "out").glob("*.npy")}


@pytest.mark.parametrize(
    ("name", "number"), [(name, i) for name, (_, feeds) in HOSTED.items() for i in range(len(feeds))]
)
def test_what_the_host_does_has_the_bits_of_the_process(compiled, tmp_path, name, number):
    feed = HOSTED[name][1][number]
    status, said, found = run_hosted(compiled, tmp_path, name, feed)
    assert status == 0, said
    for output, expected in hosted()[name].run(feed).items():
        assert (found[output].dtype, found[output].shape) == (expected.dtype, expected.shape)
        assert found[output].tobytes() == expected.tobytes()


@pytest.mark.parametrize(
    ("name", "feed", "message"),
    [
        ("counted", {"x": X, "number": np.array([9])}, "the count of y is 9, must be at most 8"),
        ("counted", {"x": X, "number": np.array([-1])}, "the count of y is -1, must be at least 0"),
        (
            "counted",
            {"x": X, "number": np.array([7])},
            "the sizes are too small: the rest of [n] behind [count] would be -4",
        ),
        ("ragged", {"x": X, "trips": np.array(2)}, "a loop collects tensors of different shapes"),
        (
            "selected",
            HOSTED["selected"][1][0] | {"range": np.array([-(2**63), 0])},
            "must be at least -4611686018427387904",
        ),
        ("loops", HOSTED["loops"][1][0] | {"x": X[:, None]}, "x: 2 axes [6, 1], must be 1 [n]"),
    ],
)
def test_sizes_that_a_run_comes_to_are_checked(compiled, tmp_path, name, feed, message):
    status, said, found = run_hosted(compiled, tmp_path, name, feed)
    assert (status, found) == (1, {})
    assert message in said


def test_every_dtype_of_numpy_is_read_and_written(compiled, tmp_path):
    program = dtypes()
    inputs = inputs_of(program, {})
    args = []
    for name, array in inputs.items():
        np.save(tmp_path / f"{name}.npy", array)
        args += ["--input", f"{name}={tmp_path / f'{name}.npy'}"]
    status, said = run_program(
        compiled / "build" / "dtypes",
        "--engine",
        compiled / "dtypes" / "model.gguf",
        *args,
        "--output",
        tmp_path / "out",
    )
    assert status == 0, said
    for output in program.outputs[:-1]:
        source = inputs[output.name.removeprefix("same_")]
        got = np.load(tmp_path / "out" / f"{output.name}.npy")
        if output.dtype.isbuiltin == 1:
            assert got.dtype == output.dtype
        assert got.tobytes() == source.tobytes()


@pytest.mark.parametrize("make", [hostile, hostile_steps])
def test_names_from_a_model_stay_names(compiled, tmp_path, make):
    program, name = make(), make.__name__
    args = ["--engine", compiled / name / "model.gguf", "--random", 1, "--output", tmp_path / "out"]
    status, said = run_program(compiled / "build" / name, *args)
    assert status == 0, said
    assert len(list((tmp_path / "out").iterdir())) == len(program.outputs)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out"]
    status, said = run_program(compiled / "build" / name, "--list")
    assert status == 0
    assert program.inputs[0].name in said


def blocks_args(compiled, tmp_path, array):
    np.save(tmp_path / "tokens.npy", array)
    return (
        compiled / "build" / "blocks",
        "--engine",
        compiled / "blocks" / "model.gguf",
        "--input",
        f"tokens={tmp_path / 'tokens.npy'}",
    )


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros((1, 5, 8)), "tokens: dtype float64, must be float32"),
        (np.zeros((5, 8), np.float32), "tokens: 2 axes [5, 8], must be 3 [1, 5, 8]"),
        (np.zeros((1, 6, 8), np.float32), "tokens: axis 1 has size 6, must be 5"),
        (np.zeros((8, 5, 1), np.float32).T, "is in Fortran order"),
        (np.zeros((1, 5, 8), ">f4"), "is big-endian"),
        (np.zeros((1, 5, 8), np.complex64), "holds elements of type '<c8'"),
        (np.zeros((1, 5, 8), [("a", "<f4")]), "holds records"),
    ],
)
def test_an_array_that_does_not_fit_is_refused(compiled, tmp_path, array, message):
    status, said = run_program(*blocks_args(compiled, tmp_path, array))
    assert status == 1
    assert message in said


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ([], "--engine is missing"),
        (["--engine", "absent.gguf"], "absent.gguf cannot be opened"),
        (["--engine", "."], ". is not a file"),
        (["--frobnicate"], "unknown option '--frobnicate'"),
        (["--engine"], "--engine needs a value"),
        (["--engine", "ENGINE", "--threads", "many"], "--threads takes a whole number from 1, not 'many'"),
        (["--engine", "ENGINE", "--device", "abacus"], "no device 'abacus'; there is CPU"),
        (["--engine", "ENGINE"], "tokens: missing"),
        (["--engine", "ENGINE", "--input", "tokens"], "--input takes NAME=VALUE"),
        (["--engine", "ENGINE", "--input", "x=absent.npy"], "absent.npy cannot be opened"),
        (["--engine", "ENGINE", "--random", "1", "--output", "x=y.npy"], "no output named 'x'"),
        (
            ["--engine", "ENGINE", "--random", "1", "--output", "features=absent/y.npy"],
            "absent/y.npy cannot be written",
        ),
        (["--engine", "ENGINE", "--random", "1", "--dim", "n=3"], "no size named n"),
        (["--engine", "OTHER", "--random", "1"], "is the engine of another program"),
        (["--engine", "ENGINE", "--ways", "absent.txt"], "absent.txt cannot be read"),
        (["--engine", "ENGINE", "--ways", "ENGINE"], "is not a choice that this program knows"),
    ],
)
def test_a_wrong_command_line_is_one_message(compiled, tmp_path, args, message):
    known = {"ENGINE": compiled / "blocks" / "model.gguf", "OTHER": compiled / "flat" / "model.gguf"}
    command = [compiled / "build" / "blocks", *(known.get(arg, arg) for arg in args)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=60, check=False)
    assert done.returncode == 1
    assert message in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_an_engine_of_another_format_is_refused(compiled, tmp_path):
    content = (compiled / "blocks" / "model.gguf").read_bytes()
    written, other = (b"graphc.version" + struct.pack("<II", 4, number) for number in (1, 2))
    assert content.count(written) == 1
    (tmp_path / "e.gguf").write_bytes(content.replace(written, other))
    status, said = run_program(compiled / "build" / "blocks", "--engine", tmp_path / "e.gguf", "--random", "1")
    assert status == 1
    assert "e.gguf is an engine of format 2, and this program reads format 1" in said


@pytest.mark.skipif(os.name == "nt", reason="files of POSIX systems")
def test_links_are_followed_and_devices_stay(compiled, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    run = [compiled / "build" / "blocks", "--engine", compiled / "blocks" / "model.gguf"]
    for more in (["--ways", "pipe"], ["--input", "tokens=pipe"], ["--random", "1", "--output", "features=pipe"]):
        done = subprocess.run([*run, *more], capture_output=True, text=True, cwd=tmp_path, timeout=60, check=False)
        assert (done.returncode, done.stderr) == (1, "error: pipe is not a file\n")
    assert "pipe is not a file" in run_program(run[0], "--engine", tmp_path / "pipe")[1]
    (tmp_path / "there").mkdir()
    (tmp_path / "link.npy").symlink_to("there/y.npy")
    for target in (tmp_path / "link.npy", Path("/dev/null")):
        status, said = run_program(*run, "--random", "1", "--output", f"features={target}")
        assert status == 0, said
    assert (tmp_path / "link.npy").is_symlink()
    assert np.load(tmp_path / "there" / "y.npy").dtype == np.float32
    assert Path("/dev/null").is_char_device()
    assert os.listdir(tmp_path / "there") == ["y.npy"]


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        (((65, 8, 8), 9), "batch must be 1..64"),
        (((1, 7, 8), 8), "tokens must be a multiple of 2"),
        (((1, 8, 8), 8), "mask: axis 0 has size 8, must be 9 (the shape is [tokens + 1])"),
        (((1, 6, 8), 7), "tokens must be a multiple of 4"),
    ],
)
def test_sizes_are_checked_in_the_words_of_the_model(compiled, tmp_path, shapes, message):
    np.save(tmp_path / "x.npy", np.zeros(shapes[0], np.float32))
    np.save(tmp_path / "mask.npy", np.zeros(shapes[1], np.float32))
    args = ["--input", f"x={tmp_path / 'x.npy'}", "--input", f"mask={tmp_path / 'mask.npy'}"]
    status, said = run_program(compiled / "build" / "symbolic", "--engine", compiled / "symbolic" / "model.gguf", *args)
    assert status == 1
    assert message in said


@pytest.mark.parametrize(
    ("height", "width", "message"),
    [
        (4, 9, "the sizes are too small: height - 4 would be 0"),
        (1, 9, "the sizes are too small: height - 2 would be -1"),
        (8, 4, "the sizes are too small: the rest of [1, 3, height, width] behind [1, 3, height - 2, 4] would be -4"),
    ],
)
def test_sizes_that_ggml_would_end_the_process_for_are_refused(compiled, height, width, message):
    args = ["--random", 1, "--dim", f"height={height}", "--dim", f"width={width}"]
    status, said = run_program(compiled / "build" / "images", "--engine", compiled / "images" / "model.gguf", *args)
    assert status == 1
    assert message in said


@pytest.mark.parametrize(
    ("rows", "columns", "message"),
    [
        (2**33, 2**33, "the sizes are too large: 64 bits do not hold what follows from them"),
        (2**31, 2**30, "shape [1, 1, 2147483648, 1073741824] has more elements than memory can hold"),
    ],
)
def test_sizes_whose_product_overflows_are_refused(compiled, tmp_path, rows, columns, message):
    arrays = {"x": np.zeros((rows, 0), np.float32), "y": np.zeros((columns, 0), np.float32)}
    args = []
    for name, array in arrays.items():
        np.save(tmp_path / f"{name}.npy", array)
        args += ["--input", f"{name}={tmp_path / f'{name}.npy'}"]
    status, said = run_program(compiled / "build" / "products", "--engine", compiled / "products" / "model.gguf", *args)
    assert status == 1
    assert message in said


def test_row_numbers_out_of_range_are_refused(compiled, tmp_path):
    program = dtypes()
    inputs = inputs_of(program, {})
    inputs["rows"][1, 2] = 10
    args = []
    for name, array in inputs.items():
        np.save(tmp_path / f"{name}.npy", array)
        args += ["--input", f"{name}={tmp_path / f'{name}.npy'}"]
    status, said = run_program(compiled / "build" / "dtypes", "--engine", compiled / "dtypes" / "model.gguf", *args)
    assert status == 1
    assert "rows: 10 at [1, 2] is not in 0..9" in said


def test_row_numbers_below_0_count_from_the_end(compiled, tmp_path):
    inputs = inputs_of(dtypes(), {})
    _, _, expected = run_hosted(compiled, tmp_path, "dtypes", inputs)
    inputs["rows"][0] -= 10
    status, said, found = run_hosted(compiled, tmp_path, "dtypes", inputs)
    assert status == 0, said
    assert found["rows_of_table"].tobytes() == expected["rows_of_table"].tobytes()


def test_a_damaged_file_is_refused_or_read(compiled, tmp_path):
    """Engines and arrays with wrong bytes or an early end: an answer or one message, never a crash."""
    engine = (compiled / "blocks" / "model.gguf").read_bytes()
    np.save(tmp_path / "tokens.npy", np.ones((1, 5, 8), np.float32))
    array = (tmp_path / "tokens.npy").read_bytes()
    rng = np.random.default_rng(0)
    head = engine.find(b"w0") + 1200
    for round in range(60):
        damaged = [bytearray(engine), bytearray(array)]
        victim = damaged[round % 4 == 0]
        reach = min(len(victim), head if victim is damaged[0] else 128)
        for position in rng.integers(0, reach, rng.integers(1, 4)):
            victim[position] = rng.choice([0, 1, 0x7F, 0x80, 0xFF, int(rng.integers(256))])
        if round % 3 == 0:
            del victim[int(rng.integers(len(victim))) :]
        (tmp_path / "e.gguf").write_bytes(damaged[0])
        (tmp_path / "a.npy").write_bytes(damaged[1])
        command = [
            compiled / "build" / "blocks",
            "--engine",
            tmp_path / "e.gguf",
            "--input",
            f"tokens={tmp_path / 'a.npy'}",
        ]
        status, said = run_program(*command)
        assert status in (0, 1), (round, status, said)
        assert status == 0 or "error: " in said


@pytest.mark.parametrize(
    "options", [pytest.param(OPTIONS, id="quickly"), pytest.param((), id="usually", marks=pytest.mark.thorough)]
)
def test_build_makes_a_program_and_the_example(tmp_path, options):
    program = PROGRAMS["blocks"]()
    project = write_project(program, tmp_path / "the project", "My Model 2")
    write_engine(project / "model.gguf", program, arrays(program).__getitem__)
    stages = []

    class Recorder:
        def stage(self, title, total=None):
            from contextlib import nullcontext

            stages.append(title)
            return nullcontext(lambda amount: None)

    binary = build(project, cmake_args=options, jobs=2, progress=Recorder())
    assert stages == ["configure", "compile"]
    status, said = run_program(binary, "--engine", project / "model.gguf", "--random", 3)
    assert status == 0, said
    assert "features: float32[1, 5, 8]" in said
    folders = [f"-I{each}" for each in (project / "include", project / "runtime", installed_ggml() / "include")]
    command = ["c++", "-std=c++17", *WARNINGS.split(), "-fsyntax-only", *folders, project / "example.cpp"]
    subprocess.run(command, check=True)
    target = ["--build", project / "build", "--target", "my_model2-example"]
    done = subprocess.run([find_cmake(), *target], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    status, said = run_program(project / "build" / "example", project / "model.gguf")
    assert (status, said) == (0, "features: [1, 5, 8]\n")


def test_a_project_is_rewritten_in_place(tmp_path):
    first = write_project(PROGRAMS["kernels"](), tmp_path / "project")
    (first / "mine.txt").write_text("kept")
    write_project(PROGRAMS["blocks"](), first)
    assert (first / "mine.txt").read_text() == "kept"
    assert "kernels.c" not in (first / "CMakeLists.txt").read_text()
    assert not [path for path in Path(first).rglob("*") if path.name.startswith(".graphc")]


def test_a_folder_that_cannot_be_written_is_an_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        write_project(PROGRAMS["flat"](), tmp_path / "file")
    assert os.listdir(tmp_path) == ["file"]
