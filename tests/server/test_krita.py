"""Krita AI Diffusion, a plugin for Krita: what it asks when it connects, and its graphs, in its order."""

import io
import zlib
from types import SimpleNamespace

import numpy as np
import pytest
from graphs import kinds, node, picture, told
from PIL import Image, ImageDraw
from served import Served, content_of, until, write_control, write_models

from graphc_images import SettingError
from graphc_server.comfyui.executor import Interrupted, Room
from graphc_server.comfyui.handed import Handed
from graphc_server.comfyui.nodes import inpainting, tooling
from graphc_server.errors import RequestError
from graphc_server.service import Setup

torch = pytest.importorskip("torch")
websockets = pytest.importorskip("websockets.sync.client")
pytestmark = pytest.mark.torch

WANTED = """InpaintPreprocessor DepthAnythingV2Preprocessor IPAdapterModelLoader IPAdapter ETN_LoadImageCache ETN_SaveImageCache
    ETN_Translate INPAINT_LoadFooocusInpaint INPAINT_ShrinkMask INPAINT_StabilizeMask INPAINT_ColorMatch"""
"""Nodes without which it does not connect."""

FILES = {
    ("ControlNetLoader", "control_net_name"): "ControlNet/control_v11p_sd15_inpaint_fp16.safetensors",
    ("IPAdapterModelLoader", "ipadapter_file"): "ipadapter/ip-adapter_sd15.safetensors",
    ("CLIPVisionLoader", "clip_name"): "clip_vision/clip-vision_vit-h.safetensors",
    ("UpscaleModelLoader", "model_name"): "ESRGAN/4x_NMKD-Superscale-SP_178000_G.pth",
    ("INPAINT_LoadInpaintModel", "model_name"): "inpaint/MAT_Places512_G_fp16.safetensors",
    ("INPAINT_LoadFooocusInpaint", "patch"): "inpaint/inpaint_v26.fooocus.patch",
    ("LoraLoader", "lora_name"): "Lora/Hyper-SD15-8steps-CFG-lora.safetensors",
}
"""The lists in which it looks for files that it wants, and such files."""


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = write_models(tmp_path_factory.mktemp("webui"), "one")
    for file in FILES.values():
        (folder / "models" / file).parent.mkdir(exist_ok=True)
        (folder / "models" / file).write_bytes(b"nobody opens it")
    write_control(folder / "models" / FILES["ControlNetLoader", "control_net_name"])
    return folder


@pytest.fixture(scope="module")
def served(models, tmp_path_factory):
    with Served(Setup((models,), tmp_path_factory.mktemp("data"), threads=1)) as running:
        yield running


def test_it_connects(served):
    assert served.get("/system_stats")["devices"][0]["vram_total"] > 0
    headers = {"Authorization": "Bearer token"}  # it sends one if its user gave one
    with websockets.connect(f"ws://127.0.0.1:{served.port}/ws?clientId=krita", additional_headers=headers):
        pass
    nodes = served.get("/object_info")
    assert set(WANTED.split()) <= nodes.keys()
    for (name, field), file in FILES.items():
        assert file.partition("/")[2] in nodes[name]["input"]["required"][field][0]
    assert served.get("/api/etn/languages") == []
    found = served.get("/api/etn/model_info/checkpoints", params={"offset": 0, "limit": 8})
    assert found.pop("_meta") == {"offset": 0, "count": 1, "total": 1}
    assert found["one.safetensors"]["base_model"] == "sd15"
    assert not found["one.safetensors"]["is_inpaint"]
    assert served.get("/api/etn/model_info/diffusion_models?offset=0&limit=8")["_meta"]["total"] == 0
    assert served.post("/api/etn/workflow/subscribe", {"client_id": "krita"}) == {"status": "success"}
    assert served.client.get("/api/etn/model_info/elsewhere").status_code == 400


