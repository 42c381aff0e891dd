"""C++ projects that launch kernels of GPUs. No compiler for GPUs builds them, and on the stand-in for libcuda they give the bits
of Python."""

from __future__ import annotations

import os
import shutil
import subprocess
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from built_once import built_once
from cpp_programs import OTHERS, PROGRAMS, arrays, narrow
from emulated_device import emulated_file, fake, stand_in
from suite.quick_cpp import OPTIONS
from test_cpp_build import GATHERED, NODES, SIZES, inputs_of, run_program

import graphc
from graphc.compiler import add_device_code
from graphc.errors import GraphcError
from graphc.targets.ggml.cpp import render_project, write_project
from graphc.targets.ggml.engine import read_engine, write_engine
from graphc.targets.ggml.generate import compiled as compiling
from graphc.targets.ggml.program.device_code import DeviceCode
from graphc.targets.ggml.program.program import Program
from graphc.targets.ggml.run.executor import Executor

DEVICE = "emulated0"
MADE = {
    name: {**PROGRAMS, **OTHERS}[name]
    for name in (
        "flat",
        "blocks",
        "skips",
        "symbolic",
        "images",
        "kernels",
        "repeated",
        "counted",
        "nothing",
        "constants",
    )
}
FAST = ("blocks_fast", "skips_fast")
"""The same with products of float16, so that weights are packed into it."""

SEVERAL_SIZES = """
add_executable(sizes "{source}" symbolic/model.cpp symbolic/weights.cpp)
target_precompile_headers(sizes REUSE_FROM headers)
target_include_directories(sizes BEFORE PRIVATE symbolic/include)
target_link_libraries(sizes PRIVATE nodes graphc "-Wl,--wrap=graphc_runner_new")
"""
"""A program that runs one of the models for several sizes."""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not shutil.which("cmake") or not shutil.which("c++"), reason="needs cmake and a C++ compiler"),
]


def emulated_code(text: str, target: str) -> str:
    """In PTX's place, what the stand-in takes as text."""
    return emulated_file(text)


def program_of(name: str) -> Program:
    return narrow() if name == "narrow" else MADE[name.removesuffix("_fast")]()


NAMES = (*MADE, *FAST, "narrow")


@pytest.fixture(scope="module")
def projects(tmp_path_factory):
    """The folder of all projects, built."""
    return built_once(tmp_path_factory, "launches", build_projects)


