"""What pictures say of how they were made: written, and read back from every kind of file."""

import gzip
import json
import os
import random

import numpy as np
import pytest
from PIL import Image

from graphc_images.describing import model_in, settings_in, settings_of
from graphc_images.errors import ImageError
from graphc_images.pictures.files import EXIF_IFD, USER_COMMENT, Notes, open_picture, read_notes, save_picture
from graphc_images.pictures.graphs import graph_of, parameters_of_graph
from graphc_images.pictures.parameters import read_parameters, write_parameters
from graphc_images.pictures.stealth import hide_text, read_stealth

SETTINGS = {
    "Version": "v1.10.1",
    "Hires prompt": 'a "b": c,\nd',
    "Seed": 965400086,
    "Clip skip": 2,
    "RNG": "GPU",
    "Model": "sd",
    "VAE": None,
    "Sampler": "Euler a",
    "Steps": 20,
    "Size": "512x768",
    "Lora hashes": "a: 12, b: 34",
    "CFG scale": 7.5,
}
LINE = (
    "Steps: 20, Sampler: Euler a, CFG scale: 7.5, Seed: 965400086, Size: 512x768, Model: sd, Clip skip: 2, "
    'Hires prompt: "a \\"b\\": c,\\nd", Lora hashes: "a: 12, b: 34", Version: v1.10.1'
)
TEXT = f"a cat,\nnice\nNegative prompt: bad\nand ugly\n{LINE}"


def test_text_is_in_a1111s_order():
    assert write_parameters("a cat,\nnice", "bad\nand ugly", SETTINGS) == TEXT
    assert write_parameters("a", "", {"Steps": 1, "Clip skip": 1}) == "a\nSteps: 1"


def test_text_is_read_back():
    read = read_parameters(TEXT)
    assert (read.prompt, read.negative_prompt) == ("a cat,\nnice", "bad\nand ugly")
    expected = {name: str(value) for name, value in SETTINGS.items() if value is not None and name != "RNG"}
    assert dict(read.settings) == expected
    assert read.size() == (512, 768)
    assert write_parameters(read.prompt, read.negative_prompt, read.settings) == TEXT


def test_any_settings_are_read_back():
    rng = random.Random(4)
    letters = 'ab,:"\\\n é日'
    for _ in range(500):
        values = ["".join(rng.choice(letters) for _ in range(rng.randrange(1, 9))).strip() for _ in range(5)]
        settings = {f"Key {place}": value for place, value in enumerate(values) if value and value[0] != '"'}
        settings |= {"Steps": "1", "Sampler": "x", "Seed": "2"}
        assert dict(read_parameters(write_parameters("p", "", settings)).settings) == settings


def test_old_texts():
    read = read_parameters(
        "a (b:1.2)\nSteps: 20, Sampler: Euler a, CFG scale: 7, Seed: 1, Size: 512x512, Model hash: 45dee52b"
    )
    meant = read.complete().settings
    assert (meant["Schedule type"], meant["RNG"], meant["Clip skip"], meant["Emphasis"]) == (
        "Automatic",
        "GPU",
        "1",
        "Original",
    )
    assert "Emphasis" not in read_parameters("a b\nSteps: 1, Sampler: x, Seed: 1").complete().settings
    old = read_parameters(
        "a\nSteps: 1, Sampler: x, Seed: 1, Size: 1024x768, First pass size: 0x0, Hypernet: h"
    ).complete()
    assert (old.size(), old.size("Hires resize"), old.prompt) == ((640, 448), (1024, 768), "a<hypernet:h:1.0>")
    for size in ("0x0", f"{'9' * 5000}x1", "999999999x999999999"):
        text = f"a\nSteps: 1, Sampler: x, Seed: 1, Size: {size}, First pass size: 0x0"
        assert all(side > 0 for side in read_parameters(text).complete().size())
    two = read_parameters("a\nb: c, d: e")
    assert (two.prompt, two.settings) == ("a\nb: c, d: e", {})
    assert read_parameters("").prompt == ""
    assert read_parameters("Negative prompt: x\nSteps: 1, Sampler: y, Seed: 2").prompt == ""


