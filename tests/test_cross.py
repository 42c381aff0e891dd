"""Programs for other systems and processors: built here, run by Wine and QEMU, and as exact as here."""

import functools
import os
import platform
import shutil
import struct
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import onnx
import pytest
from built_once import alone, built_once
from suite.quick_cpp import BUNDLED, FROM_SOURCE

import graphc
from graphc import cross
from graphc.build import build
from graphc.cross import TARGETS, cross_options, find_target
from graphc.errors import BuildError
from graphc.ggml_library import ggml_include
from graphc.targets.ggml.cpp import write_project
from graphc.zig import find_zig

WINE = shutil.which("wine64") or shutil.which("wine64", path="/usr/lib/wine")
QEMU = shutil.which("qemu-aarch64") or shutil.which("qemu-aarch64-static")

QEMU_X86_64 = shutil.which("qemu-x86_64") or shutil.which("qemu-x86_64-static")

RUNNERS = {"x86_64-linux": [], "aarch64-linux": [QEMU], "x86_64-windows": [WINE]}
"""What runs the programs of a target here, before the program's own name; None where it is not installed."""

VARIANTS = {
    "x86-64-v2": ("Nehalem", {"sse4_2", "popcnt"}),
    "x86-64-v3": ("Haswell", {"avx2", "fma", "f16c"}),
    "x86-64-v4": (None, {"avx512f", "avx512cd", "avx512bw", "avx512dq", "avx512vl"}),
    "x86-64-v4-bf16": (None, {"avx512f", "avx512cd", "avx512bw", "avx512dq", "avx512vl", "avx512_bf16"}),
}
"""Code for kinds of processors: one of QEMU's that has no more (AVX-512 it has not), and what Linux calls what each adds."""

ROUNDING = 8e-6
"""Of the largest number of an output: how far sums may lie apart that are added up in another order, or fused. That is 64 times
the rounding of one float32; two convolutions by large tiles, with errors of plain sums, pass through a product of two."""

EXACT = ("sums", "order", "aux", "steps")
"""Outputs of generated kernels and loops, which round alike everywhere."""

SECTIONS = (
    "-O1 -DNDEBUG -ffunction-sections -fdata-sections -ffile-prefix-map=ggml=ggml -ffile-prefix-map=graphc=graphc"
)
AS_BUNDLES = (*BUNDLED, *(f"-DCMAKE_{each}_FLAGS_RELEASE={SECTIONS}" for each in ("C", "CXX")))
"""How bundles are compiled, so that ccache has it already."""

needs_x86_64 = pytest.mark.skipif(platform.machine() != "x86_64" or os.name == "nt", reason="needs Linux on x86-64")
needs_zig = pytest.mark.skipif(find_zig() is None, reason="needs ziglang")


@functools.cache
def model():
    """Convolutions, normalizations, attention and products, which code of our own computes; kernels; a loop."""
    proto = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["": 21]>
    platforms (float[1, 3, 24, 40] image, float[n, 64] tokens, int64 trips)
            => (float[1, 40, 24, 40] features, float[n, 64] mixed, float[n, 64] sums, int64[n, 64] order, float[n, 64] aux,
                float[n, 64] steps) {
        first = Conv<pads = [1, 1, 1, 1]>(image, conv1, bias1)
        normal = GroupNormalization<num_groups = 8>(first, scale, shift)
        gate = Sigmoid(normal)
        active = Mul(normal, gate)
        second = Conv<pads = [1, 1, 1, 1]>(active, conv2, bias1)
        features = Add(second, first)
        q = MatMul(tokens, wq)
        k = MatMul(tokens, wk)
        v = MatMul(tokens, wv)
        turned = Transpose<perm = [1, 0]>(k)
        scores = MatMul(q, turned)
        shares = Softmax(scores)
        attended = MatMul(shares, v)
        normed = LayerNormalization(attended, factor, offset)
        mixed = Gelu(normed)
        axis = Constant<value = int64 {1}>()
        sums = CumSum(tokens, axis)
        size = Constant<value_ints = [64]>()
        sorted, order = TopK<axis = 1>(tokens, size)
        seven = Constant<value = float {0.7}>()
        rest = Mod<fmod = 1>(tokens, seven)
        nearest = Round(rest)
        root = Abs(tokens)
        square = Sqrt(root)
        aux = Add(nearest, square)
        steps = Loop(trips, , tokens) <body = body (int64 i, bool going, float[n, 64] a) => (bool again, float[n, 64] b) {
            again = Identity(going)
            half = Mul(a, seven)
            b = Add(half, tokens)
        }>
    }""")
    rng = np.random.default_rng(0)
    shapes = {"conv1": (40, 3, 3, 3), "conv2": (40, 40, 3, 3), "bias1": (40,), "scale": (40,), "shift": (40,), "wq": (64, 64),
              "wk": (64, 64), "wv": (64, 64), "factor": (64,), "offset": (64,)}  # fmt: skip
    for name, shape in shapes.items():
        array = rng.standard_normal(shape).astype(np.float32) / 8
        proto.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    return graphc.compile(proto, threads=2)


def feed():
    rng = np.random.default_rng(1)
    return {
        "image": rng.standard_normal((1, 3, 24, 40)).astype(np.float32),
        "tokens": rng.standard_normal((96, 64)).astype(np.float32),
        "trips": np.array(3),
    }


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """The folder of the model's project and engine."""

    def make(folder):
        write_project(model().program, folder, "platforms")
        model().save(folder / "model.gguf")

    return built_once(tmp_path_factory, "for others ü 出", make)


