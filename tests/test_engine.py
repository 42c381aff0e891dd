"""The engine file: what is written is read back, and nothing else is."""

from __future__ import annotations

import copy
import ctypes
import hashlib
import json
import os
import random
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from graphc.errors import EngineError
from graphc.ggml_library import ggml
from graphc.ir.types import BF16, BOOL, F32, I32, I64, U8
from graphc.shapes import Dim, ceil_div, dim_max, dim_min, product, symbol
from graphc.targets.ggml.engine import read_engine, write_engine
from graphc.targets.ggml.lowering.builder import Builder
from graphc.targets.ggml.program.program import Check, Output, Program
from graphc.targets.ggml.program.tensor import ProgramError
from graphc.targets.ggml.program.text import read_text, write_text
from graphc.weights.formats.gguf import write_container


def embedding_program() -> tuple[Program, list[np.ndarray]]:
    """Rows of a table, multiplied and shifted: inputs with bounds, weights of several types, symbolic sizes."""
    batch, length = symbol("batch size"), symbol("length", high=64, multiple=2)
    program = Program("embedding")
    b = Builder(program)
    ids = program.add_input("ids", I64, (batch, length), "I32", low=0, high=10)
    table = program.add_weight("token.weight", F32, (10, 8))
    matrix = program.add_weight("dense.weight", F32, (4, 8))
    bias = program.add_weight("dense.bias", F32, (4,))
    program.add_weight("scalar", F32, ())
    program.add_weight("nothing", F32, (3, 0, 2))
    program.add_weight("flags", BOOL, (3,))
    program.add_weight("half", BF16, (2, 3))
    program.add_weight("bytes", U8, (1, 2, 3, 4, 5))
    b.scope, b.source = ("encoder", "dense"), "/encoder/dense"
    rows = b.call("ggml_get_rows", table, b.reshape(ids, (batch * length,)), rank=2)
    result = b.binary("ggml_add", b.matmul(rows, matrix), bias)
    result = b.reshape(b.unary("ggml_scale_bias", result, 0.1, float("-inf")), (batch, length, 4))
    program.outputs.append(Output("rows", F32, (batch, length, 4), result))
    program.checks.append(Check(length % 2, 0, "an even length"))
    generator = np.random.default_rng(0)
    arrays = [generator.integers(0, 2, each.shape).astype(each.dtype) for each in program.weights]
    return program, arrays


def store(path: Path) -> Path:
    program, arrays = embedding_program()
    write_engine(path, program, arrays.__getitem__)
    return path


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return store(tmp_path_factory.mktemp("engine") / "ünïcode name.gguf")


def test_program_and_weights_come_back(engine: Path) -> None:
    program, arrays = embedding_program()
    found, views = read_engine(engine)
    assert write_text(found) == write_text(program)
    assert [(each.name, each.dtype, each.shape) for each in found.weights] == [
        (each.name, each.dtype, each.shape) for each in program.weights
    ]
    for array, view in zip(arrays, views, strict=True):
        assert view.dtype == array.dtype
        np.testing.assert_array_equal(view, array)
    assert found.inputs[0].shape == program.inputs[0].shape
    assert (found.inputs[0].low, found.inputs[0].high) == (0, 10)
    assert [(call.function, call.scope, call.source) for call in found.calls] == [
        (call.function, call.scope, call.source) for call in program.calls
    ]
    assert [call.result.ne for call in found.calls] == [call.result.ne for call in program.calls]


def test_the_same_program_gives_the_same_bytes(tmp_path: Path) -> None:
    assert store(tmp_path / "a").read_bytes() == store(tmp_path / "b").read_bytes()


def test_weights_are_views_of_the_aligned_mapping(engine: Path) -> None:
    _, views = read_engine(engine)
    assert all(view.ctypes.data % 64 == 0 for view in views if view.size)
    assert not any(view.flags.owndata or view.flags.writeable for view in views)