def of_prompt(steps=2, start=0, latent=("latent", 0), **more):
    """Its graph from a prompt to pictures, which it fetches."""
    return {
        "model": node("CheckpointLoaderSimple", ckpt_name="one.safetensors"),
        "latent": node("EmptyLatentImage", width=64, height=64, batch_size=2),
        "prompt": node("CLIPTextEncode", clip=["model", 1], text="a red circle"),
        "other": node("CLIPTextEncode", clip=["model", 1], text="blue"),
        "guider": node("CFGGuider", model=["model", 0], positive=["prompt", 0], negative=["other", 0], cfg=4.0),
        "all": node("BasicScheduler", model=["model", 0], scheduler="karras", steps=steps, denoise=1.0),
        "levels": node("SplitSigmas", sigmas=["all", 0], step=start),
        "noise": node("RandomNoise", noise_seed=7),
        "sampler": node("KSamplerSelect", sampler_name="dpmpp_2m"),
        "sampled": node(
            "SamplerCustomAdvanced", noise=["noise", 0], guider=["guider", 0], sampler=["sampler", 0],
            sigmas=["levels", 1], latent_image=list(latent),
        ),
        "decoded": node("VAEDecode", vae=["model", 2], samples=["sampled", 1]),
        "sent": node("ETN_SaveImageCache", images=["decoded", 0], format="PNG"),
        **more,
    }  # fmt: skip


def sent(served, made):
    """Hand a picture to the server, under the name that the plugin gives it."""
    content = content_of(made)
    name = f"{zlib.crc32(content):08x}"
    answer = served.client.put(f"/api/etn/image/{name}", content=content)
    assert answer.status_code in (200, 201), answer.text
    return name


def painted(served, graph, **more):
    """What a graph hands back, and what was told of it."""
    id, messages = told(served, graph, **more)
    (said,) = [each["data"] for each in messages if isinstance(each, dict) and each["type"] == "executed"]
    found = []
    for image in said["output"]["images"]:
        assert (image["source"], image["content-type"]) == ("http", "image/png")
        answer = served.client.get(f"/api/etn/image/{image['id']}")
        assert answer.headers["content-type"] == "image/png"
        found.append(Image.open(io.BytesIO(answer.content)))
    return id, messages, found


def test_from_a_prompt_to_pictures(served):
    wanted = "5e0c2ee6-56a5-4a4c-9c2a-000000000001"
    id, messages, found = painted(served, of_prompt(), prompt_id=wanted)
    assert id == wanted
    order = list(dict.fromkeys(each for each in kinds(messages) if each not in ("status", "preview")))
    assert order == ["execution_start", "execution_cached", "executing", "progress", "executed", "execution_success"]
    assert messages[-1]["data"] == {"node": None, "prompt_id": wanted}
    assert [each.size for each in found] == [(64, 64)] * 2
    assert all(np.asarray(each).std() > 0 for each in found)
    again = painted(served, of_prompt())[2]  # all of it is cached, and the pictures are told and fetched once more
    assert [np.asarray(each).tobytes() for each in again] == [np.asarray(each).tobytes() for each in found]
    assert served.get(f"/history/{wanted}")[wanted]["status"]["completed"]


def test_from_a_picture_to_pictures(served):
    """Also how it paints while somebody draws: few steps of a part of the way, again and again."""
    name = sent(served, picture())
    assert served.client.put(f"/api/etn/image/{name}", content=b"").json() == {"status": "cached"}
    graph = of_prompt(4, 2, ("batch", 0)) | {
        "picture": node("ETN_LoadImageCache", id=name),
        "encoded": node("VAEEncode", vae=["model", 2], pixels=["picture", 0]),
        "batch": node("RepeatLatentBatch", samples=["encoded", 0], amount=1),
    }
    _, messages, (found,) = painted(served, graph)
    assert sum(kind == "progress" for kind in kinds(messages)) == 2
    assert found.mode == "RGB"
    other = sent(served, picture(seed=1))
    again = painted(served, graph | {"picture": node("ETN_LoadImageCache", id=other)})[2][0]
    assert (np.asarray(again) != np.asarray(found)).any()