def run_foreign(command, folder, threads):
    """Run a model's program, by what runs it here: its outputs by name."""
    environment = dict(os.environ, WINEPREFIX=str(folder / "wine"), WINEDEBUG="-all", LC_ALL="C.UTF-8")
    args = []
    for name, array in feed().items():
        np.save(folder / f"{name}.npy", array)
        args += ["--input", f"{name}={folder / f'{name}.npy'}"]
    args += ["--engine", folder / "model.gguf", "--threads", threads, "--repeat", 2, "--output", folder / "out ü 出"]
    command = [*map(str, command), *map(str, args)]
    done = subprocess.run(command, capture_output=True, env=environment, timeout=300, check=False)
    assert done.returncode == 0, (done.stdout + done.stderr).decode(errors="replace")
    assert (folder / "out ü 出" / "_aux.npy").is_file()  # aux is a device, says Windows
    return {path.stem.lstrip("_"): np.load(path) for path in (folder / "out ü 出").glob("*.npy")}


def check_outputs(found):
    expected = model().run(feed())
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        assert (found[name].shape, found[name].dtype) == (array.shape, array.dtype)
        if name in EXACT:
            assert found[name].tobytes() == array.tobytes(), name
        else:
            assert np.abs(found[name] - array).max() <= ROUNDING * np.abs(array).max(), name


