"""The page of a program: its data, and what it does in a browser."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from itertools import pairwise
from pathlib import Path

import numpy as np
import onnx
import pytest
from browser import Browser, find_browser
from frontend_models import model, node, value
from test_control import BRANCHES, add_loop

import graphc
from graphc.compiler import compile_program
from graphc.runtime.profile import profile
from graphc.targets.ggml.generate.folder import texts_of
from graphc.targets.ggml.generate.generate import generated
from graphc.targets.ggml.lowering.compose import composed
from graphc.view.document import document
from graphc.view.page import page

EVIL = "</script><script>document.title='broken'</script><img src=x onerror=\"document.title='broken'\">"


def blocks(count: int = 3, name: str = "layer") -> onnx.ModelProto:
    """So many times a transposed copy, a product and what follows, each in a module."""
    nodes = []
    for index in range(count):
        scope = f"/net/{name}.{index}"
        nodes += [
            node("MatMul", f"x{index} weight", f"a{index}", f"{scope}/proj/MatMul"),
            node("Add", f"a{index} bias", f"b{index}", f"{scope}/proj/Add"),
            node("Relu", f"b{index}", f"c{index}", f"{scope}/Relu"),
            node("Transpose", f"c{index}", f"d{index}", f"{scope}/Transpose", perm=[1, 0]),
            node("Softmax", f"d{index}", f"x{index + 1}", f"{scope}/Softmax"),
        ]
    constants = {"weight": np.eye(8, dtype=np.float32), "bias": np.ones(8, np.float32)}
    return model(nodes, [value("x0", [8, 8])], [f"x{count}"], constants)


@pytest.fixture(scope="module")
def browser():
    program = find_browser()
    if program is None:
        pytest.skip("no Chromium is installed")
    with Browser(program) as opened:
        yield opened


def stored(folder: Path, data: dict) -> Path:
    path = folder / "view.html"
    path.write_text(page(data), encoding="utf-8")
    return path


def test_a_document_has_every_call_with_its_costs():
    program = composed(compile_program(blocks(1)))
    data = json.loads(json.dumps(document(program, {})))
    assert len(data["steps"]) == len(program.calls)
    (product,) = (step for step in data["steps"] if step["name"] == "linear")
    assert (product["kind"], product["operations"], product["path"]) == (
        "product",
        2 * 8**3 + 2 * 8**2,  # the product, what is added to it, and ReLU
        ["net", "layer.0", "proj"],
    )
    assert (product["bytes"], product["shape"], product["held"]) == (3 * 8 * 8 * 4 + 8 * 4, [8, 8], 8 * 8 * 4)
    assert product["reads"] == [["weights", 0], ["inputs", 0], ["weights", 1]]
    assert [step["name"] for step in data["steps"] if step["kind"] == "copy"] == ["copy"]
    assert data["weights"][0]["bytes"] == 8 * 8 * 4
    assert data["outputs"][0]["reads"] == [["steps", len(program.calls) - 1]]


def test_sizes_are_numbers_where_they_are_known():
    proto = model([node("Neg", "x", "y")], [value("x", ["n", "m"])], ["y"])
    program = compile_program(proto)
    assert document(program, {})["steps"][0]["shape"] == ["n", "m"]
    (step,) = document(program, {"n": 3})["steps"]
    assert (step["shape"], step["operations"]) == ([3, "m"], "3*m")


def test_times_of_a_loop_are_summed():
    feeds = {"x": np.ones(3, np.float32), "w": np.ones(3, np.float32), "trips": np.array(7)}
    loaded = graphc.compile(add_loop(), threads=1)
    data = document(loaded.program, {"n": 3}, profile(loaded, feeds))
    (added,) = (step for step in data["steps"] if step["name"] == "add")
    assert added["runs"] == 7
    assert added["seconds"] > 0
    assert added["path"][0].startswith("Loop")
    inside = [each for each in data["inputs"] if each["path"]]
    assert {each["path"][0] for each in inside} == {added["path"][0]}


def test_the_page_opens_modules_and_tells_of_steps(browser: Browser, tmp_path: Path):
    browser.open(stored(tmp_path, document(compile_program(blocks()), {})))
    shown = "[...document.querySelectorAll('.card')].map((card) => card.querySelector('b').textContent)"
    assert browser.run(shown)[:2] == ["x0", "net"]
    browser.run("document.getElementById('deeper').click(); document.getElementById('deeper').click()")
    names = browser.run(shown)
    assert {"layer.0", "layer.2", "proj: linear", "soft_max", "copy"} <= set(names)
    browser.run("[...document.querySelectorAll('.card.copy')][0].click()")
    panel = browser.run("document.getElementById('panel').innerText")
    assert "copy" in panel
    assert "net.layer.0" in panel
    assert "512 B" in panel  # reads and writes 8 x 8 floats
    assert browser.run("document.querySelectorAll('.card.chosen').length") == 1
    browser.run("document.getElementById('close').click()")
    assert len(browser.run(shown)) < len(names)
    assert browser.complaints() == []


def test_a_search_opens_what_it_finds(browser: Browser, tmp_path: Path):
    browser.open(stored(tmp_path, document(compile_program(blocks()), {})))
    browser.run("""(() => { const field = document.getElementById('search'); field.value = 'layer.1 soft_max';
        field.dispatchEvent(new Event('input')); })()""")
    found = browser.run("[...document.querySelectorAll('#found li')].map((row) => row.innerText)")
    assert len(found) == 1
    assert "net.layer.1" in found[0]
    browser.run("document.querySelector('#found button').click()")
    box = browser.run(
        "(({top, bottom}) => [top, bottom])(document.querySelector('.card.chosen').getBoundingClientRect())"
    )
    assert 0 < box[0] < box[1] < 1000
    link = browser.run("location.hash")
    browser.open(tmp_path / "view.html", link)
    assert browser.run("document.querySelector('.card.chosen b').textContent").startswith("soft_max")
    assert browser.complaints() == []


def test_names_are_text(browser: Browser, tmp_path: Path):
    names = [EVIL, "__proto__", "constructor", "\u2028\u202e&amp;", "a" * 5000]
    nodes = [node("Neg", f"x{i}", f"x{i + 1}", f"/{name.replace('/', '')}/{name}") for i, name in enumerate(names)]
    inputs = [value("x0", [EVIL])]
    proto = model(nodes, inputs, [value(f"x{len(names)}", [EVIL])])
    program = compile_program(proto)
    program.name = EVIL
    path = stored(tmp_path, document(program, {}))
    assert path.read_text().count("<script") == 2
    browser.open(path)
    browser.run("document.getElementById('deeper').click()")
    browser.run("for (const node of state.tree.nodes.values()) choose(node, true)")
    assert browser.run("document.title").startswith("</script>")
    assert browser.run("document.querySelectorAll('img').length") == 0
    assert browser.complaints() == []


def test_the_page_asks_for_nothing_and_runs_no_other_script(browser: Browser, tmp_path: Path):
    path = stored(tmp_path, document(compile_program(blocks()), {}))
    browser.open(path)
    assert browser.requests() == [path.as_uri()]
    browser.run(
        "(() => { const script = document.createElement('script'); script.textContent = 'window.ran = 1'; "
        "document.body.append(script); })()"
    )
    assert browser.run("window.ran ?? 0") == 0
    assert any("Content Security Policy" in text for text in browser.complaints())
    assert not re.search(r"""(?:src|href)=["']?(?:https?:)?//""", path.read_text())