def test_ggml_reads_the_file(engine: Path) -> None:
    program, arrays = embedding_program()
    context = ctypes.c_void_p()
    parameters = ggml.gguf_init_params(no_alloc=False, ctx=ctypes.pointer(context))
    gguf = ggml.gguf_init_from_file(str(engine).encode(), parameters)
    assert gguf
    assert ggml.gguf_get_n_tensors(gguf) == len(program.weights)
    assert ggml.gguf_get_alignment(gguf) == 64
    for index, array in enumerate(arrays):
        tensor = ggml.ggml_get_tensor(context, f"w{index}".encode())
        assert ggml.ggml_nbytes(tensor) == array.nbytes
        if array.nbytes:
            assert ctypes.string_at(ggml.ggml_get_data(tensor), array.nbytes) == array.tobytes()
    ggml.gguf_free(gguf)
    ggml.ggml_free(context)


def test_a_program_without_weights(tmp_path: Path) -> None:
    program = Program("relu")
    x = program.add_input("x", F32, (2, 3), "F32")
    program.outputs.append(Output("y", F32, (2, 3), Builder(program).unary("ggml_relu", x)))
    write_engine(tmp_path / "e", program, lambda index: pytest.fail("no weight"))
    found, views = read_engine(tmp_path / "e")
    assert not views
    assert write_text(found) == write_text(program)


def test_weights_are_asked_for_one_at_a_time(tmp_path: Path) -> None:
    program, arrays = embedding_program()
    asked: list[int] = []
    write_engine(tmp_path / "e", program, lambda index: asked.append(index) or arrays[index])
    assert asked == list(range(len(arrays)))


sizes = st.recursive(
    st.one_of(
        st.integers(1, 40),
        st.sampled_from([symbol("h"), symbol("w", low=2, high=99), symbol("größe", multiple=8), symbol("min")]),
    ),
    lambda inner: st.tuples(
        st.sampled_from(["+", "-", "*", "//", "%", "min", "max", "ceil"]), inner, st.one_of(inner, st.integers(1, 9))
    ).map(lambda parts: combine(*parts)),
    max_leaves=6,
)


def combine(operator: str, a: Dim, b: Dim) -> Dim:
    if operator in ("//", "%", "ceil") and b == 0:
        return a
    functions = {
        "+": lambda: a + b,
        "-": lambda: a - b,
        "*": lambda: a * b,
        "//": lambda: a // b,
        "%": lambda: a % b,
        "min": lambda: dim_min(a, b),
        "max": lambda: dim_max(a, b),
        "ceil": lambda: ceil_div(a, b),
    }
    return functions[operator]()


@given(st.lists(sizes, max_size=4))
def test_size_expressions_come_back(dims: list[Dim]) -> None:
    program = Program("sizes")
    names = [symbol("h"), symbol("w", low=2, high=99), symbol("größe", multiple=8), symbol("min")]
    x = program.add_input("x", F32, tuple(names), "F32")
    program.checks = [Check(dim, 0, "holds") for dim in dims]
    program.outputs.append(Output("y", F32, tuple(names), x))
    found = read_text(write_text(program))
    assert [check.left for check in found.checks] == dims
    assert write_text(found) == write_text(program)


def test_an_error_leaves_nothing_behind(tmp_path: Path) -> None:
    path = store(tmp_path / "e.gguf")
    before = path.read_bytes()
    program, arrays = embedding_program()

    def interrupted(index: int) -> np.ndarray:
        if index == 2:
            raise KeyboardInterrupt
        return arrays[index]

    with pytest.raises(KeyboardInterrupt):
        write_engine(path, program, interrupted)
    with pytest.raises(ProgramError, match=r"token\.weight is float64"):
        write_engine(path, program, lambda index: arrays[index].astype(np.float64))
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["e.gguf"]


def test_a_full_disk_leaves_nothing_behind(tmp_path: Path) -> None:
    program = Program("large")
    w = program.add_weight("w", F32, (1 << 18,))
    program.outputs.append(Output("y", F32, (1 << 18,), Builder(program).unary("ggml_relu", w)))
    child = os.fork()
    if not child:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, 1 << 16))
        try:
            write_engine(tmp_path / "e.gguf", program, lambda index: np.zeros(1 << 18, np.float32))
        except OSError:
            os._exit(7)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert not os.listdir(tmp_path)


