"""Kernels that an engine carries: they run without a compiler, and never unless somebody says that they may be trusted."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from emulated_device import emulated_file, fake
from small_models import dense_model, dense_result

import graphc
from graphc.compiler import compile_program
from graphc.errors import BuildError, EngineError
from graphc.kernels.gpu.code import best_target
from graphc.kernels.gpu.compile import find_toolchain
from graphc.kernels.gpu.forms import Text
from graphc.targets.ggml.engine import read_engine
from graphc.targets.ggml.generate import compiled

DEVICE = "emulated0"
X = np.random.default_rng(0).standard_normal((5, 3)).astype(np.float32)
MARK = "x0_0[e] + x1_1[e], 0.0f", "x0_0[e] + x1_1[e], 0.5f"
"""What is different in code that the tests give to engines, so that it is seen where it runs."""


def emulated_code(text: str, target: str) -> str:
    """In PTX's place, what the emulated device takes as text."""
    assert MARK[0] in text
    return emulated_file(text.replace(*MARK))


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    fake()
    monkeypatch.setattr(compiled, "compile_ptx", emulated_code)
    graphc.compile(dense_model(), tmp_path / "model.gguf", gpus=["sm_80", "sm_90a"]).close()
    return tmp_path / "model.gguf"


@pytest.fixture
def without_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: object) -> list[bytes]:
        raise BuildError("there is no compiler for GPU kernels")

    monkeypatch.setattr("graphc.kernels.gpu.forms.code_for", none)


def scores(engine: Path, trust: bool = False) -> np.ndarray:
    with closing(graphc.load(engine, device=DEVICE, trust_kernels=trust)) as model:
        return model.run(x=X)["scores"]


def rewritten(engine: Path, **changes: object) -> Path:
    """The engine with other kernels."""
    program, arrays = read_engine(engine)
    assert program.device_code is not None
    program.device_code = compiled.DeviceCode(**{**vars(program.device_code), **changes})
    graphc.compiler.write(program, engine, arrays=arrays.__getitem__)
    return engine


def test_kernels_run_where_they_are_trusted_and_nowhere_else(engine: Path) -> None:
    expected, _ = dense_result(X)
    np.testing.assert_allclose(scores(engine), expected, rtol=1e-6)
    np.testing.assert_allclose(scores(engine, trust=True), np.maximum(expected, 0.5), rtol=1e-6)


@pytest.mark.usefixtures("without_compiler")
def test_no_compiler_is_needed(engine: Path) -> None:
    np.testing.assert_allclose(scores(engine, trust=True), np.maximum(dense_result(X)[0], 0.5), rtol=1e-6)
    with pytest.raises(BuildError, match="no compiler for GPU kernels; or use the kernels in the engine, if you trust"):
        scores(engine)


def test_the_command_says_what_it_trusts(graphc_command, engine: Path, tmp_path: Path) -> None:
    np.save("x.npy", X)
    done = graphc_command(
        "run", engine, "--device", DEVICE, "--input", "x=x.npy", "--trust-kernels", "-o", "trusted.npz"
    )
    assert done.status == 0, done.err
    assert np.load("trusted.npz")["scores"].min() == 0.5


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"text": "0" * 64}, "they are of another program, or another graphc made them"),
        ({"fast": True}, "they multiply float16, as with --fast"),
        ({"code": {"sm_100": "code"}}, "they are for sm_100, and the device is sm_90"),
        ({"code": {"nonsense": "code"}}, "they are for nonsense, and the device is sm_90"),
        ({"code": {}}, "they are for nothing, and the device is sm_90"),
    ],
)
def test_kernels_that_do_not_fit_are_not_used(engine: Path, changes: dict, reason: str, caplog) -> None:
    np.testing.assert_allclose(scores(rewritten(engine, **changes), trust=True), dense_result(X)[0], rtol=1e-6)
    assert f"the kernels in the engine are not used: {reason}" in caplog.text


def test_damaged_kernels_are_refused_by_all(engine: Path) -> None:
    whole = engine.read_bytes()
    engine.write_bytes(whole.replace(b"/tmp/", b"/tmq/", 1))
    for device in ("cpu", DEVICE):
        with pytest.raises(EngineError, match="its kernels are not those that their checksums were made of"):
            graphc.load(engine, device=device)
    for described in (b'{"text": 1', b'["text", 1'):
        engine.write_bytes(whole.replace(b'{"text": "', described, 1))
        with pytest.raises(EngineError, match="does not say what its kernels are"):
            graphc.load(engine)


