"""Kernels as files: what --dump writes, --kernels runs, and what a person changed there changes the numbers."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from emulated_device import fake
from small_models import BIAS, dense_model, dense_result

import graphc
from graphc.errors import BuildError, InputError
from graphc.kernels.gpu.compile import find_toolchain
from graphc.targets.ggml.generate.folder import head_of, own_text, plain_text
from graphc.targets.ggml.program.program import Call

DEVICE = "emulated0"
X = np.random.default_rng(0).standard_normal((5, 3)).astype(np.float32)
KERNELS = ["linear.dense.cu", "pointwise.Relu.cu"]


@pytest.fixture(autouse=True)
def _one_schedule(monkeypatch: pytest.MonkeyPatch) -> None:
    """A product is one kernel, whichever its sizes may be."""
    monkeypatch.setattr("graphc.kernels.gpu.scheduling.MOST_WAYS", 1)


@pytest.fixture
def engine(tmp_path: Path) -> Path:
    fake()
    graphc.compile(dense_model(), tmp_path / "model.gguf").close()
    return tmp_path / "model.gguf"


@pytest.fixture
def folder(graphc_command, engine: Path) -> Path:
    done = graphc_command("run", engine, "--device", DEVICE, "--random", 0, "--dim", "batch=5", "--dump", "kernels")
    assert (done.status, "2 kernels" in done.err) == (0, True), done.err
    return Path("kernels").absolute()


def scores(engine: Path, folder: Path | None = None) -> np.ndarray:
    """What the model gives with the kernels of a folder."""
    with closing(graphc.load(engine, device=DEVICE, kernels=folder)) as model:
        return model.run(x=X)["scores"]


def change(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert text.count(old) == 1
    file.write_text(text.replace(old, new))


def test_every_kernel_is_a_file_and_the_index_says_where_it_is_launched(folder: Path) -> None:
    names = sorted(path.name for path in folder.iterdir())
    assert [name for name in names if name.endswith(".cu")] == KERNELS
    rows = [line.split("  ") for line in (folder / "index.txt").read_text().splitlines()[3:]]
    cells = [[cell.strip() for cell in row if cell.strip()] for row in rows]
    assert cells == [
        ["dense: /dense/MatMul", "f32 [1, 1, 5, 4]", "[1, 1, 1]", "128", "36864", "linear.dense.cu"],
        ["/Relu", "f32 [1, 1, 5, 4]", "[1, 1, 1]", "128", "0", "pointwise.Relu.cu"],
    ]
    if find_toolchain():
        (ptx,) = folder.glob("pointwise.Relu.sm_*.ptx")
        assert ".entry pointwise(" in ptx.read_text()


def test_files_as_they_are_change_nothing(graphc_command, engine: Path, folder: Path) -> None:
    np.testing.assert_array_equal(scores(engine, folder), scores(engine))
    np.testing.assert_allclose(scores(engine), dense_result(X)[0], rtol=1e-6)
    done = graphc_command("run", engine, "--device", DEVICE, "--random", 0, "--dim", "batch=1", "--kernels", folder)
    assert "differ from those that are generated: none" in done.err


def test_a_changed_kernel_runs(graphc_command, engine: Path, folder: Path) -> None:
    change(folder / KERNELS[1], "x0_0[e] + x1_1[e], 0.0f", "x0_0[e] - x1_1[e], 0.5f")
    np.testing.assert_allclose(scores(engine, folder), np.maximum(dense_result(X)[1] - BIAS, 0.5), rtol=1e-6)
    command = ("run", engine, "--device", DEVICE, "--random", 0, "--dim", "batch=1", "--kernels", folder)
    done = graphc_command(*command, "--dump", "again")
    assert "differ from those that are generated: pointwise" in done.err
    assert own_text(Path("again", KERNELS[1]).read_text()) == own_text((folder / KERNELS[1]).read_text())
    done = graphc_command(*command, "--dump", folder)
    assert (done.status, "would write over" in done.err) == (1, True)


def test_what_is_launched_in_the_same_way_is_a_kernel_of_the_same_signature(engine: Path, folder: Path) -> None:
    change(
        folder / KERNELS[1], "KERNEL(pointwise, 128, 1, const float *x0", "KERNEL( pointwise,128,2,\n  const float* x0"
    )
    np.testing.assert_array_equal(scores(engine, folder), scores(engine))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("KERNEL(pointwise, 128,", "KERNEL(pointwise, 256,", "another signature"),
        ("KERNEL(pointwise,", "KERNEL(other,", "another signature"),
        ("const float *x0", "const half_t *x0", "another signature"),
        ("const float *x0, ", "", "another signature"),
        ("KERNEL(pointwise,", "DEVICE void pointwise(", "has 0 kernels"),
        ("\nKERNEL(pointwise,", "\nKERNEL(more, 32, 1) {}\nKERNEL(pointwise,", "has 2 kernels"),
    ],
)
def test_a_kernel_of_another_signature_is_refused(engine: Path, folder: Path, old: str, new: str, message: str) -> None:
    change(folder / KERNELS[1], old, new)
    with pytest.raises(InputError, match=rf"pointwise\.Relu\.cu: it has {message.removeprefix('has ')}"):
        scores(engine, folder)


def test_text_that_does_not_compile_is_refused_with_its_line(engine: Path, folder: Path) -> None:
    file = folder / KERNELS[1]
    change(file, "float found[8];", "float found[8]; flaot wrong;")
    line = next(number for number, each in enumerate(file.read_text().splitlines(), 1) if "flaot" in each)
    with pytest.raises(BuildError, match=rf"(?s)pointwise\.Relu\.cu: .*kernel:{line}:.*flaot"):
        scores(engine, folder)


def test_what_is_missing_or_too_much_is_refused(engine: Path, folder: Path) -> None:
    (folder / "pointwise.again.cu").write_bytes((folder / KERNELS[1]).read_bytes())
    with pytest.raises(InputError, match=r"pointwise\.again\.cu: pointwise\.Relu\.cu is pointwise too"):
        scores(engine, folder)
    (folder / "pointwise.again.cu").rename(folder / "nothing.cu")
    with pytest.raises(InputError, match=r"nothing\.cu: the model has no kernel nothing on this device"):
        scores(engine, folder)
    (folder / "nothing.cu").unlink()
    (folder / KERNELS[0]).unlink()
    with pytest.raises(InputError, match="there is no file of linear"):
        scores(engine, folder)
    (folder / KERNELS[0]).write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match=r"linear\.dense\.cu: it is no text"):
        scores(engine, folder)
    with pytest.raises(InputError, match="there is no such folder"):
        scores(engine, folder / "nowhere")


def test_other_devices_have_none(graphc_command, engine: Path, folder: Path) -> None:
    with pytest.raises(InputError, match="for a device of generated kernels"):
        graphc.load(engine, kernels=folder)
    done = graphc_command("run", engine, "--random", 0, "--dim", "batch=1", "--dump", "more")
    assert (done.status, "--dump is for devices of generated kernels" in done.err) == (1, True)


def test_names_of_a_model_stay_in_comments(engine: Path) -> None:
    evil = "a\nint x; \\"
    with closing(graphc.load(engine, device=DEVICE)) as model:
        assert model.executor.launched is not None
        rendered = model.executor.launched.generated.kernels["linear"]
        call = model.executor.program.calls[0]
        head = head_of(rendered, [Call(call.function, call.args, call.result, (evil,), evil)])
    assert all(line.startswith("//") for line in head.splitlines() if line)
    assert "\\" not in head
    assert plain_text(evil) == "a?int x; ?"
