"""Installing backends, with a build that is made up; `test_device.py` uses one that is built."""

import os
import re
import subprocess
import sys

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from pretended import functions_with

from graphc.backends import install as installing
from graphc.backends import precision
from graphc.backends.install import backends_folder, install, installed, probe, remove
from graphc.backends.table import BACKENDS, find_backend
from graphc.compiler import compile_program
from graphc.errors import BuildError, GraphcError, InputError
from graphc.kernels.c.compiler import find_compiler
from graphc.runtime.arena import graphs, known_sections, stand_ins
from graphc.targets.ggml.run.choose import assign as assigning
from graphc.targets.ggml.run.choose.assign import assign
from graphc.targets.ggml.run.choose.building import Building
from graphc.targets.ggml.run.choose.library import load_own
from graphc.targets.ggml.run.device import devices
from graphc.targets.ggml.run.device.devices import open_backends
from graphc.targets.ggml.run.device.tensors import new_context
from graphc.targets.ggml.run.executor import Executor


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """A cache of its own, ggml's source, and a cmake that writes a library of the version in `built`."""
    monkeypatch.setenv("LOCALAPPDATA" if os.name == "nt" else "XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(installing, "ggml_source", lambda progress: tmp_path / "source")
    monkeypatch.setattr(installing, "probe", lambda library: [f"Fake0: {library.read_text()}"])

    def run_cmake(source, folder, options, *, target, jobs, progress):
        built.append(options)
        library = folder / "library"
        library.mkdir(parents=True)
        (library / "libggml-base.so").write_text("of the build, not to be taken")
        (library / f"lib{target}.so").write_text(f"build {len(built)}")

    built = []
    monkeypatch.setattr(installing, "run_cmake", run_cmake)
    return built


def left_over():
    return sorted(path.name for path in backends_folder().iterdir())


def test_a_backend_is_built_and_found(cache):
    assert install("Vulkan", cmake_args=["-DX=1"]) == ["Fake0: build 1"]
    assert {"-DGGML_VULKAN=ON", "-DX=1"} <= set(cache[0])
    assert list(installed()) == ["vulkan"]
    assert installed()["vulkan"].read_text() == "build 1"
    assert left_over() == ["vulkan"]


def test_installing_again_replaces_it(cache):
    for number in (1, 2):
        install("cuda")
        assert installed()["cuda"].read_text() == f"build {number}"
    assert left_over() == ["cuda"]


def test_a_backend_that_comes_while_another_is_built_is_no_harm(cache, monkeypatch):
    run_cmake = installing.run_cmake

    def slow(*args, **settings):
        monkeypatch.setattr(installing, "run_cmake", run_cmake)
        install("cuda")
        run_cmake(*args, **settings)

    monkeypatch.setattr(installing, "run_cmake", slow)
    install("cuda")
    assert installed()["cuda"].read_text() == "build 2"
    assert left_over() == ["cuda"]


@pytest.mark.parametrize(
    ("step", "failure"),
    [("run_cmake", BuildError("no compiler")), ("run_cmake", KeyboardInterrupt()), ("probe", KeyboardInterrupt())],
)
def test_nothing_is_left_of_a_build_that_ends_early(cache, monkeypatch, failure, step):
    install("cuda")

    def fail(*args, **settings):
        raise failure

    monkeypatch.setattr(installing, step, fail)
    with pytest.raises(type(failure)):
        install("cuda")
    assert installed()["cuda"].read_text() == "build 1", "the one before stays"
    assert left_over() == ["cuda"]


def test_a_build_that_cannot_be_loaded_here_stays(cache, monkeypatch, graphc_command):
    def fail(library):
        raise BuildError("libvulkan.so.1: cannot open shared object file")

    monkeypatch.setattr(installing, "probe", fail)
    done = graphc_command("backend", "install", "vulkan")
    assert (done.status, done.out) == (0, "installed vulkan; it finds no device here\n")
    for part in ("libvulkan.so.1: cannot open", "vulkan stays installed", "GGML_VK_VISIBLE_DEVICES=0"):
        assert part in done.err
    assert installed()["vulkan"].read_text() == "build 1"
    assert left_over() == ["vulkan"]


def test_a_failed_build_says_what_the_backend_needs(cache, monkeypatch):
    def fail(*args, **settings):
        raise BuildError("Could NOT find CUDAToolkit")

    monkeypatch.setattr(installing, "run_cmake", fail)
    with pytest.raises(BuildError, match=r"(?s)CUDAToolkit.*cuda needs the CUDA toolkit.*graphc doctor cuda"):
        install("cuda")


def test_a_library_that_cannot_be_loaded_is_an_error(tmp_path):
    library = tmp_path / "libggml-broken.so"
    library.write_text("no library")
    with pytest.raises(BuildError, match="cannot be loaded"):
        probe(library)


def test_a_broken_backend_is_warned_of_and_the_rest_works(cache, tmp_path):
    install("rpc")
    code = "import graphc.runtime.devices as d; print([each.name for each in d.devices()])"
    command = [sys.executable, "-c", code]
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache"), "LOCALAPPDATA": str(tmp_path / "cache")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100, check=True)
    assert "CPU" in done.stdout
    assert re.search(r"^backend rpc: .*(invalid|file too short)", done.stderr, re.MULTILINE)


CRASHES = "#include <signal.h>\n__attribute__((constructor)) static void begin(void) { raise(SIGSEGV); }\n"
CRASHES_WHEN_CALLED = "void * vkGetInstanceProcAddr(void * instance, const char * name) { __builtin_trap(); }\n"

FIND = "from graphc.targets.ggml.run.device.devices import open_backends; open_backends('vulkan0', 1)"


def shared(path, source):
    """A library of C source; returns its folder."""
    path.parent.mkdir(exist_ok=True)
    subprocess.run(
        [*find_compiler(), "-shared", "-fPIC", "-x", "c", "-", "-o", str(path)], input=source, text=True, check=True
    )
    return path.parent


def python(*words, folder, **environment):
    """A Python process in a folder, of which nothing is imported."""
    command = [sys.executable, "-P", *words]
    more = {**os.environ, "XDG_CACHE_HOME": str(folder / "cache"), **environment}
    return subprocess.run(command, cwd=folder, env=more, capture_output=True, text=True, timeout=100, check=False)


@pytest.mark.skipif(sys.platform != "linux", reason="processes end otherwise elsewhere")
@pytest.mark.skipif(find_compiler() is None, reason="makes libraries")
@pytest.mark.parametrize(("source", "ending"), [(CRASHES, "SIGSEGV"), (CRASHES_WHEN_CALLED, "SIGILL")])
def test_a_driver_that_crashes_ends_no_command(tmp_path, source, ending):
    """It is one line, and the CPU is there. What lies in the folder that one is in is not run."""
    (tmp_path / "json.py").write_text("open('was_run', 'w')\n")
    loader = shared(tmp_path / "loader" / "libvulkan.so.1", source)
    why = f"the driver crashes: libvulkan.so.1 was tried, which ended with {ending}"
    done = python("-m", "graphc.cli", "devices", folder=tmp_path, LD_LIBRARY_PATH=str(loader))
    assert (done.returncode, done.stderr) == (0, "")
    assert re.findall(r"^no vulkan0.*$", done.stdout, re.M) == [f"no vulkan0 (generated): {why}"]
    assert re.search(r"^CPU +CPU ", done.stdout, re.M)
    done = python("-c", FIND, folder=tmp_path, LD_LIBRARY_PATH=str(loader))
    assert f"GraphcError: no device 'vulkan0': {why}; there is CPU" in done.stderr
    assert not (tmp_path / "was_run").exists()


@pytest.mark.skipif(sys.platform != "linux", reason="processes end otherwise elsewhere")
@pytest.mark.skipif(find_compiler() is None, reason="makes libraries")
def test_an_installed_backend_that_crashes_is_warned_of(cache, tmp_path):
    install("vulkan")
    shared(installed()["vulkan"], CRASHES)
    done = python("-m", "graphc.cli", "devices", folder=tmp_path)
    why = "the driver crashes: libggml-vulkan.so was tried, which ended with SIGSEGV"
    assert (done.returncode, done.stderr) == (0, f"warning: backend vulkan: {why}; `graphc doctor` may know why\n")
    assert f"no vulkan0 (generated): {why}" in done.stdout
    assert re.search(r"^CPU +CPU ", done.stdout, re.M)


def test_removing(cache):
    install("vulkan")
    assert remove("vulkan")
    assert not remove("vulkan")
    assert installed() == {}


def test_an_unknown_backend_is_an_error():
    with pytest.raises(BuildError, match="no backend 'abacus'; there is blas, cuda"):
        find_backend("abacus")


def test_the_command(cache, graphc_command):
    assert (
        "installed vulkan; it finds Fake0: build 1" in graphc_command("backend", "install", "vulkan", "--jobs", 1).out
    )
    listed = graphc_command("backend", "list").out
    assert set(BACKENDS) <= set(listed.split())
    assert re.search(r"^vulkan +yes", listed, re.M)
    assert not re.search(r"^cuda +yes", listed, re.M)
    assert graphc_command("backend", "remove", "vulkan").out == "removed vulkan\n"
    assert graphc_command("backend", "remove", "vulkan").out == "vulkan is not installed\n"
    assert graphc_command("backend", "install", "cuda", "abacus").status == 1
    assert len(cache) == 1, "names are checked before anything is built"


def test_precision_is_chosen_before_a_device_is_opened(monkeypatch):
    monkeypatch.setattr(precision, "_chosen", "highest")
    monkeypatch.setattr(precision, "_opened", set())
    monkeypatch.setattr(precision.os, "environ", {"GGML_VK_DISABLE_F16": "mine"})
    with pytest.raises(InputError, match="no precision 'low'; there is highest, high"):
        precision.set_float32_matmul_precision("low")
    precision.set_float32_matmul_precision("high")
    assert precision.given_up("Vulkan")
    precision.set_float32_matmul_precision("highest")
    assert not precision.given_up("Vulkan")
    precision.settle_precision()
    assert precision.os.environ == {"GGML_VK_DISABLE_F16": "mine", "NVIDIA_TF32_OVERRIDE": "0"}
    with pytest.raises(InputError, match="opened with the precision highest before"):
        precision.set_float32_matmul_precision("high")
    precision.set_float32_matmul_precision("highest")


def chain(*operators, size=8):
    """A model of operators of one input, and the weight `w` of MatMul, one after the other."""
    nodes, last = [], "x"
    for number, operator in enumerate(operators):
        result = f"t{number}" if number + 1 < len(operators) else "y"
        reads = [last, "w"] if operator in ("MatMul", "Add") else [last]
        nodes.append(helper.make_node(operator, reads, [result]))
        last = result
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [size, size]) for name in "xy")
    weight = numpy_helper.from_array(np.arange(size * size, dtype=np.float32).reshape(size, size), "w")
    graph = helper.make_graph(nodes, "chain", [x], [y], [weight])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