@pytest.mark.parametrize("name", ["a.png", "a.jpg", "a.webp", "a.JPEG"])
def test_files_keep_their_notes(tmp_path, name):
    graph = {"3": {"class_type": "KSampler", "inputs": {"seed": 5, "text": "日本, 🐱"}}}
    notes = Notes(TEXT + ", é 🐱", {"prompt": graph, "workflow": {"nodes": []}})
    picture = Image.fromarray(np.arange(16 * 16 * 3, dtype=np.uint8).reshape(16, 16, 3))
    save_picture(picture, tmp_path / name, notes)
    opened, read = open_picture(tmp_path / name)
    assert opened.size == (16, 16)
    assert read == notes
    assert [path.name for path in tmp_path.iterdir()] == [name]
    save_picture(picture, tmp_path / name)
    assert open_picture(tmp_path / name)[1] == Notes()


def test_a_jpeg_has_room_for_few_words(tmp_path, caplog):
    """Its EXIF has 64 KiB: a graph that is longer is left out, and so is a text, but not the picture."""
    picture, path = Image.new("RGB", (8, 8)), tmp_path / "a.jpg"
    for notes, kept, lost in (
        (Notes("a" * 30000, {"prompt": {"1": "b"}}), Notes("a" * 30000, {"prompt": {"1": "b"}}), ""),
        (Notes("a", {"prompt": {"1": "b" * 66000}}), Notes("a"), "the graph"),
        (Notes("a" * 33000), Notes(), "the text"),
    ):
        caplog.clear()
        save_picture(picture, path, notes)
        assert open_picture(path)[1] == kept
        assert (f"{lost} of how it was made is too long for a JPEG" in caplog.text) == bool(lost)


def test_models_are_named_without_folder_and_hash():
    text = "a\nSteps: 2, Model: {}, Refiner: sd_xl_refiner_1.0 [7440042bbd], Refiner switch at: 0.8"
    for model, name in (("one", "one"), ("XL\\two [31e35c80fc]", "two"), ("sd/three.v1", "three.v1")):
        notes = Notes(text.format(model))
        assert model_in(notes) == name
        assert settings_in(notes)["refiner"] == "sd_xl_refiner_1.0"
    graph = {"4": {"class_type": "CheckpointLoaderSimple", "inputs": {"ckpt_name": "XL/four.safetensors"}}}
    assert model_in(Notes("a\nSteps: 2")) is None
    assert model_in(Notes("", {"prompt": graph})) is None, "a graph that paints nothing"


def test_only_comfyuis_graphs(tmp_path):
    save_picture(Image.new("RGB", (4, 4)), tmp_path / "a.png", Notes("", {"prompt": {"1": {}}}))
    assert open_picture(tmp_path / "a.png")[1] == Notes("", {"prompt": {"1": {}}})


def test_user_comments_of_others():
    for raw in (
        b"UNICODE\0" + "é 1".encode("utf-16-le"),
        b"ASCII\0\0\0" + "é 1".encode(),
        "é 1",
        b"\0" * 8 + "é 1".encode(),
    ):
        picture = Image.new("RGB", (2, 2))
        picture.getexif().get_ifd(EXIF_IFD)[USER_COMMENT] = raw
        assert read_notes(picture).parameters == "é 1"


@pytest.mark.parametrize("orientation", range(10))
def test_pictures_are_turned_as_cameras_say(tmp_path, orientation):
    from PIL import ImageOps

    picture = Image.fromarray(np.arange(5 * 3 * 3, dtype=np.uint8).reshape(5, 3, 3))
    exif = picture.getexif()
    exif[0x0112] = orientation
    picture.save(tmp_path / "a.png", exif=exif)
    expected = ImageOps.exif_transpose(Image.open(tmp_path / "a.png"))
    opened, _ = open_picture(tmp_path / "a.png")
    np.testing.assert_array_equal(np.asarray(opened), np.asarray(expected))


