"""What the pages say is true: the generated page is current; commands, options, paths and code in the others exist and run."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from typer.main import get_command

from graphc.cli import whole_app

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.glob("*.md")])
COMMANDS = get_command(whole_app()).commands
FOLDERS = ("graphc/", "tests/", "docs/", "examples/", "benchmarks/", ".ci/")


def pages(test):
    return pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)(test)


def options_of(command):
    """The options of a command; of a group, those of all its commands."""
    own = {option for parameter in command.params for option in parameter.opts}
    return own.union(*(options_of(each) for each in getattr(command, "commands", {}).values()))


def code_of(page, language):
    """The code blocks of a language."""
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)


def spans_of(page):
    """Inline code and indented lines: where commands and paths are."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    lines = [line.strip() for line in text.splitlines() if line.startswith("    ")]
    return [*lines, *re.findall(r"`([^`\n]+)`", text)]


@pytest.mark.slow
def test_the_page_of_operators_is_current(monkeypatch):
    page = (DOCS / "operators.md").read_text()
    if f"with onnx {onnx.__version__};" not in page:
        pytest.skip("the page was made with another version of onnx")
    monkeypatch.syspath_prepend(str(DOCS))
    spec = importlib.util.spec_from_file_location("generate_docs", DOCS / "generate.py")
    generate = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generate)
    assert not generate.onnx_operators.stale()
    assert generate.page().splitlines() == page.splitlines(), "run: python docs/generate.py"


@pages
def test_commands_and_their_options_exist(page):
    for span in spans_of(page):
        for command in re.findall(r"(?:^|/|&& )graphc ([a-z]\S* ?.*)", span):
            name, *words = command.replace("[", "").replace("]", "").split()
            assert name in COMMANDS, f"graphc {command}"
            known = {"--help", *options_of(COMMANDS[name])}
            for word in words:
                if word == "&&":
                    break
                if re.match(r"--?[a-z]", word):
                    assert word.partition("=")[0] in known, f"graphc {command}"


@pages
def test_every_command_line_option_belongs_to_a_command(page):
    known = set().union(*map(options_of, COMMANDS.values()))
    shown = {span for span in spans_of(page) if re.fullmatch(r"--[a-z]+", span)}
    generated = set(re.findall(r"--[a-z]+", (ROOT / "graphc/targets/ggml/project/graphc/command.cpp").read_text()))
    assert shown <= known | generated | {"--cpp", "--dynamic", "--raw", "--list"}


@pages
def test_paths_exist(page):
    for span in spans_of(page):
        for path in re.findall(r"[\w./-]+", span):
            if path.startswith(FOLDERS) and "*" not in span:
                assert (ROOT / path).exists(), path


@pages
def test_scripts_take_the_options_that_they_are_given(page):
    for span in spans_of(page):
        for script, words in re.findall(r"python ((?:examples|benchmarks|docs)/\w+\.py)(.*)", span):
            text = (ROOT / script).read_text()
            for option in re.findall(r"--[a-z]+", words):
                assert f'"{option}"' in text, f"{script} {option}"


@pages
def test_links_between_pages_lead_somewhere(page):
    text = re.sub(r"^ *```.*?^ *```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    for target in re.findall(r"\]\(([^)#:]+)\)", text):
        assert (page.parent / target).exists(), target


def unet(folder):
    """A model with the inputs and the output of a UNet, which the snippets are about."""
    inputs = [
        helper.make_tensor_value_info("sample", TensorProto.FLOAT, [1, 4, 64, 64]),
        helper.make_tensor_value_info("timestep", TensorProto.INT64, [1]),
        helper.make_tensor_value_info("encoder_hidden_states", TensorProto.FLOAT, [1, 77, 768]),
    ]
    nodes = [
        helper.make_node("ReduceMean", ["encoder_hidden_states"], ["mean"], keepdims=0),
        helper.make_node("Cast", ["timestep"], ["time"], to=TensorProto.FLOAT),
        helper.make_node("Add", ["mean", "time"], ["shift"]),
        helper.make_node("Add", ["sample", "shift"], ["out_sample"]),
    ]
    output = helper.make_tensor_value_info("out_sample", TensorProto.FLOAT, [1, 4, 64, 64])
    graph = helper.make_graph(nodes, "unet", inputs, [output])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), folder / "unet.onnx")