@pytest.fixture
def split(monkeypatch):
    """What a device that refuses some operators computes of a chain, what it refuses, what stays with those."""
    ggml = assigning.ggml
    unary = {getattr(ggml, f"GGML_UNARY_OP_{name}"): name for name in ("EXP", "TANH", "SIGMOID", "NEG", "ABS")}

    def name(node):
        operator = node.contents.op
        return (
            unary[node.contents.op_params[0]]
            if operator == ggml.GGML_OP_UNARY
            else ggml.ggml_op_name(operator).decode()
        )

    def run(*operators, refused, size=8):
        functions = functions_with(lambda node: name(node) not in refused)
        monkeypatch.setattr(assigning, "ggml_functions", lambda: functions)
        program = compile_program(chain(*operators, size=size))
        executor = Executor(program, stand_ins(program), "cpu", 1)
        executor.uses_own = False
        with executor.context() as context:
            for graph in graphs(context, known_sections(program, {})[0], {}):
                found = assign(executor.own, context.cpu, graph.graph)
                parts = [found[side] for side in (assigning.DEVICE, assigning.REFUSED, assigning.KEPT)]
        return tuple([name(node) for node in part] for part in parts)

    return run


def test_what_lies_between_two_of_the_cpus_stays_there(split):
    device, refused, kept = split("MatMul", "Exp", "Tanh", "Neg", "Exp", "Abs", refused={"EXP"})
    assert (device, refused, kept) == (["MUL_MAT", "ABS"], ["EXP", "EXP"], ["TANH", "NEG"])


