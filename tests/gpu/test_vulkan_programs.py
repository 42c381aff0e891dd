"""Whole models on a device of Vulkan's, whose kernels graphc writes as SPIR-V: Mesa's software device."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import lavapipe
import numpy as np
import pytest
from exported_models import engine_of
from small_models import dense_model, dense_result
from software_device import counted

import graphc
from graphc.kernels.gpu import candidates
from graphc.kernels.gpu.forms import Spirv, form_of
from graphc.runtime import schedules as measured
from graphc.runtime.compare import relative_error
from graphc.runtime.devices import devices
from graphc.runtime.profile import profile
from graphc.runtime.schedules import tune_schedules
from graphc.targets.ggml.generate import schedules
from graphc.targets.ggml.generate.generate import generated

DEVICE = "lavapipe0"
BOUND = 3e-6
HALF_BOUND = 4e-3
"""Of a small U-Net in float16: CUDA's kernels have up to 3.3e-3, PyTorch has up to 3.4e-3, and rounded operands of products alone
have up to 1.8e-3. That each kernel rounds as it says is held in `test_spirv.py`."""
X = np.random.default_rng(0).standard_normal((5, 3)).astype(np.float32)


@pytest.fixture(autouse=True)
def _device() -> None:
    counted()


def dense_error(model: graphc.Model, x: np.ndarray = X) -> float:
    """How far off a small model is."""
    return relative_error(model.run(x=x), dict(zip(("scores", "product"), dense_result(x), strict=True)))


def test_the_device_is_listed() -> None:
    (found,) = (each for each in devices() if each.name == f"{DEVICE} (generated)")
    assert "llvmpipe" in found.description
    assert found.features["ARCHITECTURE"] == f"vulkan_{found.features['LANES']}"
    assert int(found.features["ARGUMENTS"]) >= 128
    assert found.memory_total > 0


MODELS = ("tiny_cnn",)
SLOW = ("sd15_clip_small", "t5_encoder", "sd15_vae_decoder_small", "sd15_unet_small")
"""Mesa compiles their kernels for minutes."""


@pytest.mark.parametrize("name", [*MODELS, *(pytest.param(each, marks=pytest.mark.thorough) for each in SLOW)])
def test_models(name: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    """The U-Net takes minutes in this Mesa; the newer one that has the validation layer runs it every time."""
    engine, inputs, expected = engine_of(tmp_path_factory, name)
    with closing(graphc.load(engine, device=DEVICE)) as model:
        assert relative_error(model.run(inputs), expected) < BOUND
        made = counted().counts()["CreateComputePipelines"]
        assert relative_error(model.run(inputs), expected) < BOUND  # the graph that was recorded
        assert counted().counts()["CreateComputePipelines"] == made


def test_another_size_compiles_nothing() -> None:
    with closing(graphc.compile(dense_model(), device=DEVICE)) as model:
        made = counted().counts()["CreateComputePipelines"]
        for rows in (5, 1, 3, 5):
            assert dense_error(model, X[:rows]) < BOUND
        assert counted().counts()["CreateComputePipelines"] == made


def test_each_kernel_has_its_time() -> None:
    with closing(graphc.compile(dense_model(), device=DEVICE)) as model:
        found = [each for each in profile(model, {"x": X}) if each.device == DEVICE]
    assert {each.step for each in found} >= {"linear", "pointwise"}
    assert all(each.seconds > 0 for each in found)


def test_without_matrices_of_float16_products_are_of_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphc.backends.precision._chosen", "high")
    monkeypatch.setattr(schedules, "form_of", lambda *known: replace(form_of(*known), matrices=()))
    with closing(graphc.compile(dense_model(), device=DEVICE)) as model:
        assert dense_error(model) < BOUND
        assert model.given_up == ""


def test_memory_limits_give_the_same_bits(tmp_path_factory: pytest.TempPathFactory) -> None:
    engine, inputs, expected = engine_of(tmp_path_factory, "bert")
    found = []
    for memory in (None, "600KiB"):
        with closing(graphc.load(engine, device=DEVICE, memory=memory)) as model:
            found.append(model.run(inputs))
            assert relative_error(found[-1], expected) < BOUND
    assert all(np.array_equal(found[0][name], found[1][name]) for name in expected)


def test_arguments_that_cannot_be_pushed_lie_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedules, "form_of", lambda *known: replace(form_of(*known), arguments=8))
    before = counted().counts()["CmdUpdateBuffer"]
    with closing(graphc.compile(dense_model(), device=DEVICE)) as model:
        for rows in (5, 2, 5, 5, 5):
            assert dense_error(model, X[:rows]) < BOUND
    assert counted().counts()["CmdUpdateBuffer"] > before


def test_schedules_are_guessed_and_measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As on GPUs; software follows fixed rules, because it takes long over large blocks."""
    with (
        closing(graphc.compile(dense_model(), device=DEVICE)) as model,
        pytest.raises(graphc.GraphcError, match="fixed rules"),
    ):
        tune_schedules(model, {"x": X})
    monkeypatch.setattr(Spirv, "guesses", property(lambda form: True))
    small = {"ROWS": (16, 32, 64), "COLUMNS": (32,), "WARPS": ((16, 16), (8, 16)), "ROW_BYTES": {candidates.F32: (32,)}}
    for name, values in small.items():
        monkeypatch.setattr(candidates, name, values)
    monkeypatch.setattr(measured, "CANDIDATES", 3)
    monkeypatch.setattr(measured, "ROUNDS", 1)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with closing(graphc.compile(dense_model(), device=DEVICE)) as model:
        assert dense_error(model) < BOUND
        (found,) = tune_schedules(model, {"x": X})
        assert len(found.seconds) >= 3
        assert all(each.instruction.name.startswith("fma_4x4_") for each in found.seconds)
        assert dense_error(model) < BOUND
        device = schedules.device_of(model.executor.backends[0])
        schedules.remember(device, {found.sizes: found.seconds})
        assert device.path is not None
        assert "vulkan_rtx" not in device.path.name
        assert "-vulkan_sm_86-" in device.path.name
    with closing(graphc.compile(dense_model(), device=DEVICE)) as model:
        assert dense_error(model) < BOUND
        launched = model.executor.launched
        assert launched is not None
        assert launched.generated.scheduling is not None
        assert launched.generated.scheduling.measured.keys() == {found.sizes}