def test_gifs(tmp_path):
    Image.new("RGB", (4, 4)).save(tmp_path / "a.gif", comment=TEXT.encode())
    assert open_picture(tmp_path / "a.gif")[1].parameters == TEXT


def test_novelai():
    picture = Image.new("RGB", (4, 4))
    comment = {
        "steps": 28,
        "sampler": "k_euler_ancestral",
        "scale": 11,
        "seed": 5,
        "width": 512,
        "height": 768,
        "uc": "bad",
    }
    picture.info |= {"Software": "NovelAI", "Description": "a cat", "Comment": json.dumps(comment)}
    read = read_parameters(read_notes(picture).parameters)
    assert (read.prompt, read.negative_prompt, read.size()) == ("a cat", "bad", (512, 768))
    assert read.settings["Sampler"] == "Euler a"


def test_hidden_texts():
    noise = np.random.default_rng(0).integers(0, 256, (60, 40, 3), dtype=np.uint8)
    hidden = hide_text(Image.fromarray(noise), TEXT)
    assert read_stealth(hidden) == TEXT
    assert read_notes(hidden).parameters == TEXT
    assert read_stealth(Image.fromarray(noise)) == ""
    packed = gzip.compress(TEXT.encode())
    for name, data, channels in (
        (b"stealth_rgbcomp", packed, 3),
        (b"stealth_rgbinfo", TEXT.encode(), 3),
        (b"stealth_pnginfo", TEXT.encode(), 1),
    ):
        bits = np.unpackbits(np.frombuffer(name + (len(data) * 8).to_bytes(4) + data, np.uint8))
        pixels = np.full((100, 60, 4), 255, np.uint8)
        lines = pixels.transpose(1, 0, 2)[:, :, :3] if channels == 3 else pixels.transpose(1, 0, 2)[:, :, 3:]
        flat = lines.reshape(-1).copy()
        flat[: len(bits)] = flat[: len(bits)] & 254 | bits
        lines[...] = flat.reshape(lines.shape)
        picture = Image.fromarray(pixels) if channels == 1 else Image.fromarray(pixels[:, :, :3])
        assert read_stealth(picture) == TEXT
    cut = hidden.crop((0, 0, 5, 60))
    assert read_stealth(cut) == ""
    assert read_stealth(Image.new("RGBA", (1, 1))) == ""


def test_what_cannot_be_read_or_written(tmp_path):
    (tmp_path / "a.png").write_bytes(b"\x89PNG\r\n\x1a\nnothing")
    with pytest.raises(ImageError, match=r"a\.png: the picture cannot be read: [^<]+$"):
        open_picture(tmp_path / "a.png")
    with pytest.raises(ImageError, match=r"a\.bmp: pictures are written as"):
        save_picture(Image.new("RGB", (2, 2)), tmp_path / "a.bmp")
    with pytest.raises(ImageError, match="cannot be written"):
        save_picture(Image.new("RGB", (2, 2)), tmp_path / "no" / "a.png")
    os.mkfifo(tmp_path / "pipe.png")
    with pytest.raises(ImageError, match="not a regular file"):
        open_picture(tmp_path / "pipe.png")
    (tmp_path / "link.png").symlink_to(tmp_path / "b.png")
    save_picture(Image.new("RGB", (8, 8)), tmp_path / "link.png")
    assert (tmp_path / "link.png").is_symlink()
    save_picture(Image.new("RGB", (8, 8)), tmp_path / "b.png", Notes("x" * 100))
    whole = (tmp_path / "b.png").read_bytes()
    for size in range(len(whole)):
        (tmp_path / "b.png").write_bytes(whole[:size])
        try:
            open_picture(tmp_path / "b.png")
        except ImageError:
            continue