def test_what_a_device_is_for_is_worth_moving_data(split):
    device, refused, kept = split("Exp", "Tanh", "MatMul", "Exp", refused={"EXP"})
    assert (device, refused, kept) == (["TANH", "MUL_MAT"], ["EXP", "EXP"], [])


def test_what_reads_inputs_alone_does_not_lie_between(split):
    assert split("Tanh", "Exp", refused={"EXP"}) == (["TANH"], ["EXP"], [])


def test_views_are_looked_through(split):
    device, refused, kept = split("Exp", "Tanh", "Transpose", "Exp", refused={"EXP"})
    assert (device, refused, kept) == ([], ["EXP", "EXP"], ["TANH", "CONT"])


@pytest.mark.skipif(load_own() is None, reason="needs a C compiler")
@pytest.mark.parametrize(("name", "ended"), [("Vulkan", ["CONT"]), ("RPC", ["CUSTOM"]), ("CUDA", [])])
def test_what_would_end_the_process_is_not_the_devices(monkeypatch, name, ended):
    """Copies of elements of eight bytes on Vulkan, functions of this process on a server; whatever the backend says."""
    ggml, own = assigning.ggml, load_own()
    functions = functions_with(lambda node: True)
    monkeypatch.setattr(assigning, "ggml_functions", lambda: functions)
    monkeypatch.setattr(assigning, "backend_name", lambda backend: name)
    context = new_context(20, 20)
    building = Building(own, context, 1, [], b"", uses_own=True, fast=False)
    graph = ggml.ggml_new_graph_custom(context, 20, False)
    numbers = ggml.ggml_new_tensor_2d(context, ggml.GGML_TYPE_I64, 4, 3)
    copy = ggml.ggml_cont(context, ggml.ggml_permute(context, numbers, 1, 0, 2, 3))
    ours = building.call("graphc_relu", [ggml.ggml_new_tensor_2d(context, ggml.GGML_TYPE_F32, 4, 3)])
    for each in (copy, ours):
        ggml.ggml_build_forward_expand(graph, each)
    (backend, *_) = open_backends("cpu", 1)
    found = assign(own, backend, graph)
    assert [ggml.ggml_op_name(node.contents.op).decode() for node in found[assigning.BROKEN]] == ended


def test_more_devices_than_the_scheduler_takes_are_refused(monkeypatch):
    """It would end the process."""
    monkeypatch.setattr(devices, "find_devices", lambda name: [*range(16)])
    with pytest.raises(GraphcError, match=r"^16 devices; ggml can use at most 15 besides the CPU$"):
        open_backends("rpc://somewhere", 1)


def test_a_large_weight_stays_on_the_device(split):
    assert split("Exp", "Add", "Exp", refused={"EXP"})[2] == ["ADD"]
    assert split("Exp", "Add", "Exp", refused={"EXP"}, size=256)[2] == []


def test_without_refusals_the_device_computes_all(split):
    assert split("Exp", "Tanh", "MatMul", refused=set()) == (["EXP", "TANH", "MUL_MAT"], [], [])
