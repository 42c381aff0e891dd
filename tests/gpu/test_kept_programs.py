"""Generated programs that are kept in the cache: a later start reads what an earlier one wrote, and only what is of the same."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from emulated_device import fake
from frontend_models import model, node, value

import graphc
from graphc.backends import precision
from graphc.kernels.gpu.devices import GPUS
from graphc.kernels.gpu.forms import CUDA, Form, Spirv, Text
from graphc.kernels.gpu.scheduling import Scheduling
from graphc.targets.ggml.engine import read_engine
from graphc.targets.ggml.generate import kept
from graphc.targets.ggml.generate.kept import choices, kept_or_generated
from graphc.targets.ggml.program.device_code import DeviceCode
from graphc.targets.ggml.program.program import Program
from graphc.targets.ggml.run.executor import Executor

DEVICE = "emulated0"
X = np.random.default_rng(0).standard_normal((40, 48)).astype(np.float32)


@pytest.fixture(autouse=True)
def _all_are_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(kept, "WORTH_KEEPING", 0.0)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    fake()


@pytest.fixture
def engine(tmp_path: Path) -> Path:
    """Two products with what is between them, for any number of rows."""
    random = np.random.default_rng(1)
    weights = {name: random.standard_normal((48, 48)).astype(np.float32) / 7 for name in "ab"}
    nodes = [node("MatMul", "x a", "p"), node("Softmax", "p", "q"), node("MatMul", "q b", "y")]
    graphc.compile(model(nodes, [value("x", ["rows", 48])], ["y"], weights), tmp_path / "model.gguf", threads=1).close()
    return tmp_path / "model.gguf"


def files(tmp_path: Path) -> list[Path]:
    """What is kept."""
    return sorted((tmp_path / "cache" / "graphc" / "generated").glob("*.pickle"))


def result(engine: Path) -> np.ndarray:
    """The first rows that a new model gives, and the others."""
    with closing(graphc.load(engine, device=DEVICE)) as loaded:
        return np.concatenate([loaded.run(x=X[:3])["y"], loaded.run(x=X[3:])["y"]])


def never(*_: object) -> object:
    """In the place of what generates programs."""
    raise AssertionError("a program is generated again")


def test_a_later_start_reads_what_an_earlier_one_wrote(
    engine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = result(engine)
    assert len(files(tmp_path)) == 1
    monkeypatch.setattr(kept, "generated", never)
    assert np.array_equal(result(engine), first)
    with closing(graphc.load(engine)) as on_cpu:
        assert np.abs(first - on_cpu.run(x=X)["y"]).max() < 1e-5


def test_a_damaged_file_is_written_again(engine: Path, tmp_path: Path) -> None:
    first = result(engine)
    (path,) = files(tmp_path)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    assert np.array_equal(result(engine), first)
    assert [each.read_bytes() for each in files(tmp_path)] == [whole]


def test_further_ways_are_made_when_they_are_wanted(
    engine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, generate, count = result(engine), kept.generated, []

    def counted(*given: object) -> object:
        count.append(given)
        return generate(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(kept, "generated", counted)
    with closing(graphc.load(engine, device=DEVICE)) as loaded:
        executor = next(each for each in vars(loaded).values() if isinstance(each, Executor))
        assert executor.launched is not None
        found = executor.launched.generated
        assert count == []
        assert found.scheduling is not None
        calls = [call for call in found.program.calls if call.launches and call.launches.choice]
        assert len(calls) == 2
        for call in calls:
            assert call.launches is not None
            choice = call.launches.choice
            assert choice is not None
            sizes = choice.sizes.bound({"rows": 40})
            other = next(each for each in found.scheduling.guessed(sizes) if each not in choice.ways)
            executor.launched.prepare([(choice, [other])])
            executor.launched.forced[call] = other
            assert executor.launched.launches_for(call, {"rows": 40}) is choice.ways[other]
        assert len(count) == 1
        again = np.concatenate([loaded.run(x=X[:3])["y"], loaded.run(x=X[3:])["y"]])
    assert np.abs(again - first).max() < 1e-5


def generated_for(program: Program, fast: bool = False, form: Form = CUDA, gpu: str = "h200") -> object:
    """A program, as `launched` has it generated."""
    return kept_or_generated(program, fast, Scheduling.of(GPUS[gpu]), form)


CHANGES: dict[str, Callable[[Program, pytest.MonkeyPatch], object]] = {
    "precision": lambda program, _: generated_for(program, fast=True),
    "device": lambda program, _: generated_for(program, gpu="rtx3060"),
    "form": lambda program, _: generated_for(program, form=Text("cuda0", "sm_90")),
    "Vulkan": lambda program, _: generated_for(program, form=Spirv(32, 1024, 48 << 10, 256, frozenset(("fused",)))),
    "program": lambda program, _: generated_for(replace(program, name="another")),
    "graphc": lambda program, patch: (patch.setattr(kept, "_own_files", lambda: "others"), generated_for(program)),
}


@pytest.mark.parametrize("what", CHANGES)
def test_what_is_of_something_else_is_generated(
    what: str, engine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program, _ = read_engine(engine)
    generated_for(program)
    generated_for(read_engine(engine)[0])
    assert len(files(tmp_path)) == 1
    CHANGES[what](program, monkeypatch)
    assert len(files(tmp_path)) == 2


def test_measurements_decide_anew(engine: Path, tmp_path: Path) -> None:
    program, _ = read_engine(engine)
    scheduling = Scheduling.of(GPUS["h200"])
    found = kept_or_generated(program, False, scheduling, CUDA)
    sizes = next(choices(found)).sizes.bound({"rows": 40})
    scheduling.learn(sizes, {scheduling.guessed(sizes)[-1]: 1e-9})
    found = kept_or_generated(program, False, scheduling, CUDA)
    assert scheduling.guessed(sizes)[-1] in next(choices(found)).ways
    assert len(files(tmp_path)) == 2


def test_code_of_an_engine_is_not_kept(engine: Path, tmp_path: Path) -> None:
    program, _ = read_engine(engine)
    for brought in (DeviceCode("", False, {"sm_80": "the first"}), None, DeviceCode("", False, {"sm_80": "another"})):
        found = kept_or_generated(replace(program, device_code=brought), False, None, CUDA)
        assert found.program.device_code is brought
        (path,) = files(tmp_path)
        assert b"the first" not in path.read_bytes()


def test_the_oldest_are_forgotten(engine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "MOST_KEPT", 3)
    program, _ = read_engine(engine)
    written = []
    for number in range(5):
        generated_for(replace(program, name=f"program {number}"))
        (new,) = set(files(tmp_path)) - set(written)
        os.utime(new, ns=(0, number))
        written.append(new)
        assert files(tmp_path) == sorted(written[-3:])


def test_what_takes_no_time_is_not_kept(engine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "WORTH_KEEPING", 1e9)
    monkeypatch.setattr(precision, "_chosen", "highest")
    result(engine)
    assert files(tmp_path) == []