@pytest.mark.filterwarnings("ignore")  # pillow's, of damaged EXIF
def test_damaged_files_are_errors_or_pictures(tmp_path):
    rng = random.Random(1)
    for name in ("a.png", "a.jpg", "a.webp"):
        path = tmp_path / name
        save_picture(Image.new("RGB", (8, 8)), path, Notes(TEXT, {"prompt": {"1": {}}}))
        whole = path.read_bytes()
        for _ in range(100):
            damaged = bytearray(whole)
            for _ in range(rng.randrange(1, 5)):
                damaged[rng.randrange(len(damaged))] = rng.randrange(256)
            path.write_bytes(damaged[: rng.randrange(1, len(damaged) * 4)])
            try:
                read_parameters(open_picture(path)[1].parameters).complete()
            except ImageError:
                continue


def test_graphs_say_how_a_picture_was_made():
    graph = graph_of(
        *("a cat", "bad"),
        **{"checkpoint": "sd.safetensors", "width": 512, "height": 768, "seed": 5, "steps": 20, "cfg": 7.5},
        **{"sampler": "dpmpp_2m", "scheduler": "karras"},
    )
    read = parameters_of_graph(graph)
    assert (read.prompt, read.negative_prompt, read.size()) == ("a cat", "bad", (512, 768))
    assert dict(read.settings) == {
        **{"Steps": "20", "Sampler": "dpmpp_2m", "Schedule type": "karras", "CFG scale": "7.5", "Seed": "5"},
        **{"Model": "sd.safetensors", "Size": "512x768"},
    }
    graph["10"] = {
        "class_type": "LoraLoader",
        "inputs": {"lora_name": "x.safetensors", "strength_model": 0.5, "model": ["4", 0]},
    }
    graph["3"]["inputs"] |= {"model": ["10", 0], "denoise": 0.6}
    read = parameters_of_graph(graph)
    assert (read.prompt, read.settings["Denoising strength"]) == ("a cat<lora:x:0.5:0.5>", "0.6")


def test_graphs_of_custom_samplers():
    graph = {
        "1": {
            "class_type": "SamplerCustomAdvanced",
            "inputs": {"noise": ["2", 0], "guider": ["3", 0], "sampler": ["4", 0], "sigmas": ["5", 0]},
        },
        "2": {"class_type": "RandomNoise", "inputs": {"noise_seed": 9}},
        "3": {"class_type": "BasicGuider", "inputs": {"conditioning": ["6", 0]}},
        "4": {"class_type": "KSamplerSelect", "inputs": {"sampler_name": "euler"}},
        "5": {"class_type": "BasicScheduler", "inputs": {"scheduler": "simple", "steps": 4, "denoise": 1.0}},
        "6": {"class_type": "FluxGuidance", "inputs": {"guidance": 3.5, "conditioning": ["7", 0]}},
        "7": {"class_type": "CLIPTextEncode", "inputs": {"text": "a dog"}},
    }
    read = parameters_of_graph(graph)
    assert read.prompt == "a dog"
    assert dict(read.settings) == {
        "Seed": "9",
        "Sampler": "euler",
        "Schedule type": "simple",
        "Steps": "4",
        "Distilled CFG Scale": "3.5",
    }


def common_graph(**more):
    return graph_of(
        *("a cat", "bad"), checkpoint="sd.safetensors", width=512, height=768, seed=5, steps=20, cfg=7.5,
        sampler="dpmpp_2m", scheduler="karras", **more,
    )  # fmt: skip


def test_a_chain_of_loras_is_read_in_its_order():
    graph = common_graph(loras=[("a/one.safetensors", 0.5, 0.25), ("two.safetensors", 1.0, 1.0)], clip_skip=2)
    read = parameters_of_graph(graph)
    assert read.prompt == "a cat<lora:a/one:0.25:0.5><lora:two:1.0:1.0>"
    assert read.settings["Clip skip"] == "2"
    model_only = {"lora_name": "x.safetensors", "strength_model": 0.5, "model": ["4", 0]}
    graph = common_graph()
    graph["10"] = {"class_type": "LoraLoaderModelOnly", "inputs": model_only}
    graph["3"]["inputs"]["model"] = ["10", 0]
    assert parameters_of_graph(graph).prompt == "a cat<lora:x:0:0.5>"