def test_code_that_is_none_is_an_error_of_the_device(engine: Path) -> None:
    with pytest.raises(graphc.GraphcError, match=r"emulated0: .*no/such/file"):
        scores(rewritten(engine, code={"sm_80": "/no/such/file"}), trust=True)


def test_kernels_go_with_the_engine(engine: Path, tmp_path: Path) -> None:
    with closing(graphc.load(engine)) as model:
        model.save(tmp_path / "saved.gguf")
    graphc.compiler.refit(engine, None, tmp_path / "refitted.gguf")
    for name in ("saved.gguf", "refitted.gguf"):
        np.testing.assert_array_equal(scores(tmp_path / name, trust=True), scores(engine, trust=True))


@pytest.mark.skipif(not find_toolchain(), reason="there is no compiler for GPU kernels")
def test_the_command_compiles_for_gpus_that_are_not_here(graphc_command, tmp_path: Path) -> None:
    Path("m.onnx").write_bytes(dense_model().SerializeToString())
    done = graphc_command("compile", "m.onnx", "--gpu", "sm_80,sm_90a", "--dump", "kernels", "-o", "m.gguf")
    assert (done.status, "2 kernels for sm_80, sm_90a" in done.err) == (0, True), done.err
    code = read_engine("m.gguf")[0].device_code
    assert code is not None
    assert [f".target {target}" in text for target, text in code.code.items()] == [True, True]
    assert all(".entry linear(" in text and ".entry pointwise(" in text for text in code.code.values())
    names = sorted(path.name for path in Path("kernels").glob("linear*"))
    assert names == ["linear.dense.cu", "linear.dense.sm_80.ptx", "linear.dense.sm_90a.ptx"]
    assert "[-((-batch)//64), 1, 1]" in Path("kernels/index.txt").read_text()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--gpu", "sm_1"], "there is no target sm_1"),
        (["--gpu", ""], "there is no target"),
        (["--gpu", "vulkan"], "vulkan is no target"),
        (["--fast"], "are for the kernels of --gpu"),
        (["--dump", "kernels"], "are for the kernels of --gpu"),
    ],
)
def test_what_cannot_be_compiled_for(graphc_command, options: list[str], message: str) -> None:
    Path("m.onnx").write_bytes(dense_model().SerializeToString())
    done = graphc_command("compile", "m.onnx", *options)
    assert (done.status, message in done.err, Path("m.gguf").exists()) == (1, True, False), done.err


def test_which_code_a_device_runs() -> None:
    targets = ["sm_75", "sm_80", "sm_90", "sm_90a"]
    found = {each: best_target(each, targets) for each in ("sm_70", "sm_75", "sm_86", "sm_90", "sm_120", "vulkan", "")}
    assert found == {
        "sm_70": "", "sm_75": "sm_75", "sm_86": "sm_80", "sm_90": "sm_90a", "sm_120": "sm_90", "vulkan": "", "": "",
    }  # fmt: skip
    assert best_target("sm_120", ["sm_90a"]) == ""


def test_a_program_without_kernels_carries_none() -> None:
    program = compile_program(dense_model())
    assert program.device_code is None
    assert json.loads(compiled.DeviceCode("", False, {}).metadata()["graphc.kernels"])["code"] == {}


@pytest.mark.parametrize("toolchain", ["nvcc", "clang", ""])
def test_devices_say_what_compiles_kernels(graphc_command, toolchain: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fake()
    monkeypatch.setattr("graphc.kernels.gpu.compile.find_toolchain", lambda: toolchain)
    said = graphc_command("devices").out
    assert "emulated0 (generated)  GPU" in said
    assert f"generated kernels are compiled by: {toolchain or 'nothing that is here; pip install ziglang'}" in said


def test_what_a_driver_does_not_take_it_compiles_itself(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Code that an assembler made may be of another format than an older driver reads; behind it comes PTX."""
    fake()
    images = Text.images

    def offered(form: Text, content: str | bytes) -> list[bytes]:
        return [b"\x7fELF of another driver", *images(form, content)]

    monkeypatch.setattr(Text, "images", offered)
    with closing(graphc.compile(dense_model(), device=DEVICE)) as model:
        found = model.run(x=X)
    for array, expected in zip((found["scores"], found["product"]), dense_result(X), strict=True):
        np.testing.assert_allclose(array, expected, rtol=0, atol=1e-5)
    assert "the driver does not take what ptxas made, and compiles PTX itself" in caplog.text
    monkeypatch.setattr(Text, "images", lambda form, content: [*images(form, content), b"never looked at"])
    with closing(graphc.compile(dense_model(), device=DEVICE)) as model:
        np.testing.assert_array_equal(model.run(x=X)["scores"], found["scores"])