def test_the_python_of_the_readme_runs(tmp_path, monkeypatch):
    unet(tmp_path)
    monkeypatch.chdir(tmp_path)
    blocks = code_of(ROOT / "README.md", "python")
    assert blocks
    names: dict = {}
    for block in blocks:
        exec(compile(block, "README.md", "exec"), names)
    assert names["outputs"]["out_sample"].shape == (1, 4, 64, 64)


@pytest.mark.torch
def test_the_python_of_the_tutorial_runs(tmp_path, monkeypatch):
    torch = pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    if "graphc" not in torch._dynamo.list_backends():  # graphc was installed before it was a backend
        from graphc.frontend.torch.backend import compile_graph

        torch._dynamo.register_backend(compile_graph, name="graphc")
    names: dict = {}
    for block in code_of(DOCS / "python.md", "python"):
        exec(compile(block, "python.md", "exec"), names)
    assert names["scores"].shape == (5, 10)
    assert (tmp_path / "later.gguf").exists()


def test_every_command_has_a_sample_that_was_printed(monkeypatch):
    """Their options exist; what they print is written by `docs/record.py`."""
    monkeypatch.syspath_prepend(str(DOCS))
    from record import SAMPLE

    page = (DOCS / "commands.md").read_text()
    found = list(SAMPLE.finditer(page))
    assert len(found) == page.count("```console")
    for each in found:
        _, name, *words = each["command"].split()
        assert {word for word in words if word.startswith("-")} <= options_of(COMMANDS[name]), each["command"]
        assert each["printed"].strip(), each["command"]
        assert not each["printed"].startswith("error: "), each["command"]
    sampled = {each["command"].split()[1] for each in found}
    # three run until they are interrupted, two take minutes
    assert COMMANDS.keys() - sampled == {"serve", "worker", "serve-device", "build", "bundle"}
    for name in COMMANDS:
        assert f"`graphc {name}`" in page


@pytest.mark.slow
@pages
def test_the_cpp_of_the_pages_compiles(page, tmp_path):
    import graphc
    from graphc.build import installed_ggml

    for number, block in enumerate(code_of(page, "cpp")):
        (name,) = re.findall(r'#include "(unet|digits)/model.h"', block) or [""]
        if not name:
            continue
        unet(tmp_path)
        source = tmp_path / "unet.onnx" if name == "unet" else ROOT / "graphc/demo/digits.onnx"
        folder = tmp_path / f"{number}"
        graphc.compile(source, tmp_path / f"{name}.gguf", cpp=folder, threads=1).close()
        (folder / "page.cpp").write_text(block)
        command = ["c++", "-std=c++17", "-fsyntax-only"]
        for include in (folder / "include", folder / "runtime", installed_ggml() / "include"):
            command += ["-I", include]
        done = subprocess.run([*command, folder / "page.cpp"], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


def test_the_operator_and_the_rule_of_contributing_work(tmp_path):
    """The files of the page, in a copy, are all that an operator needs."""
    shutil.copytree(ROOT / "graphc", tmp_path / "graphc", ignore=shutil.ignore_patterns("__pycache__"))
    places = (
        "ops/damp.py", "frontend/onnx/importers/damp.py", "rewrite/rules/mine.py",
        "targets/ggml/program/composites/squared.py",
    )  # fmt: skip
    for place, code in zip(places, code_of(ROOT / "CONTRIBUTING.md", "python"), strict=True):
        (tmp_path / "graphc" / place).write_text(code)
    paths = os.pathsep.join(map(str, (tmp_path, ROOT / "tests", DOCS)))

    def checked(code):
        done = subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=False,
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": paths},
        )
        assert done.returncode == 0, done.stderr

    checked(CHECK + COMPOSITE.format(called="ggml_sqr(", operator="SQR"))
    (code,) = code_of(ROOT / "CONTRIBUTING.md", "c")
    (tmp_path / "graphc/targets/ggml/project/graphc/composites/squared.c").write_text(code)
    checked(CHECK + COMPOSITE.format(called="graphc::squared(", operator="CUSTOM"))