def build_projects(folder: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiling, "compile_ptx", emulated_code)
        for name in NAMES:
            patch.setattr("graphc.backends.precision._chosen", "high" if name in FAST else "highest")
            program = program_of(name)
            program.name = name
            weights = arrays(program)
            add_device_code(program, ["sm_75", "sm_80"])
            write_project(program, folder / name)
            write_engine(folder / name / "model.gguf", program, weights.__getitem__)
    several = SEVERAL_SIZES.format(source=Path(__file__).parent / "cpp_sizes" / "main.cpp")
    (folder / "CMakeLists.txt").write_text(GATHERED.format(names=" ".join(NAMES), nodes=NODES) + several)
    for command in (
        ["-S", folder, "-B", folder / "build", *OPTIONS],
        ["--build", folder / "build", "-j", str(os.cpu_count())],
    ):
        done = subprocess.run(["cmake", *map(str, command)], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


@pytest.fixture(autouse=True)
def _device(monkeypatch: pytest.MonkeyPatch) -> None:
    fake()
    monkeypatch.setenv("GRAPHC_EMULATED", stand_in())


def ran(projects: Path, folder: Path, name: str, inputs: dict, *options: object) -> tuple[int, str, list[np.ndarray]]:
    """Run a program: its status, what it prints, and its outputs."""
    program, args = program_of(name), list(options)
    for number, (input_name, array) in enumerate(inputs.items()):
        np.save(folder / f"{number}.npy", array)
        args += ["--input", f"{input_name}={folder / f'{number}.npy'}"]
    outputs = [folder / f"out{number}.npy" for number in range(len(program.outputs))]
    for output, path in zip(program.outputs, outputs, strict=True):
        args += ["--output", f"{output.name}={path}"]
    engine = [] if "--engine" in options else ["--engine", projects / name / "model.gguf"]
    status, said = run_program(projects / "build" / name, *engine, *args)
    return status, said, [np.load(path) for path in outputs] if status == 0 else []


@pytest.mark.parametrize("name", NAMES)
def test_the_bits_are_those_of_python(projects: Path, tmp_path: Path, name: str, monkeypatch) -> None:
    monkeypatch.setattr("graphc.backends.precision._chosen", "high" if name in FAST else "highest")
    program, weights = read_engine(projects / name / "model.gguf")
    with closing(Executor(program, weights, DEVICE, threads=2, trust=True)) as executor:
        for sizes in SIZES.get(name.removesuffix("_fast"), [{}]):
            inputs = inputs_of(program, sizes)
            status, said, results = ran(
                projects, tmp_path, name, inputs, "--device", DEVICE, "--repeat", 3, "--threads", 2
            )
            assert status == 0, said
            for got, expected in zip(results, executor.run(inputs, sizes), strict=True):
                assert got.shape == expected.shape
                assert got.tobytes() == expected.tobytes()


def test_sizes_make_room_for_one_another(projects: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is memory for the results of all sizes, of one of the larger, or of none of these."""
    found = []
    for memory in (1 << 30, 1_300_000, 600_000):
        monkeypatch.setenv("FAKE_CUDA_MEMORY", str(memory))
        command = projects / "build" / "sizes", projects / "symbolic" / "model.gguf", DEVICE
        status, said = run_program(*command, 16_000, 15_996, 16_000, 15_992, 8, 16_000)
        found.append((status, [line for line in said.splitlines() if line[0].isdigit()], "failed to allocate" in said))
    enough, scarce, too_little = found
    assert (enough[0], len(enough[1]), enough[2]) == (0, 6, False)
    assert scarce == (0, enough[1], True)
    assert too_little == (1, [], True)


def test_weights_are_packed(projects: Path) -> None:
    skips = (projects / "skips" / "weights.cpp").read_text()
    assert "graphc::Packing{{0, 2, 3, 1}, GGML_TYPE_F32}" in skips
    assert "graphc::Packing{{0, 2, 3, 1}, GGML_TYPE_F32, true}" in skips
    assert "GGML_TYPE_F16}" in (projects / "blocks_fast" / "weights.cpp").read_text()
    model = (projects / "blocks" / "model.cpp").read_text()
    assert "kernels.launch(ctx, linear_kernel, GGML_TYPE_F32," in model
    assert "for (const" in model  # modules that are alike share a function, and are a loop


def test_streamed_weights_are_packed_too(projects: Path, tmp_path: Path) -> None:
    inputs = inputs_of(program_of("blocks_fast"), {})
    status, said, usual = ran(projects, tmp_path, "blocks_fast", inputs, "--device", DEVICE)
    assert (status, "streamed" in said) == (0, False), said
    for size in ("4KiB", "5KiB"):
        status, said, results = ran(projects, tmp_path, "blocks_fast", inputs, "--device", DEVICE, "--memory", size)
        assert (status, "streamed through" in said) == (0, True), said
        assert results[0].tobytes() == usual[0].tobytes()


def test_other_kernels_are_refused(projects: Path, tmp_path: Path) -> None:
    inputs = inputs_of(program_of("flat"), {})
    program, weights = read_engine(projects / "flat" / "model.gguf")
    assert program.device_code is not None
    engine = tmp_path / "other.gguf"
    others = dict.fromkeys(program.device_code.code, "/somebody's/code.so")
    for code, said in (
        (others, "has other kernels than those that were compiled together"),
        ({"sm_75": program.device_code.code["sm_75"]}, "has no kernels for sm_80, which this code needs"),
    ):
        program.device_code = DeviceCode(program.device_code.text, False, code)
        write_engine(engine, program, weights.__getitem__)
        status, text, _ = ran(projects, tmp_path, "flat", inputs, "--engine", engine, "--device", DEVICE)
        assert (status, said in text) == (1, True), text
    whole = (projects / "flat" / "model.gguf").read_bytes()
    at = whole.index(b"/tmp/") + 7
    engine.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
    found = [
        ran(projects, tmp_path, "flat", inputs, "--engine", engine, "--device", device) for device in (DEVICE, "cpu")
    ]
    assert [status for status, _, _ in found] in (
        [0, 1],
        [1, 1],
    )  # the code that was damaged may be that of the other target


def test_it_needs_a_device_of_generated_kernels(projects: Path, tmp_path: Path) -> None:
    for options in ([], ["--device", "cpu"]):
        status, said, _ = ran(projects, tmp_path, "flat", inputs_of(program_of("flat"), {}), *options)
        assert (status, "was compiled for devices of generated kernels (--gpu sm_75, sm_80)" in said) == (1, True), said


def test_more_devices_than_ggml_takes_are_refused(projects: Path, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("FAKE_CUDA_DEVICES", "16")
    devices = ",".join(f"{DEVICE[:-1]}{number}" for number in range(16))
    status, said, _ = ran(projects, tmp_path, "flat", inputs_of(program_of("flat"), {}), "--device", devices)
    assert (status, "16 devices; ggml can use at most 15 besides the CPU" in said) == (1, True), said


def test_failures_of_the_driver_are_errors(projects: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inputs = inputs_of(program_of("flat"), {})
    for call in ("cuModuleLoadDataEx", "cuModuleGetFunction", "cuLaunchKernel"):
        monkeypatch.setenv("FAKE_CUDA_FAIL", f"{call}:1:1")
        status, said, _ = ran(projects, tmp_path, "flat", inputs, "--device", DEVICE)
        assert (status, call in said) == (1, True), said


def test_kernels_of_another_program_are_no_project() -> None:
    program = program_of("flat")
    program.device_code = DeviceCode("0" * 64, False, {"sm_80": "code"})
    with pytest.raises(GraphcError, match="another program, or another graphc made them"):
        render_project(program)


def test_the_command_writes_both(graphc_command, monkeypatch: pytest.MonkeyPatch) -> None:
    from small_models import dense_model

    monkeypatch.setattr(compiling, "compile_ptx", emulated_code)
    Path("m.onnx").write_bytes(dense_model().SerializeToString())
    done = graphc_command("compile", "m.onnx", "--gpu", "sm_80", "--cpp", "project", "-o", "m.gguf")
    assert done.status == 0, done.err
    code = graphc.load("m.gguf").program.device_code
    assert code is not None
    (sum,) = compiling.DeviceCode(code.text, False, code.code).metadata()["graphc.kernels"].split('"sm_80": "')[1:]
    assert sum[:64] in Path("project/model.cpp").read_text()
