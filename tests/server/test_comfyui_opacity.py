"""Pictures with an opacity, such as Krita's, in every node that takes pictures: it stays where it means something."""

import contextlib

import numpy as np
import pytest
from graphs import Bench, node
from PIL import Image
from served import write_models

from graphc import GraphcError
from graphc_server.comfyui import nodes
from graphc_server.comfyui.checking import check
from graphc_server.comfyui.table import NODES

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

CLEAR = {
    *("SaveImage", "PreviewImage", "SaveImageWebsocket", "ETN_SaveImageCache", "ETN_SendImageWebSocket", "ImageToMask"),
    *("ImageScale", "ImageScaleBy", "ImageScaleToTotalPixels", "FluxKontextImageScale", "ImageCrop", "ImageFromBatch"),
    *("RepeatImageBatch", "SplitImageWithAlpha"),
}
"""Nodes that see it. The others get the colours alone."""

assert nodes.SUBJECTS  # so that they are in the table
TAKING = sorted(name for name, each in NODES.items() if any(one.type == "IMAGE" for one in each.inputs))


def test_which_nodes_see_the_opacity():
    seen = {name for name in TAKING if any(one.clear for one in NODES[name].inputs)}
    assert seen == CLEAR


@pytest.fixture(scope="module")
def bench(tmp_path_factory):
    made = Bench(tmp_path_factory.mktemp("data"), write_models(tmp_path_factory.mktemp("webui"), "one"))
    colours = np.random.default_rng(0).integers(0, 255, (64, 64, 4), np.uint8)
    Image.fromarray(colours).save(made.files.folders["input"] / "in.png")
    return made


LINKS = {"MASK": ["1", 1], "VAE": ["4", 2], "MODEL": ["4", 0], "CONDITIONING": ["6", 0], "TileLayout": ["30", 0]}


@pytest.mark.parametrize("name", TAKING)
def test_a_picture_that_is_clear_goes_into_every_node(bench, name):
    """Whatever it is, there is a result or an error that says what is wrong."""
    kind = NODES[name]
    inputs = {
        each.name: ["20", 0] if each.type == "IMAGE" else LINKS[each.type]
        for each in kind.inputs
        if each.type in ("IMAGE", *LINKS) and not (each.optional and each.type == "CONDITIONING")
    }
    choices = {
        each.name: next(iter(each.choices)) for each in kind.inputs if each.choices and not callable(each.choices)
    }
    usual = {each.name: each.default for each in kind.inputs if each.default is not None}
    graph = {
        "1": node("LoadImage", image="in.png"),
        "4": node("CheckpointLoaderSimple", ckpt_name="one.safetensors"),
        "6": node("CLIPTextEncode", text="a", clip=["4", 1]),
        "20": node("ETN_ApplyMaskToImage", image=["1", 0], mask=["1", 1]),
        "30": node("ETN_TileLayout", image=["1", 0], min_tile_size=64, padding=0, blending=0, multiple=8),
        "40": node(name, **{**usual, **choices, **inputs}),
    }
    if not kind.output:
        shows = {"IMAGE": "PreviewImage", "MASK": "MaskToImage", "LATENT": "VAEDecode"}
        slot, type = next(((n, each) for n, each in enumerate(kind.gives) if each in shows), (None, None))
        if slot is None:
            pytest.skip("it gives no picture")
        wants = {"VAEDecode": {"samples": ["40", slot], "vae": ["4", 2]}, "MaskToImage": {"mask": ["40", slot]}}
        if type != "IMAGE":
            graph["41"] = node(shows[type], **wants[shows[type]])
        graph["50"] = node("PreviewImage", images=["40", slot] if type == "IMAGE" else ["41", 0])
    with contextlib.suppress(GraphcError):  # it wants what is not here, such as a network
        if check(graph, bench.library).error is None:
            bench.run(graph)


def test_opaque_and_clear_pictures_in_one_batch(bench):
    graph = {
        "1": node("LoadImage", image="in.png"),
        "20": node("ETN_ApplyMaskToImage", image=["1", 0], mask=["1", 1]),
        "22": node("ImageBatch", image1=["20", 0], image2=["1", 0]),
        "23": node("ImagePadForOutpaint", image=["20", 0], left=8, top=0, right=0, bottom=0, feathering=0),
        "50": node("PreviewImage", images=["22", 0]),
        "51": node("PreviewImage", images=["23", 0]),
        "52": node("PreviewImage", images=["20", 0]),
    }
    shown = bench.run(graph).shown
    first, second = bench.pictures(shown["50"])
    assert first.tobytes() == second.tobytes()
    assert bench.pictures(shown["51"])[0].shape == (64, 72, 3)
    assert bench.pictures(shown["52"])[0].shape == (64, 64, 4)


@pytest.mark.parametrize("name", ["\ud800", "a/\ud800.png", "\ud800 [output]", "a\0.png"])
def test_a_name_that_no_file_can_have_is_refused(bench, name):
    graph = {"1": node("LoadImage", image=name), "50": node("PreviewImage", images=["1", 0])}
    assert set(check(graph, bench.library).node_errors) == {"1"}