@pytest.mark.parametrize("place", ["missing/e.gguf", "."])
def test_a_place_that_cannot_be_written(tmp_path: Path, place: str) -> None:
    program, arrays = embedding_program()
    with pytest.raises(OSError, match=r"no such folder|is a directory"):
        write_engine(tmp_path / place, program, arrays.__getitem__)


def test_files_that_are_no_engine(tmp_path: Path, engine: Path) -> None:
    cases: dict[str, tuple[bytes | None, str]] = {
        "missing": (None, "no such file"),
        "empty": (b"", "not a GGUF file"),
        "text": (b"hello world, this is not a model", "not a GGUF file"),
        "old": (b"GGUF\x02\0\0\0" + bytes(64), "version 2"),
        "short": (engine.read_bytes()[:-64], "cut off"),
        "long": (engine.read_bytes() + b"x", "cut off"),
        "header": (engine.read_bytes()[:200], "cut off"),
    }
    for name, (content, message) in cases.items():
        path = tmp_path / name
        if content is not None:
            path.write_bytes(content)
        with pytest.raises(EngineError, match=message) as caught:
            read_engine(path)
        assert str(path) in str(caught.value)
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe"):
        with pytest.raises(EngineError, match=r"is a directory|not a regular file"):
            read_engine(path)


def test_another_architecture_and_version(tmp_path: Path) -> None:
    path = tmp_path / "e"
    write_container(path, {"general.architecture": "llama"}, [], lambda index: np.zeros(0))
    with pytest.raises(EngineError, match="architecture 'llama'"):
        read_engine(path)
    write_container(path, {"general.architecture": "graphc", "graphc.version": 9}, [], lambda index: np.zeros(0))
    with pytest.raises(EngineError, match="format 9"):
        read_engine(path)


def test_a_changed_program_is_noticed(tmp_path: Path, engine: Path) -> None:
    content = engine.read_bytes()
    assert content.count(b"dense.bias") == 1
    (tmp_path / "e").write_bytes(content.replace(b"dense.bias", b"dense.bios"))
    with pytest.raises(EngineError, match="checksum"):
        read_engine(tmp_path / "e")


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(data=st.data())
def test_changed_bytes_are_an_error_or_harmless(tmp_path: Path, engine: Path, data: st.DataObject) -> None:
    content = bytearray(engine.read_bytes())
    header = content.rindex(b"w7") + 64
    for _ in range(data.draw(st.integers(1, 4))):
        position = data.draw(st.one_of(st.integers(0, header), st.integers(0, len(content) - 1)))
        content[position] = data.draw(st.sampled_from([0, 1, 0x7F, 0x80, 0xFF, content[position] ^ 1]))
    if data.draw(st.booleans()):
        del content[data.draw(st.integers(0, len(content))) :]
    path = tmp_path / "changed"
    path.write_bytes(content)
    try:
        program, views = read_engine(path)
    except EngineError:
        pass
    else:
        assert [view.shape for view in views] == [weight.shape for weight in program.weights]


def rewritten(document: object, path: Path) -> Path:
    """An engine whose program is the document, with its checksum and the weights of the example."""
    program, arrays = embedding_program()
    text = json.dumps(document)
    write_engine(path, program, arrays.__getitem__)
    from graphc.targets.ggml.engine import _entry

    metadata = {
        "general.architecture": "graphc",
        "graphc.version": 1,
        "graphc.program": text,
        "graphc.program.sha256": hashlib.sha256(text.encode()).hexdigest(),
    }
    entries = [_entry(index, weight) for index, weight in enumerate(program.weights)]
    write_container(path, metadata, entries, arrays.__getitem__)
    return path