@pytest.mark.parametrize("timed", [False, True])
def test_blocks_of_the_host_are_modules(browser: Browser, tmp_path: Path, timed: bool):
    loaded = graphc.compile(add_loop(), threads=1)
    feeds = {"x": np.ones(3, np.float32), "w": np.ones(3, np.float32), "trips": np.array(2)}
    data = document(loaded.program, {"n": 3}, profile(loaded, feeds) if timed else ())
    browser.open(stored(tmp_path, data))
    browser.run("openModules(state.tree.root, true); draw()")
    text = browser.run("document.getElementById('world').innerText")
    assert "Loop" in text
    assert "add" in text
    measures = browser.run("[...document.getElementById('measure').options].map((option) => option.text)")
    assert measures == [*(["time"] if timed else []), "operations", "bytes"]
    assert browser.complaints() == []


def test_a_model_without_modules_is_shown_in_parts(browser: Browser, tmp_path: Path):
    nodes = [node("Neg" if i % 2 else "Exp", f"x{i}", f"x{i + 1}") for i in range(2000)]
    proto = model(nodes, [value("x0", [4])], ["x2000"])
    browser.open(stored(tmp_path, document(compile_program(proto), {})))
    assert 1 < browser.run("document.querySelectorAll('.card').length") <= 60
    browser.run("openModules(state.tree.root, true); draw()")
    steps = browser.run("document.querySelectorAll('.card.step').length")
    assert steps == browser.run("state.tree.nodes.size") > 1500
    overlaps = """(() => { const boxes = [...document.querySelectorAll('.card.step')].map((card) => card.getBoundingClientRect());
        return boxes.some((a, i) => boxes.slice(i + 1).some((b) =>
            a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom)); })()"""
    assert browser.run(overlaps) is False