def test_what_a_device_cannot_do_is_left_to_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedules, "form_of", lambda *known: replace(form_of(*known), threads=16))
    with closing(graphc.compile(dense_model(), device=DEVICE)) as model:
        assert dense_error(model) < BOUND
        assert model.executor.launched is not None
        assert not model.executor.launched.kernels
        assert any("threads, and the device has 16" in why for why in model.executor.launched.generated.left.values())


def test_kernels_are_files(tmp_path: Path, graphc_command) -> None:
    graphc.compile(dense_model(), tmp_path / "model.gguf").close()
    run = ("run", tmp_path / "model.gguf", "--device", DEVICE, "--random", 0, "--dim", "batch=5")
    done = graphc_command(*run, "--dump", "kernels", "-o", "first.npz")
    assert done.status == 0, done.err
    files = sorted(Path("kernels").glob("*.spv"))
    assert [each.name for each in files] == ["linear.dense.spv", "pointwise.Relu.spv"]
    done = graphc_command(*run, "--kernels", "kernels", "-o", "second.npz")
    assert (done.status, "generated: none" in done.err) == (0, True), done.err
    files[0].write_bytes(files[0].read_bytes()[:-2])
    done = graphc_command(*run, "--kernels", "kernels")
    assert done.status == 1
    assert "this is no SPIR-V" in done.err


FORMS = {
    "rich": Spirv(32, 1024, 48 << 10, 256, frozenset(("fused", "float64", "int64", "layout")), ((16, 16, 16), (8, 8, 16))),
    "poor": Spirv(64, 1024, 32 << 10, 128, frozenset(("fused",))),
    "few lanes": Spirv(4, 512, 16 << 10, 128, frozenset(("int64", "layout")), ((8, 8, 8),)),
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_spirv_of_other_devices_is_valid(form: Spirv, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Of devices that nobody has at hand: SPIRV-Tools look at every kernel."""
    try:
        libraries = lavapipe.newer()
    except lavapipe.Missing as error:
        pytest.skip(str(error))
    checker = [
        *lavapipe.loader(libraries), str(libraries.parents[1] / "bin/spirv-val"), "--target-env", "vulkan1.3",
    ]  # fmt: skip
    for name in ("sd15_clip_small", "tiny_cnn"):
        engine, *_ = engine_of(tmp_path_factory, name)
        program = graphc.targets.ggml.engine.read_engine(engine)[0]
        kernels = generated(program, fast=True, form=form).kernels
        assert len(kernels) > 3
        for kernel, rendered in kernels.items():
            done = subprocess.run([*checker, "-"], input=rendered.code, capture_output=True, check=False)
            assert done.returncode == 0, (kernel, done.stderr, done.stdout)


SMALL = (("tiny_cnn", ""), ("tiny_cnn", "guessed"))
LARGE = (("sd15_clip_small", "guessed"), ("sd15_unet_small", ""))
"""Models, and how their kernels are chosen."""


@pytest.mark.parametrize(
    ("precision", "models"),
    [
        pytest.param("highest", SMALL, id="highest"),
        pytest.param("high", SMALL, id="high"),
        *(pytest.param(each, LARGE, id=f"{each}-large", marks=pytest.mark.thorough) for each in ("highest", "high")),
    ],
)
def test_the_validation_layer_has_nothing_to_say(
    precision: str,
    models: tuple[tuple[str, str], ...],
    tmp_path_factory: pytest.TempPathFactory,
    tmp_path: Path,
) -> None:
    """Of a newer Mesa, in a process of its own, which has cooperative matrices; on request larger models."""
    try:
        libraries = lavapipe.newer()
    except lavapipe.Missing as error:
        pytest.skip(str(error))
    errors = []
    for name, how in models:
        engine, inputs, expected = engine_of(tmp_path_factory, name)
        np.savez(tmp_path / "inputs.npz", **inputs)  # type: ignore[arg-type]
        command = [
            *lavapipe.loader(libraries), os.path.realpath(sys.executable), str(Path(__file__).with_name("vulkan_model.py")),
            str(engine), precision, how,
        ]  # fmt: skip
        environment = os.environ | lavapipe.settings(libraries, tmp_path, validate=True)
        environment |= {"GGML_VK_VISIBLE_DEVICES": "0", "GALLIVM_PERF": "nopt", "LP_NUM_THREADS": "2"}
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, cwd=tmp_path, timeout=600, check=False
        )
        assert (done.returncode, done.stderr, done.stdout) == (0, "", ""), (done.stdout, done.stderr)
        errors.append(relative_error(dict(np.load(tmp_path / "found.npz")), expected))
    if precision == "highest":
        assert max(errors) < BOUND
    else:
        assert 1e-5 < max(errors) < HALF_BOUND