def mutate(document: dict, generator: random.Random) -> None:
    """Replace, remove, double or exchange one value somewhere in a document."""
    places = walk(document)
    container, key = generator.choice(places)
    values = [None, True, 0, 1, -1, 7, 2**31, 2**63, 2**80, 0.5, 1e300, "", "length", "x*x", "1//0", "(" * 200, [], {}]
    values += [{"call": 0}, {"call": 99}, {"weight": 1}, {"input": 0}, {"weight": 7, "rank": 9}, {"number": "nan"}]
    values += [{"text": "x"}, {"dtype": "float32"}, {"constant": "GGML_TYPE_F16"}, "float16", "ggml_cont", "ggml_free"]
    kind = generator.randrange(4)
    if kind == 0 or not isinstance(container, list):
        container[key] = copy.deepcopy(generator.choice([*values, *[inner[name] for inner, name in places]]))
    elif kind == 1:
        del container[key]
    elif kind == 2:
        container.insert(key, copy.deepcopy(container[key]))
    else:
        other = generator.randrange(len(container))
        container[key], container[other] = container[other], container[key]


def walk(document: dict | list) -> list[tuple]:
    """Every container in a document with each of its keys or indices."""
    found = []
    items = document.items() if isinstance(document, dict) else enumerate(document)
    for key, value in items:
        found.append((document, key))
        if isinstance(value, dict | list):
            found += walk(value)
    return found


def mutant(seed: int, path: Path) -> Path:
    """An engine with a changed program and the right checksum."""
    generator = random.Random(seed)
    document = json.loads(write_text(embedding_program()[0]))
    for _ in range(generator.randrange(1, 3)):
        mutate(document, generator)
    return rewritten(document, path)


@pytest.mark.parametrize("seed", range(400))
def test_a_changed_program_with_a_right_checksum(tmp_path: Path, seed: int) -> None:
    try:
        program, _ = read_engine(mutant(seed, tmp_path / "e"))
    except EngineError:
        return
    assert read_text(write_text(program))
    for output in program.outputs:
        assert output.tensor.size == product(output.shape)


def test_changed_programs_that_are_read_run(tmp_path: Path) -> None:
    """What passes the checks computes something: neither ggml nor a kernel ends the process."""
    code = """
import sys
from graphc.loading import load
from graphc.errors import GraphcError
from graphc.runtime.arrays import random_inputs
ran = 0
for path in sys.argv[1:]:
    print(path, flush=True)
    try:
        model = load(path, threads=1)
        for seed in range(2):
            model.run(random_inputs(model.program.inputs, {}, seed))
        ran += 1
    except GraphcError:
        pass
print("ran", ran)
"""
    paths = [mutant(seed, tmp_path / str(seed)) for seed in range(1000, 1300)]
    done = subprocess.run([sys.executable, "-c", code, *paths], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-200:] + done.stderr[-2000:]
    assert int(done.stdout.split()[-1]) > 20


def test_row_numbers_are_checked(tmp_path: Path) -> None:
    def stored(numbers: list[int]) -> Path:
        program = Program("rows")
        b = Builder(program)
        table, rows = program.add_weight("table", F32, (4, 2)), program.add_weight("rows", I32, (3,))
        result = b.call("ggml_get_rows", table, rows, rank=2)
        program.outputs.append(Output("y", F32, (3, 2), result))
        arrays = [np.zeros((4, 2), np.float32), np.array(numbers, np.int32)]
        write_engine(tmp_path / "e", program, arrays.__getitem__)
        return tmp_path / "e"

    read_engine(stored([0, 3, 1]))
    for numbers in ([0, 4, 1], [-1, 0, 0]):
        with pytest.raises(EngineError, match="row numbers"):
            read_engine(stored(numbers))


def test_reading_needs_no_model_library(engine: Path) -> None:
    code = (
        "import sys; from graphc.targets.ggml.engine import read_engine; read_engine(sys.argv[1]); print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code, engine], capture_output=True, text=True, check=True)
    assert not {"onnx", "torch", "gguf", "onnx_ir"} & set(done.stdout.split())


def test_running_needs_no_compiler(engine: Path) -> None:
    """What compiles models and generates kernels is not even imported."""
    code = "import sys, graphc; graphc.load(sys.argv[1]); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code, engine], capture_output=True, text=True, check=True)
    compiler = {"onnx", "graphc.compiler", "graphc.rewrite.engine", "graphc.optimize", "graphc.kernels.gpu.tile"}
    assert not compiler & set(done.stdout.split())