GRAPHS = {
    "chain": "Array.from({ length: 5000 }, (_, i) => [i, i + 1])",
    "skips": "Array.from({ length: 400 }, (_, i) => [[i, i + 1], [i, i + 2 + i * i % 29], [0, i + 1]]).flat()",
    "tangle": "Array.from({ length: 300 }, (_, i) => [i * 7 % 83, 83 + i * i % 97])",
    "apart": "[[0, 1], [3, 2], [4, 5], [3, 5]]",
    "flat": "[]",
}
ARRANGED = """((pairs) => {
    const count = Math.max(9, ...pairs.flat().map((node) => node + 1));
    const nodes = Array.from({ length: count }, (_, i) => ({ width: 50 + i * 37 % 200, height: 20 + i * 53 % 90 }));
    const { nodes: places, edges } = arrange(nodes, pairs.map(([from, to]) => ({ from, to, line: from })));
    const boxes = places.map(({ x, top }, i) =>
        ({ left: x - nodes[i].width / 2, right: x + nodes[i].width / 2, top, bottom: top + nodes[i].height }));
    const way = ([from, to], i) => [places[from], ...edges[i], places[to]].map(({ x, top, bottom }) => [x, top, bottom]);
    return { boxes, ways: pairs.map(way) };
})"""


@pytest.mark.parametrize("edges", GRAPHS.values(), ids=GRAPHS)
def test_a_layout_goes_down_and_nothing_overlaps(browser: Browser, tmp_path: Path, edges: str):
    browser.open(stored(tmp_path, document(compile_program(blocks()), {})))
    found = browser.run(f"{ARRANGED}({edges})")
    assert found == browser.run(f"{ARRANGED}({edges})")
    rows = defaultdict(list)
    for box in found["boxes"]:
        rows[box["top"]].append((box["left"], box["right"], box["bottom"]))
    passed = {(x, x, top) for way in found["ways"] for x, top, _ in way[1:-1]}
    for left, right, top in passed:
        rows[top].append((left, right, top))
    lowest = -1.0
    for top, row in sorted(rows.items()):
        assert lowest < top
        lowest = max(bottom for _, _, bottom in row)
        assert all(left[1] < right[0] for left, right in pairwise(sorted(row)))
    for way in found["ways"]:
        assert all(above[2] < below[1] for above, below in pairwise(way))


def test_edges_that_need_not_cross_do_not(browser: Browser, tmp_path: Path):
    browser.open(stored(tmp_path, document(compile_program(blocks()), {})))
    ways = browser.run(f"{ARRANGED}([[0, 4], [2, 4], [2, 5], [1, 5], [1, 3]])")["ways"]
    places = sorted((above[0], below[0]) for above, below in ways)
    assert all(left[1] <= right[1] for left, right in pairwise(places))


def test_an_edge_of_a_cycle_goes_up(browser: Browser, tmp_path: Path):
    browser.open(stored(tmp_path, document(compile_program(blocks()), {})))
    first, second, third, back = (
        [top for _, top, _ in way] for way in browser.run(f"{ARRANGED}([[0, 1], [1, 2], [2, 3], [3, 1]])")["ways"]
    )
    assert first < second < third
    assert back == sorted(back, reverse=True)
    assert len(back) == 3


