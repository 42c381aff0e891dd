"""What is promised from release to release: engines of every format, names, variables, the number itself."""

from __future__ import annotations

import importlib
import inspect
import re
import subprocess
import sys
import tomllib
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphc
import graphc_images
from graphc import versions
from graphc.errors import EngineError
from graphc.targets.ggml import engine
from graphc.weights.formats.gguf import read_container, write_container

ROOT = Path(__file__).parents[1]
ENGINES = sorted((ROOT / "tests/engines").glob("*/*.gguf.gz"))
API = (ROOT / "docs/api.md").read_text()
PACKAGES = (graphc, graphc_images)


def name_of(path: Path) -> str:
    return path.name.removesuffix(".gguf.gz")


def beside(path: Path, ending: str) -> Path:
    return path.with_name(name_of(path) + ending)


def changed(path: Path, folder: Path, **values: object) -> Path:
    """A copy of an engine with other metadata; None takes a key away."""
    metadata, entries, data = read_container(path, engine.ARCHITECTURE)
    metadata |= {f"graphc.{key}": value for key, value in values.items()}
    kept = {key: value for key, value in metadata.items() if value is not None and key != "general.alignment"}
    write_container(folder / "changed.gguf", kept, entries, data.__getitem__)
    return folder / "changed.gguf"


@pytest.mark.parametrize("path", ENGINES, ids=lambda path: f"{path.parent.name}-{name_of(path)}")
def test_engines_of_every_format_give_the_same_numbers(path: Path) -> None:
    weights = beside(path, ".safetensors")
    with np.load(beside(path, ".npz")) as kept:
        arrays = {key: kept[key] for key in kept.files}
    inputs = {key.removeprefix("in "): array for key, array in arrays.items() if key.startswith("in ")}
    outputs = {key.removeprefix("out "): array for key, array in arrays.items() if key.startswith("out ")}
    with closing(graphc.load(path, weights=weights if weights.exists() else None, threads=2)) as model:
        found = model.run(inputs)
    assert found.keys() == outputs.keys()
    for name, array in outputs.items():
        assert found[name].dtype == array.dtype
        assert found[name].shape == array.shape
        if array.dtype.kind == "f":
            np.testing.assert_allclose(found[name], array, rtol=1e-5, atol=1e-6, err_msg=name)
        else:
            np.testing.assert_array_equal(found[name], array, err_msg=name)


def test_there_are_engines_of_every_format() -> None:
    formats = {path.parent.name for path in ENGINES}
    assert formats == {str(number) for number in range(1, engine.VERSION + 1)}


def test_what_older_engines_have_besides_is_read() -> None:
    code = engine.read_engine(ROOT / "tests/engines/1/carried.gguf.gz")[0].device_code
    assert code is not None
    assert code.code == {"sm_80": "// a target's code"}
    growth = engine.read_engine(ROOT / "tests/engines/1/grown.gguf.gz")[0].growth
    assert growth is not None
    assert growth.rows == 1


def test_an_engine_says_which_graphc_it_needs(tmp_path: Path) -> None:
    graphc.compile(ROOT / "graphc/demo/digits.onnx", tmp_path / "digits.gguf", threads=1).close()
    metadata, _, _ = read_container(tmp_path / "digits.gguf", engine.ARCHITECTURE)
    assert metadata["graphc.needs"] == versions.least_reader()
    assert versions.least_reader("1.4.12") == "1.4.0"
    assert versions.least_reader("0.10.0.dev3") == "0.10.0"


@pytest.mark.parametrize("needed", ["0.1.1", "0.10.0", "10.0.0", "999999.0.0"])
def test_an_engine_that_needs_a_newer_graphc_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, needed: str
) -> None:
    path = changed(ENGINES[0], tmp_path, needs=needed, version=2)  # its format counts no more then
    monkeypatch.setattr(versions, "__version__", "0.1.0")
    with pytest.raises(EngineError) as caught:
        graphc.load(path)
    assert str(caught.value) == f"{path}: it needs graphc {needed} or newer, and this is graphc 0.1.0; update graphc"


def test_commands_refuse_it_in_one_line(tmp_path: Path) -> None:
    path = changed(ENGINES[0], tmp_path, needs="999.2.3")
    code = "from graphc.cli import main; main()"
    for words in (["run", path, "--random", "0"], ["inspect", path], ["refit", path, path, "-o", tmp_path / "e.gguf"]):
        done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=False)
        assert done.returncode == 1
        assert re.fullmatch(
            rf"error: .*it needs graphc 999\.2\.3 or newer, and this is graphc {graphc.__version__}.*\n", done.stderr
        )