def test_a_part_anew(served):
    """Fill a selection, with a ControlNet for inpainting, and get that part back, transparent outside of the selection."""
    mask = Image.new("L", (64, 64))
    ImageDraw.Draw(mask).rectangle((16, 16, 39, 39), fill=255)
    both = {"positive": ["prompt", 0], "negative": ["other", 0]}
    graph = of_prompt(2, 0, ("masked", 0)) | {
        "picture": node("ETN_LoadImageCache", id=sent(served, picture())),
        "mask": node("ETN_LoadImageCache", id=sent(served, mask)),
        "grown": node("INPAINT_ExpandMask", mask=["mask", 1], grow=4, blur=9, blur_type="linear"),
        "part": node("CropMask", mask=["grown", 0], x=8, y=8, width=56, height=56),
        "stable": node("INPAINT_StabilizeMask", mask=["grown", 0], epsilon=0.01),
        "filled": node("INPAINT_MaskedBlur", image=["picture", 0], mask=["mask", 1], blur=65, falloff=9),
        "net": node("ControlNetLoader", control_net_name="control_v11p_sd15_inpaint_fp16.safetensors"),
        "hint": node("InpaintPreprocessor", image=["picture", 0], mask=["stable", 0], black_pixel_for_xinsir_cn=False),
        "steered": node(
            "ControlNetApplyAdvanced", **both, control_net=["net", 0], image=["hint", 0], vae=["model", 2], strength=1.0,
            start_percent=0.0, end_percent=1.0,
        ),
        "differential": node("DifferentialDiffusion", model=["model", 0]),
        "guider": node(
            "CFGGuider", model=["differential", 0], positive=["steered", 0], negative=["steered", 1], cfg=4.0
        ),
        "encoded": node("VAEEncode", vae=["model", 2], pixels=["filled", 0]),
        "masked": node("SetLatentNoiseMask", samples=["encoded", 0], mask=["stable", 0]),
        "matched": node(
            "INPAINT_ColorMatch", target=["decoded", 0], reference=["filled", 0], exclude_mask=["stable", 0], strength=1.0
        ),
        "cut": node("ImageCrop", image=["matched", 0], x=8, y=8, width=56, height=56),
        "there": node("ThresholdMask", mask=["part", 0], value=0.0),
        "soft": node("INPAINT_ShrinkMask", mask=["there", 0], shrink=2, blur=4, blur_type="gaussian"),
        "apart": node("ETN_ApplyMaskToImage", image=["cut", 0], mask=["soft", 0]),
        "sent": node("ETN_SaveImageCache", images=["apart", 0], format="PNG"),
    }  # fmt: skip
    found = painted(served, graph)[2][0]
    assert (found.mode, found.size) == ("RGBA", (56, 56))
    alpha = np.asarray(found)[..., 3]
    assert alpha[20, 20] == 255
    assert alpha[-1, -1] == 0
    assert len(np.unique(alpha)) > 2


def test_what_cannot_be_done_is_said_before(served):
    graph = of_prompt() | {
        "patch": node(
            "INPAINT_LoadFooocusInpaint", head="MAT_Places512_G_fp16.safetensors", patch="inpaint_v26.fooocus.patch"
        ),
        "patched": node("INPAINT_ApplyFooocusInpaint", model=["model", 0], patch=["patch", 0], latent=["latent", 0]),
        "guider": node("BasicGuider", model=["patched", 0], conditioning=["prompt", 0]),
    }
    answer = served.client.post("/prompt", json={"prompt": graph})
    assert answer.status_code == 400
    said = answer.json()
    assert {"patch", "patched"} <= said["node_errors"].keys()
    assert "Fooocus" in said["error"]["details"]
    german = of_prompt() | {
        "english": node("ETN_Translate", text="lang:de ein roter Kreis"),
        "prompt": node("CLIPTextEncode", clip=["model", 1], text=["english", 0]),
    }
    _, messages = told(served, german)
    (failed,) = [each["data"] for each in messages if isinstance(each, dict) and each["type"] == "execution_error"]
    assert "lang:de" in failed["exception_message"]
    assert served.client.get("/api/etn/translate/de/Kreis").status_code == 400
    assert served.get("/api/etn/translate/en/a%20circle") == "a circle"