def test_what_lies_on_the_main_way_is_straight_and_a_line_beside_it_too(browser: Browser, tmp_path: Path):
    browser.open(stored(tmp_path, document(compile_program(blocks()), {})))
    *chain, skip = browser.run(f"{ARRANGED}([[0, 1], [1, 2], [2, 3], [3, 4], [4, 5], [1, 4]])")["ways"]
    places = {x for way in chain for x, _, _ in way}
    assert max(places) - min(places) < 1
    (aside,) = {x for x, _, _ in skip[1:-1]}
    assert abs(aside - skip[0][0]) > 50


def test_the_panel_sums_what_the_steps_cost(browser: Browser, tmp_path: Path):
    proto = model(
        [node("MatMul", "x w", "y"), node("Relu", "y", "z")],
        [value("x", [50, 100])],
        ["z"],
        {"w": np.ones((100, 200), np.float32)},
    )
    browser.open(stored(tmp_path, document(compile_program(proto), {})))
    panel = browser.run("document.getElementById('panel').innerText")
    assert f"{(2 * 50 * 100 * 200 + 50 * 200) / 1e6:.2f} MFLOP" in panel
    assert f"{100 * 200 * 4 / 1024:.1f} KiB" in panel


def test_a_block_has_its_inputs_and_outputs():
    data = document(compile_program(BRANCHES), {"n": 3})
    outputs = {tuple(each["path"]): each for each in data["outputs"]}
    assert () in outputs
    inner = [path for path in outputs if path]
    assert {path[-1] for path in inner} == {"then", "else"}
    for path in inner:
        kind, index = outputs[path]["reads"][0]
        assert tuple(data[kind][index]["path"])[: len(path)] == path or kind == "inputs"


def test_kernels_of_a_device_have_their_text(browser: Browser, tmp_path: Path):
    found = generated(compile_program(blocks(2)))
    data = json.loads(json.dumps(document(found.program, {}, texts=texts_of(found, {}))))
    launched = [step for step in data["steps"] if "launches" in step]
    assert [step["name"] for step in launched] == [each["kernel"] for step in launched for each in step["launches"]]
    assert data["kernels"].keys() == found.kernels.keys() == {step["name"] for step in launched}
    product = next(step for step in launched if step["kind"] == "product")
    assert product["launches"][0]["blocks"] == [1, 1, 1]
    assert product["operations"] >= 2 * 8**3
    browser.open(stored(tmp_path, data))
    assert f"{len(found.kernels)}, launched {len(launched)} times" in browser.run("document.body.innerText")
    browser.run("choose([...state.tree.nodes.values()].find((node) => node.kind === 'product'), true)")
    panel = "document.getElementById('panel')"
    narrow = browser.run(f"{panel}.offsetWidth")
    assert "KERNEL(linear" not in browser.run(f"{panel}.innerText")
    browser.run(f"{panel}.querySelectorAll('details').forEach((each) => {{ each.open = true; }})")
    text = browser.run(f"{panel}.innerText")
    assert "KERNEL(linear, 128, 1, const float *a" in text
    assert "launched by 1 more steps" in text
    assert browser.run(f"{panel}.offsetWidth") > 2 * narrow
    assert browser.complaints() == []


def test_where_kernels_are_shown_for(graphc_command, tmp_path: Path):
    onnx.save(blocks(1), "model.onnx")
    done = graphc_command("view", "model.onnx", "--gpu", "sm_80", "-o", "gpu.html")
    assert (done.status, "KERNEL(linear" in Path("gpu.html").read_text()) == (0, True), done.err
    for options in (
        ["--device", "cpu,cpu"],
        ["--fast"],
        ["--gpu", "sm_80", "--threads", 1],
        ["--gpu", "sm_80", "--profile"],
    ):
        done = graphc_command("view", "model.onnx", *options)
        assert (done.status, "--profile runs the model" in done.err) == (1, True), done.err
    assert "there is no target sm_1" in graphc_command("view", "model.onnx", "--gpu", "sm_1").err