@needs_zig
@pytest.mark.slow
@pytest.mark.parametrize("name", ["aarch64-linux", "x86_64-windows"])
def test_our_code_is_compiled_for_another_system(project, tmp_path, name):
    """Without a warning, and with nothing else of a program, which takes minutes."""
    quickly = ("-std=gnu11", "-c", "-O0", "-Wall", "-Werror", "-DGRAPHC_VARIANT=graphc_single")
    where = ("-target", TARGETS[name].triple, f"-mcpu={TARGETS[name].cpu}", f"-I{ggml_include()}")
    source = project / "runtime" / "graphc" / "variant.c"
    command = [find_zig(), "cc", *quickly, *where, source, "-o", tmp_path / "variant.o"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@needs_zig
@pytest.mark.thorough
@pytest.mark.parametrize("name", RUNNERS)
def test_a_program_for_another_system_answers_as_here(project, tmp_path, name):
    if None in RUNNERS[name]:
        pytest.skip("nothing here runs it")
    program = build(project, target=name, cmake_args=FROM_SOURCE)
    assert program == project / f"build-{name}" / TARGETS[name].program
    assert program.stat().st_size < 4 << 20
    shutil.copy(project / "model.gguf", tmp_path)
    few, many = (run_foreign([*RUNNERS[name], program], tmp_path, threads) for threads in (2, 5))
    check_outputs(few)
    assert all(few[output].tobytes() == many[output].tobytes() for output in few)


def load_commands(program):
    """The kinds of a Mach-O file's load commands, and what it says of its processor and its kind."""
    data = program.read_bytes()
    magic, processor, _, kind, count, _, _, _ = struct.unpack_from("<8I", data)
    assert magic == 0xFEEDFACF
    kinds, at = [], 32
    for _ in range(count):
        command, size = struct.unpack_from("<2I", data, at)
        kinds.append(command)
        at += size
    return kinds, processor, kind


@needs_zig
@pytest.mark.thorough
def test_a_program_for_macos_is_linked_and_signed(project):
    program = build(project, target="aarch64-macos")
    kinds, processor, kind = load_commands(program)
    assert (processor, kind) == (0x0100000C, 2)  # arm64, a program
    assert 0x1D in kinds  # a signature, without which such a machine runs nothing
    assert kinds.count(0x0C) == 1  # one library is loaded: the system's


@needs_zig
@pytest.mark.thorough
def test_a_processor_can_be_chosen(project):
    names = ("x86_64_v2", "x86_64_v4")
    with ThreadPoolExecutor(len(names)) as pool:
        old, new = pool.map(lambda cpu: build(project, target="x86_64-linux", cpu=cpu), names)
    assert (old.parent.name, new.parent.name) == ("build-x86_64-linux-x86_64_v2", "build-x86_64-linux-x86_64_v4")
    assert old.read_bytes() != new.read_bytes()


@needs_zig
def test_an_unknown_target_or_processor_is_refused(tmp_path, project):
    with pytest.raises(BuildError, match=r"no target 'z80-cpm'; there is x86_64-linux, "):
        build(project, target="z80-cpm")
    for cpu, message in (("z80", r"(?s)with the processor z80:.*unknown CPU: 'z80'"), ("$(true)", "not the name of a")):
        with pytest.raises(BuildError, match=message):
            build(project, target="x86_64-linux", cpu=cpu)
    assert not list(project.glob("build-*z80*"))
    with pytest.raises(BuildError, match="together with a target"):
        build(project, cpu="x86_64_v4")
    with pytest.raises(BuildError, match="only the CPU's backend"):
        build(project, target="x86_64-linux", backend="vulkan")


def test_without_ziglang_the_message_says_how_to_get_it(monkeypatch, tmp_path):
    monkeypatch.setattr(cross, "find_zig", lambda: None)
    with pytest.raises(BuildError, match="pip install ziglang"):
        cross_options(find_target("aarch64-linux"), "generic", tmp_path / "toolchain")
    assert not (tmp_path / "toolchain").exists()


def test_on_windows_the_tools_are_command_files(monkeypatch, tmp_path):
    monkeypatch.setattr(cross, "find_zig", lambda: Path("C:/100% zig/zig.exe"))
    monkeypatch.setattr(cross, "WINDOWS", True)
    monkeypatch.setattr(cross, "run", lambda command, failure: None)
    monkeypatch.setattr(cross.sys, "executable", str(tmp_path / "python.exe"))
    (tmp_path / "ninja.exe").touch()
    options = cross_options(find_target("aarch64-linux"), "generic", tmp_path)
    assert options[:3] == ["-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={tmp_path / 'ninja.exe'}"]
    assert (tmp_path / "c++.cmd").read_text(encoding="utf-8") == (
        '@"C:/100%% zig/zig.exe" "c++" "-target" "aarch64-linux-musl" "-mcpu=generic" "-s" %*\n'
    )
    assert "/cc.cmd" in (tmp_path / "toolchain.cmake").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def for_all(project, tmp_path_factory):
    """The program for every processor like this one; what another process has built is not built again."""
    with alone(tmp_path_factory, "for all"):
        return build(project, cpu="all", cmake_args=AS_BUNDLES)


def code_of(*command):
    """Which code a program says that it uses on the CPU; or how it fails."""
    done = subprocess.run([*map(str, command), "--list"], capture_output=True, text=True, timeout=100, check=False)
    if done.returncode:
        return done.stderr.strip().splitlines()[-1]
    (line,) = (line for line in done.stdout.splitlines() if line.startswith("code for the CPU: "))
    return line.split(": ")[1]


def variants_here():
    """Those that this processor runs, the best last."""
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    flags = set(next(line for line in lines if line.startswith("flags")).split())
    return [name for name, (_, added) in VARIANTS.items() if added <= flags]


@needs_x86_64
@pytest.mark.slow
def test_the_best_code_for_a_processor_is_chosen(project, for_all, tmp_path, monkeypatch):
    assert for_all == project / "build-cpu-all" / "model"
    shutil.copy(project / "model.gguf", tmp_path)
    *_, best = variants_here()
    assert code_of(for_all) == best
    unasked = run_foreign([for_all], tmp_path, 2)
    monkeypatch.setenv("GRAPHC_CPU_VARIANT", best)
    assert unasked["features"].tobytes() == run_foreign([for_all], tmp_path, 2)["features"].tobytes()


@needs_x86_64
@pytest.mark.slow
def test_each_variant_is_exact(project, for_all, tmp_path, monkeypatch):
    shutil.copy(project / "model.gguf", tmp_path)
    found = set()
    for name in variants_here():
        monkeypatch.setenv("GRAPHC_CPU_VARIANT", name)
        assert code_of(for_all) == name
        few, many = (run_foreign([for_all], tmp_path, threads) for threads in (2, 5))
        check_outputs(few)
        assert all(few[output].tobytes() == many[output].tobytes() for output in few)
        found.add(few["features"].tobytes())
        fast = run_foreign([for_all, "--fast"], tmp_path, 2)["features"]
        assert (fast.tobytes() != few["features"].tobytes()) == name.endswith("bf16")
        np.testing.assert_allclose(fast, few["features"], atol=0.03 * np.abs(fast).max())
    exact = [name for name in variants_here() if not name.endswith("bf16")]
    assert len(found) == len(exact)  # vectors of another length add up in another order


@needs_x86_64
@pytest.mark.slow
@pytest.mark.skipif(QEMU_X86_64 is None, reason="needs QEMU")
@pytest.mark.parametrize("name", [name for name, (processor, _) in VARIANTS.items() if processor])
def test_an_older_processor_gets_its_code(project, for_all, tmp_path, name):
    shutil.copy(project / "model.gguf", tmp_path)
    command = [QEMU_X86_64, "-cpu", VARIANTS[name][0], for_all]
    assert code_of(*command) == name
    check_outputs(run_foreign(command, tmp_path, 2))


@needs_x86_64
@pytest.mark.slow
@pytest.mark.skipif(QEMU_X86_64 is None, reason="needs QEMU")
def test_a_variant_that_a_processor_cannot_run_is_refused(for_all, monkeypatch):
    assert code_of(QEMU_X86_64, "-cpu", "qemu64", for_all) == (
        "error: this program needs a newer processor: x86-64-v2, which has SSE4.2"
    )
    monkeypatch.setenv("GRAPHC_CPU_VARIANT", "x86-64-v4")
    assert code_of(QEMU_X86_64, "-cpu", "Haswell", for_all) == (
        "error: GRAPHC_CPU_VARIANT is 'x86-64-v4'; this program has for this processor x86-64-v3, x86-64-v2"
    )


@needs_zig
@pytest.mark.thorough
@pytest.mark.parametrize(("target", "code"), [("x86_64-windows", None), ("aarch64-linux", "single")])
def test_a_program_for_every_processor_of_another_system(project, tmp_path, monkeypatch, target, code):
    if None in RUNNERS[target]:
        pytest.skip("nothing here runs it")
    program = build(project, target=target, cpu="all")
    assert program == project / f"build-{target}-all" / TARGETS[target].program
    assert program.stat().st_size < 4 << 20
    shutil.copy(project / "model.gguf", tmp_path)
    check_outputs(run_foreign([*RUNNERS[target], program], tmp_path, 2))
    for name, value in (("WINEPREFIX", str(tmp_path / "wine")), ("WINEDEBUG", "-all")):
        monkeypatch.setenv(name, value)
    assert code_of(*RUNNERS[target], program) == (code or variants_here()[-1])


@needs_x86_64
@pytest.mark.thorough
def test_a_folder_of_libraries_can_be_moved(project, tmp_path):
    options = ("-DGGML_BACKEND_DL=ON", "-DGGML_CPU_ALL_VARIANTS=OFF")  # one of ggml's fourteen libraries
    write_project(model().program, tmp_path / "project", "platforms")
    built = build(tmp_path / "project", cpu="all", cmake_args=options).parent
    moved = tmp_path / "moved ü"
    moved.mkdir()
    for file in [built / "model", *built.glob("libggml*")]:
        file.rename(moved / file.name)
    shutil.copy(project / "model.gguf", tmp_path)
    check_outputs(run_foreign([moved / "model"], tmp_path, 2))