def test_a_picture_that_was_never_sent_is_one_clear_error(served):
    graph = of_prompt(latent=("encoded", 0)) | {
        "picture": node("ETN_LoadImageCache", id="00000000"),
        "encoded": node("VAEEncode", vae=["model", 2], pixels=["picture", 0]),
    }
    _, messages = told(served, graph)
    (failed,) = [each["data"] for each in messages if isinstance(each, dict) and each["type"] == "execution_error"]
    assert failed["node_id"] == "picture"
    assert "00000000" in failed["exception_message"]


def test_what_is_sent_is_looked_at(served):
    assert served.client.put("/api/etn/image/abc", content=b"no picture").status_code == 422
    assert served.client.put("/api/etn/image/..%2Fabc", content=b"").status_code in (400, 404, 405)
    assert served.client.put("/api/etn/image/.hidden", content=b"").status_code == 400
    assert served.client.get("/api/etn/image/absent").status_code == 404


def test_a_lora_is_sent(served, models):
    from safetensors.numpy import save

    tensors = {"lora_unet_mid.lora_down.weight": np.ones((2, 3), np.float32)}
    path = "/api/etn/upload/loras/sent.safetensors"
    assert served.client.put(path, content=save(tensors)).status_code == 201
    assert served.client.put(path, content=b"").json() == {"status": "cached"}
    assert (models / "models" / "Lora" / "sent.safetensors").read_bytes() == save(tensors)
    until(lambda: "sent.safetensors" in served.get("/models/loras"))
    for wrong in ("loras/broken.safetensors", "loras/sent.pt", "checkpoints/a.safetensors", "loras/..safetensors"):
        assert served.client.put(f"/api/etn/upload/{wrong}", content=b"nothing").status_code == 400
    assert sorted(each.name for each in (models / "models" / "Lora").iterdir()) == [
        "Hyper-SD15-8steps-CFG-lora.safetensors", "sent.safetensors",
    ]  # fmt: skip


def test_old_pictures_go_but_those_that_are_needed(tmp_path, monkeypatch):
    import os

    monkeypatch.setattr("graphc_server.comfyui.handed.MOST", 250)
    handed = Handed(tmp_path, lambda name: name == "b")
    for name, age in (("a", 9000), ("b", 8000), ("c", 7000), ("d", 10)):
        handed.put(name, b"x" * 60)
        os.utime(handed.path(name), (handed.path(name).stat().st_mtime - age,) * 2)
    handed.put("e", b"x" * 60)
    assert [name for name in "abcde" if handed.has(name)] == ["b", "c", "d", "e"]
    assert Handed(tmp_path, lambda name: False).get("b") == b"x" * 60  # as after a start
    with pytest.raises(RequestError):
        handed.get("../a")


ROOM = Room(None, None, {}, {}, SimpleNamespace(goes_on=lambda: True))


def test_a_blur_by_spectrum_is_one_by_weights():
    array = np.random.default_rng(0).random((1, 40, 31, 2)).astype(np.float32)
    for size in (5, 65, 301):
        by_spectrum = inpainting._convolved_by_spectrum(array, inpainting.gaussian(size), 1)
        by_weights = inpainting.convolve_lines(array, inpainting.gaussian(size).astype(np.float32), 1)
        assert np.allclose(by_spectrum, by_weights, atol=1e-5)
    assert inpainting.blurred(np.ones((1, 1, 3)), inpainting.box(101)).shape == (1, 1, 3)
    for size in (5, 25, 65):
        assert (inpainting.blurred(np.ones((1, 70, 70), np.float32), inpainting.gaussian(size)) == 1).all()


