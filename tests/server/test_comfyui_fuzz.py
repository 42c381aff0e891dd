"""Graphs by chance: whatever is in one, it is refused or carried out, with one error of ours at most, and nothing hangs."""

import copy
import json
import random

import pytest
from chance import ODD as ANYWHERE
from graphs import Bench, node, of_text, picture
from served import write_models

from graphc import GraphcError
from graphc_server.comfyui.checking import check
from graphc_server.comfyui.table import NODES, WIDGETS

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

ODD = (
    *ANYWHERE, float("nan"), float("inf"), {"a": 1}, ["3", 0], ["3", -1], ["3", True], ["3", 0.5], [3, 0], ["99", 0],
    [["3", 0], 0], ["4", 2], [{}, 0], "in.png [output]", "1" * 5000, "one.safetensors", "in.png",
)  # fmt: skip


@pytest.fixture(scope="module")
def bench(tmp_path_factory):
    from graphc_server.limits import Limits

    models = write_models(tmp_path_factory.mktemp("webui"), "one")
    made = Bench(tmp_path_factory.mktemp("data"), models)
    made.library.limits = Limits(pixels=96 * 96, steps=2, pictures=2)
    picture(alpha=True).save(made.files.folders["input"] / "in.png")
    return made


def drawn_node(draw, names):
    """A node whose inputs are mostly of the right types, from nodes that there are."""
    kind = draw.choice(list(NODES.values()))
    inputs = {}
    for each in kind.inputs:
        if draw.random() < 0.05:
            continue
        if draw.random() < 0.05:
            inputs[each.name] = draw.choice(ODD)
        elif each.type not in WIDGETS:
            fitting = [
                [name, slot] for name, gives in names.items() for slot, type in enumerate(gives) if type == each.type
            ]
            inputs[each.name] = draw.choice(fitting or [["4", 0]])
        elif each.choices and not callable(each.choices):
            inputs[each.name] = draw.choice(each.choices)
        elif each.type in ("INT", "FLOAT"):
            low, high = each.low or 0, min(each.high or 1, 100)
            number = draw.choice([each.default, low, high, draw.uniform(low, high)])
            inputs[each.name] = int(number) if each.type == "INT" else number
        else:
            inputs[each.name] = draw.choice(["", "in.png", "one.safetensors", "a circle", each.default, True])
    return kind, node(kind.name, **inputs)


def drawn(draw):
    graph = copy.deepcopy(of_text(steps=1, size=64))
    graph["1"] = node("LoadImage", image="in.png")
    names = {name: NODES[each["class_type"]].gives for name, each in graph.items()}
    for number in range(draw.randint(0, 6)):
        kind, graph[str(20 + number)] = drawn_node(draw, names)
        names[str(20 + number)] = kind.gives
    for _ in range(draw.choice([0, 0, 1, 3])):
        name = draw.choice(list(graph))
        inputs = graph[name]["inputs"]
        if inputs:
            inputs[draw.choice(list(inputs))] = draw.choice(ODD)
    links = [
        [name, slot] for name, gives in names.items() for slot, type in enumerate(gives) if type in ("IMAGE", "LATENT")
    ]
    for place, target in enumerate(draw.sample(links, min(2, len(links)))):
        image = names[target[0]][target[1]] == "IMAGE"
        if not image:
            graph[f"4{place}"] = node("VAEDecode", samples=target, vae=["4", 2])
        graph[f"5{place}"] = node("PreviewImage", images=target if image else [f"4{place}", 0])
    if draw.random() < 0.1:
        graph[draw.choice(list(graph))] = draw.choice(
            [*ODD, {"class_type": draw.choice(ODD)}, {"class_type": "KSampler", "inputs": 3}]
        )
    return graph


def carried_out(bench, seed, count):
    """How many were refused, failed and were done; the graph is in the message of a failure."""
    draw, counts = random.Random(seed), {"refused": 0, "failed": 0, "done": 0}
    for _ in range(count):
        graph = drawn(draw)
        try:
            found = check(graph, bench.library)
            if found.error is not None:
                json.dumps([found.error, dict(found.node_errors)], allow_nan=True)
                counts["refused"] += 1
                continue
            bench.run(graph, {"extra_pnginfo": draw.choice(ODD)})
            counts["done"] += 1
        except (GraphcError, OSError) as error:
            counts["failed" if str(error) else "failed without a word"] += 1
        except Exception as error:
            raise AssertionError(json.dumps(graph)) from error
    return counts


def test_graphs_by_chance(bench):
    counts = carried_out(bench, 1, 120)
    assert min(counts.values()) > 0, counts


@pytest.mark.thorough
def test_many_graphs_by_chance(bench):
    for seed in range(2, 12):
        carried_out(bench, seed, 500)


def test_graphs_that_are_large_or_deep(bench):
    deep = {str(n): node("InvertMask", mask=[str(n + 1), 0]) for n in range(1500)}
    deep["1500"] = node("SolidMask", value=1.0, width=16, height=16)
    deep["end"] = node("MaskToImage", mask=["0", 0])
    deep["out"] = node("PreviewImage", images=["end", 0])
    assert bench.run(deep).shown["out"].images
    huge = {str(n): node("EmptyImage", width=16, height=16, batch_size=1, color=0) for n in range(5000)}
    assert check(huge, bench.library).error["type"] == "invalid_prompt"
    circle = {str(n): node("InvertMask", mask=[str((n + 1) % 1500), 0]) for n in range(1500)}
    circle["end"] = node("MaskToImage", mask=["0", 0])
    circle["out"] = node("PreviewImage", images=["end", 0])
    assert check(circle, bench.library).error["type"] == "prompt_outputs_failed_validation"


def test_values_of_nodes_are_as_limited_as_those_of_clients(bench):
    graph = of_text(steps=1) | {"30": node("PrimitiveInt", value=10**9), "31": node("PrimitiveString", value="best")}
    for name, key, link in (("3", "steps", "30"), ("5", "width", "30"), ("5", "batch_size", "30")):
        with pytest.raises(GraphcError, match="bigger than max"):
            bench.run({**graph, name: node(graph[name]["class_type"], **{**graph[name]["inputs"], key: [link, 0]})})
    with pytest.raises(GraphcError, match="not in list"):
        bench.run({**graph, "3": node("KSampler", **{**graph["3"]["inputs"], "sampler_name": ["31", 0]})})