@pytest.mark.parametrize(
    "needed", [7, "", "1", "0.1", "0.1.0\n", "٠.1.0", "1.1.1.1", "9" * 5000 + ".0.0", "-1.0.0", True]
)
def test_a_damaged_number(tmp_path: Path, needed: Any) -> None:
    with pytest.raises(EngineError, match="it does not say which graphc it needs"):
        graphc.load(changed(ENGINES[0], tmp_path, needs=needed))


def test_engines_that_do_not_say_what_they_need_are_of_the_first_release(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = next(path for path in ENGINES if name_of(path) == "rows")
    path = changed(rows, tmp_path, needs=None)
    graphc.load(path).close()
    monkeypatch.setattr(versions, "__version__", "2.3.4")
    graphc.load(path).close()
    graphc.load(rows).close()


@pytest.mark.parametrize("number", [0, 2, None])
def test_another_format_is_refused_with_both_numbers(tmp_path: Path, number: int | None) -> None:
    message = f"it is an engine of format {number}, and graphc {graphc.__version__} reads format {engine.VERSION}"
    with pytest.raises(EngineError, match=re.escape(message)):
        graphc.load(changed(ENGINES[0], tmp_path, version=number))


def test_recipes_of_another_format_are_refused_with_both_numbers(tmp_path: Path) -> None:
    from graphc.targets.ggml.program.text import digest

    path = next(path for path in ENGINES if name_of(path) == "stripped")
    text = read_container(path, engine.ARCHITECTURE)[0]["graphc.recipes"].replace('"version":1', '"version":3', 1)
    path = changed(path, tmp_path, recipes=text, **{"recipes.sha256": digest(text)})
    with pytest.raises(
        EngineError, match=f"its recipes are of format 3, and graphc {graphc.__version__} reads format 1"
    ):
        graphc.load(path, weights=beside(next(each for each in ENGINES if name_of(each) == "stripped"), ".safetensors"))


def test_cpp_reads_the_same_format() -> None:
    source = (ROOT / "graphc/targets/ggml/project/graphc/engine.cpp").read_text()
    assert f"engine_format = {engine.VERSION};" in source


def test_the_version_is_one() -> None:
    with open(ROOT / "pyproject.toml", "rb") as file:
        assert tomllib.load(file)["project"]["version"] == graphc.__version__


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.__name__)
def test_the_page_names_what_is_public(package: Any) -> None:
    named = re.findall(rf"^- `{package.__name__}\.(\w+)`: ", API, re.MULTILINE)
    assert sorted(named) == sorted(package.__all__)


@pytest.mark.parametrize("path", re.findall(r"^- `([\w.]+)`: ", API, re.MULTILINE))
def test_public_names_say_what_they_are(path: str) -> None:
    if path.startswith("graphc_server"):
        pytest.importorskip("fastapi")
    module, _, name = path.rpartition(".")
    public = getattr(importlib.import_module(module), name)
    assert inspect.getdoc(public)
    for key, value in vars(public).items() if inspect.isclass(public) else ():
        if not key.startswith("_") and (inspect.isroutine(value) or isinstance(value, property)):
            assert inspect.getdoc(getattr(public, key)), f"{path}.{key}"


def test_the_variables_of_the_page_are_those_that_are_read() -> None:
    page = (ROOT / "docs/versions.md").read_text()
    read: set[str] = set()
    for package in ("graphc", "graphc_images", "graphc_server"):
        for path in (ROOT / package).rglob("*"):
            if path.suffix == ".py":
                read |= set(re.findall(r'(?:environ\S*|= )"(GRAPHC_[A-Z_]+)"', path.read_text()))
            elif path.suffix in (".c", ".h", ".cpp"):
                read |= set(re.findall(r'getenv\("(GRAPHC_\w+)"', path.read_text()))
    assert read == set(re.findall(r"`(GRAPHC_[A-Z_]+)`", page))


def test_the_changelog_begins_with_this_version() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text()
    sections = re.findall(r"^## (.*)$", changelog, re.MULTILINE)
    for section in sections:
        assert re.fullmatch(r"\[\d+\.\d+\.\d+\] (\(unreleased\)|- \d{4}-\d\d-\d\d)", section), section
    assert sections[0].startswith(f"[{graphc.__version__}]")
    assert not any("unreleased" in section for section in sections[1:])
    kinds = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
    assert set(re.findall(r"^### (.*)$", changelog, re.MULTILINE)) <= kinds