def test_a_fill_ends_when_somebody_wants():
    room = Room(None, None, {}, {}, SimpleNamespace(goes_on=lambda: False))
    mask = np.zeros((1, 8, 8), np.float32)
    mask[:, 2:5, 2:5] = 1
    with pytest.raises(Interrupted):
        inpainting.fill(room, np.zeros((1, 8, 8, 3), np.float32), mask, "navier-stokes", 0)


def test_masks_grow_and_shrink():
    random = np.random.default_rng(0)
    mask = (random.random((1, 20, 17)) > 0.8).astype(np.float32)
    for radius in (1, 3):
        for made, edge, choose in (
            (inpainting.grown(mask, radius), 0, np.max),
            (inpainting.shrunk(1 - mask, radius), 1, np.min),
        ):
            given = mask if edge == 0 else 1 - mask
            around = np.pad(given[0], radius, constant_values=edge)
            windows = np.lib.stride_tricks.sliding_window_view(around, (2 * radius + 1, 2 * radius + 1))
            assert (made[0] == choose(windows, axis=(2, 3))).all()
    assert inpainting.grown(mask, 8000).all()
    assert not inpainting.shrunk(mask, 8000).any()
    for name, kernel in inpainting.KERNELS.items():
        for size in (3, 5, 9):
            assert kernel(size).shape == (size,), name
            assert np.isclose(kernel(size).sum(), 1)


def test_a_hole_is_filled_from_around():
    rows, columns = np.mgrid[:40, :48].astype(np.float32)
    smooth = np.stack([rows / 40, columns / 48, np.full_like(rows, 0.5)], -1)
    hole = np.zeros((1, 40, 48), np.float32)
    hole[:, 12:28, 10:30] = 1
    found = inpainting.fill(ROOM, np.where(hole[0, ..., None] > 0, 1, smooth)[None], hole, "navier-stokes", 0)[0]
    kept = hole[0] == 0
    assert np.allclose(found[kept], smooth[kept])
    assert np.abs(found - smooth).max() < 0.25
    assert np.allclose(found[~kept][:, 2], 0.5)
    whole = np.ones((1, 40, 48), np.float32)
    assert np.allclose(inpainting.fill(ROOM, smooth[None], whole, "navier-stokes", 0)[0], smooth)
    assert np.allclose(inpainting.fill(ROOM, smooth[None], whole, "neutral", 0), 0.5)


def test_colours_are_matched():
    random = np.random.default_rng(0)
    ours, theirs = (0.3 + 0.1 * random.random((1, 16, 16, 3)), 0.5 + 0.2 * random.random((1, 24, 16, 3)))
    found = inpainting.match(None, ours.astype(np.float32), theirs.astype(np.float32), None, 1.0)
    assert np.allclose(found.mean((1, 2)), theirs.mean((1, 2)), atol=0.02)
    same = inpainting.match(None, ours.astype(np.float32), ours.astype(np.float32), None, 1.0)
    assert np.allclose(same, ours, atol=1e-4)


@pytest.mark.parametrize(("height", "width"), [(64, 64), (192, 256), (320, 136)])
def test_tiles_lie_over_all_of_a_picture(height, width):
    random = np.random.default_rng(0)
    image = random.random((1, height, width, 3)).astype(np.float32)
    layout = tooling.layout(None, image, 128, 16, 8, 8)
    merged, count = image, np.zeros((height, width))
    for index in range(layout.counts[0] * layout.counts[1]):
        tile = tooling.image_tile(None, image, layout, index)
        merged = tooling.merged(None, merged, layout, index, tile)
        count[layout.rectangle(index)] += tooling.tile_mask(None, layout, index, True)[0]
        changed = tooling.merged(None, image, layout, index, 1 - tile)
        assert (changed != image).any()
        outside = np.ones((height, width), bool)
        outside[layout.rectangle(index)] = False
        assert (changed[0][outside] == image[0][outside]).all()
    assert np.allclose(merged, image, atol=1e-6)
    assert count.min() > 0.2
    assert count.max() <= 4
    with pytest.raises(SettingError, match="tiles"):
        tooling.image_tile(None, image, layout, index + 1)