def test_a_second_pass_is_that_of_hires():
    graph = common_graph()
    upscale = {"samples": ["3", 0], "upscale_method": "nearest-exact", "scale_by": 1.5}
    graph["10"] = {"class_type": "LatentUpscaleBy", "inputs": upscale}
    again = {"latent_image": ["10", 0], "denoise": 0.5, "steps": 14, "sampler_name": "euler", "seed": ["12", 0]}
    graph["11"] = {"class_type": "KSampler", "inputs": {**graph["3"]["inputs"], **again}}
    graph["12"] = {"class_type": "PrimitiveInt", "inputs": {"value": 8}}
    settings = settings_of(parameters_of_graph(graph))
    assert (settings["steps"], settings["sampler"], settings["seed"]) == (20, "dpmpp_2m", 5)
    assert (settings["width"], settings["height"], settings["hires_scale"]) == (512, 768, 1.5)
    assert (settings["hires_steps"], settings["hires_sampler"]) == (14, "euler")
    assert (settings["hires_denoising_strength"], settings["hires_upscaler"]) == (0.5, "Latent (nearest-exact)")
    assert not {"hires_cfg_scale", "denoising_strength"} & settings.keys()
    graph["10"] = {
        "class_type": "LatentUpscale",
        "inputs": {
            "samples": ["3", 0],
            "upscale_method": "bilinear",
            "width": 1024,
            "height": 1536,
            "crop": "disabled",
        },
    }
    settings = settings_of(parameters_of_graph(graph))
    assert (settings["width"], settings["hires_width"], settings["hires_upscaler"]) == (512, 1024, "Latent")


def test_a_sampler_behind_another_is_a_refiner():
    graph = common_graph()
    graph["3"]["class_type"] = "KSamplerAdvanced"
    graph["3"]["inputs"] |= {"noise_seed": graph["3"]["inputs"].pop("seed"), "start_at_step": 0, "end_at_step": 16}
    graph["10"] = {"class_type": "CheckpointLoaderSimple", "inputs": {"ckpt_name": "refiner.safetensors"}}
    more = {"model": ["10", 0], "latent_image": ["3", 0], "start_at_step": 16, "end_at_step": 10000}
    graph["11"] = {"class_type": "KSamplerAdvanced", "inputs": {**graph["3"]["inputs"], **more}}
    said = parameters_of_graph(graph).settings
    assert (said["Steps"], said["Seed"], said["Model"]) == ("20", "5", "sd.safetensors")
    assert (said["Refiner"], said["Refiner switch at"]) == ("refiner.safetensors", "0.8")


def test_graphs_that_are_none():
    assert parameters_of_graph({}) is None
    assert parameters_of_graph({"1": 3, "2": {"class_type": "SaveImage"}}) is None
    loop = {
        "1": {"class_type": "KSampler", "inputs": {"model": ["1", 0], "positive": ["9", 0], "seed": [], "steps": None}}
    }
    assert parameters_of_graph(loop).prompt == ""
    rng = random.Random(5)
    values = [["1", 0], ["2", 0], ["3", 0], [], "x", 3, None, {}, True, [[]]]
    for _ in range(500):
        inputs = {
            name: rng.choice(values)
            for name in (
                "model",
                "positive",
                "seed",
                "latent_image",
                "guider",
                "text",
                "denoise",
                "lora_name",
                "width",
                "scale_by",
            )
        }
        parameters_of_graph(
            {
                "1": {"class_type": "KSampler", "inputs": inputs},
                "3": {"class_type": rng.choice(["KSamplerAdvanced", "LatentUpscale"]), "inputs": dict(inputs)},
                "2": rng.choice([inputs, {"inputs": inputs, "class_type": None}]),
            }
        )