CHECK = """
import graphc
import numpy as np
import onnx
from core_operators import rows
from draws import DRAWS
from graphc.graph_text import parse_graph
from graphc.ir import interp
from graphc.ops.base import operator_class
from graphc.optimize import names
from graphc.rewrite.engine import rewrite
from graphc.rewrite.rules.mine import my_silu
from graphc.targets.ggml.lowering.lower import lower
from graphc.targets.ggml.run.executor import Executor
from operators import by_kernel, close
from uses import USES

Damp, x = operator_class("Damp"), np.linspace(-2, 2, 9, dtype=np.float32)
close(by_kernel(Damp(0.5), x), Damp(0.5).eval(x)[0])
assert "Damp" in DRAWS
assert rows({"Damp": USES["Damp"]}) == ["| Damp | – |  | kernel |"]
nodes = onnx.parser.parse_model('<ir_version: 10, opset_import: ["": 21, "com.example": 1]>'
    'm (float[9] x) => (float[9] y) { y = com.example.Damp <strength = 0.5> (x) }')
close(graphc.compile(nodes).run(x=x)["y"], Damp(0.5).eval(x)[0])
graph = parse_graph('''graph g(%x: float32[9])
    %s = Sigmoid(%x)
    %y = Mul(%s, %x)
    return y=%y''')
before = interp.run(graph, {"x": x})["y"]
assert rewrite(graph, [my_silu])
assert "my_silu" in names()
assert [str(node.op) for node in graph.nodes] == ["Silu"]
close(interp.run(graph, {"x": x})["y"], before)

graph = parse_graph('''graph g(%x: float32[9])
    %y = Sqr(%x)
    return y=%y''')
executor = Executor(lower(graph), [])
assert [call.function for call in executor.program.calls] == ["graphc_squared"]
close(executor.run({"x": x}, {})[0], x * x)
"""

COMPOSITE = """
from graphc.ggml_library import ggml
from graphc.targets.ggml.cpp.project import render_project

assert "{called}" in render_project(executor.program)["model.cpp"]
(built,) = executor.graphs
assert ggml.ggml_op_name(built.results[0].contents.op).decode() == "{operator}"
"""


def test_the_steps_of_contributing_are_those_of_the_check():
    """The commands of the page are those of `.ci/run`."""
    page, script = (ROOT / "CONTRIBUTING.md").read_text(), (ROOT / ".ci/run").read_text()
    for tool in ("pytest", "ruff", "mypy"):
        assert tool in page
        assert tool in script


def test_the_program_of_the_engine_page_is_the_one_that_is_written(tmp_path):
    """Every key and every kind of argument that an engine has is named on its page."""
    import json

    import graphc
    from graphc.weights.formats.gguf import read_container

    graphc.compile(ROOT / "graphc/demo/digits.onnx", tmp_path / "digits.gguf", threads=1).close()
    metadata, entries, data = read_container(tmp_path / "digits.gguf", "graphc")
    page = (DOCS / "engine.md").read_text()
    for key in metadata:
        assert f"`{key}`" in page
    for key, value in json.loads(metadata["graphc.program"]).items():
        assert f"`{key}`" in page
        for name in value[0] if isinstance(value, list) and value else ():
            assert f'"{name}"' in page, name
    assert [entry.name for entry in entries] == [f"w{index}" for index in range(len(entries))]
    assert sum(np.prod(entry.ne) for entry in entries) * 4 == sum(map(len, data))


@pytest.mark.torch
def test_the_page_of_models_names_all_of_them(monkeypatch):
    pytest.importorskip("torch")
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    from zoo import EXAMPLES

    named = re.findall(r"^\| `(\w+)` \|", (DOCS / "models.md").read_text(), re.MULTILINE)
    assert sorted(named) == sorted(EXAMPLES)
