"""ControlNet over HTTP: units with all their spellings, maps, lists, and what preprocessors make."""

import io
import json

import numpy as np
import pytest
from PIL import Image, ImageDraw
from served import SMALL, Served, opened, until, write_control, write_models, written

import graphc_images
from graphc_images.control_units import ControlUnit
from graphc_images.hashes import short_hash
from graphc_server.service import Setup

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = write_models(tmp_path_factory.mktemp("webui"), "one")
    (folder / "models" / "ControlNet").mkdir()
    write_control(folder / "models" / "ControlNet" / "Control_Canny.safetensors")
    return folder


@pytest.fixture(scope="module")
def served(models, tmp_path_factory):
    with Served(Setup((models,), tmp_path_factory.mktemp("data"), threads=1)) as running:
        yield running


def picture(size=64):
    made = Image.new("RGB", (size, size), "white")
    ImageDraw.Draw(made).ellipse((8, 16, 40, 48), fill="red")
    return made


UNIT = {"model": "Control_Canny", "module": "canny", "image": written(picture()), "processor_res": 64}


def steered(served, *units, path="txt2img", **fields):
    body = {**SMALL, **fields, "alwayson_scripts": {"ControlNet": {"args": list(units)}}}
    return served.post(f"/sdapi/v1/{path}", body)


def test_a_unit_is_the_library_s_and_its_map_comes_last(served, models):
    made = steered(served, UNIT)
    pipeline = graphc_images.load("one", folders=models, threads=1)
    unit = ControlUnit("Control_Canny", picture(), "canny", processor_res=64)
    (mine,) = pipeline(
        "a red circle", steps=2, seed=1, width=64, height=64, cfg_scale=7.0, sampler="Euler", controls=(unit,)
    )
    assert opened(made["images"][0]).tobytes() == mine.image.tobytes()
    assert len(made["images"]) == 2
    assert set(opened(made["images"][1]).convert("L").get_flattened_data()) == {0, 255}
    assert made["images"][0] != served.paint()["images"][0]
    info = json.loads(made["info"])
    assert len(info["infotexts"]) == len(info["all_seeds"]) == 1
    assert "Module: canny, Model: Control_Canny [" in info["infotexts"][0]


def test_a_map_for_each_unit_that_wants_it_and_for_each_pass(served):
    assert len(steered(served, {**UNIT, "save_detected_map": False}, n_iter=2)["images"]) == 2
    again = steered(served, UNIT, {**UNIT, "module": "none", "weight": 0.3}, enable_hr=True, hr_scale=2, n_iter=2)
    assert [opened(each).size[0] for each in again["images"]] == [128, 128, 64, 64, 128, 128]


SPELLED = {
    "hash and case": {"model": "control_canny [00000000]", "module": "Canny"},
    "file": {"model": "Control_Canny.safetensors"},
    "alias": {"image": None, "input_image": UNIT["image"], "guidance": 1.0, "lowvram": True},
    "object": {"image": {"image": UNIT["image"], "mask": None}},
    "list": {"image": [UNIT["image"], None]},
    "list of objects": {"image": [{"image": UNIT["image"]}]},
    "data": {"image": "data:image/png;base64," + UNIT["image"]},
    "numbers": {"resize_mode": 1, "control_mode": 0, "threshold_a": -1, "threshold_b": -1},
    "words": {"resize_mode": "Scale to Fit (Inner Fit)", "control_mode": "balanced", "hr_option": "Both"},
    "unknown": {"pulid_mode": "Fidelity", "enabled": True, "union_control_type": "Unknown", "ipadapter_input": None},
    "perfect": {"processor_res": -1, "pixel_perfect": True},
}


@pytest.mark.parametrize("name", SPELLED)
def test_a_unit_may_be_spelled_otherwise(served, name):
    fields = {key: value for key, value in {**UNIT, **SPELLED[name]}.items() if value is not None}
    mine, plain = (steered(served, each)["images"] for each in (fields, UNIT))
    assert [opened(each).tobytes() for each in mine] == [opened(each).tobytes() for each in plain]


def test_units_have_effects(served):
    plain, bare = steered(served, UNIT)["images"][0], served.paint()["images"][0]
    wide, faint = written(picture(80).crop((0, 0, 80, 60))), written(Image.new("L", (8, 8), 99))
    changes = (
        {"weight": 0.5}, {"guidance_end": 0.2}, {"control_mode": 1}, {"control_mode": 2}, {"resize_mode": 0, "image": wide},
        {"module": "blur_gaussian"}, {"module": "blur_gaussian", "threshold_a": 1}, {"module": "none"},
        {"effective_region_mask": faint},
    )  # fmt: skip
    made = [steered(served, {**UNIT, **each})["images"][0] for each in changes]
    assert len({opened(each).tobytes() for each in (plain, bare, *made)}) == 2 + len(changes)
    assert steered(served, {**UNIT, "enabled": False})["images"] == [bare]
    nowhere = steered(served, {**UNIT, "effective_region_mask": written(Image.new("L", (8, 8)))})["images"][0]
    assert opened(nowhere).tobytes() == opened(bare).tobytes()


def test_of_a_picture_that_is_changed_no_other_is_needed(served):
    fields = {"init_images": [UNIT["image"]], "denoising_strength": 0.8}
    bare = {name: value for name, value in UNIT.items() if name != "image"}
    made = [steered(served, each, path="img2img", **fields)["images"] for each in (bare, UNIT)]
    assert made[0] == made[1]


def test_what_is_painted_alone_is_followed_alone(served):
    large = Image.new("RGB", (128, 128), "white")
    large.paste(picture(), (32, 32))
    mask = Image.new("L", (128, 128))
    mask.paste(255, (40, 40, 88, 88))
    fields = {
        "init_images": [written(large)], "mask": written(mask), "mask_blur": 0, "inpaint_full_res": True,
        "inpaint_full_res_padding": 8, "inpainting_fill": 1,
    }  # fmt: skip
    seen = {**UNIT, "module": "none", "image": written(large)}
    units = ({**seen, "inpaint_crop_input_image": each} for each in (True, False))
    cropped, whole = (steered(served, each, path="img2img", **fields)["images"][1] for each in units)
    assert np.abs(np.asarray(opened(cropped), int) - np.asarray(large.crop((32, 32, 96, 96)), int)).max() < 2
    assert opened(whole).size == (64, 64)
    assert cropped != whole


REFUSED = {
    "args[0].model: there is no controlnet 'x'": {"model": "x"},
    "You have not selected any ControlNet Model": {"model": "None"},
    "args[0].module": {"module": "openpose_full"},
    "no file": {"module": "/etc/passwd.onnx"},
    "args[0].image": {"image": "x"},
    "args[0].weight: 'x'": {"weight": "x"},
    "args[0].weight": {"weight": 1e300},
    "args[0].guidance_start": {"guidance_start": 1.0, "guidance_end": 0.5},
    "args[0].control_mode": {"control_mode": 7},
    "module: ip-adapter is for IP-Adapters": {"module": "ip-adapter_clip_h"},
    "args[0].ipadapter_input": {"ipadapter_input": ["x"]},
    "args[0].union_control_type": {"union_control_type": "smell"},
    "args[0].advanced_weighting": {"advanced_weighting": "x"},
}


@pytest.mark.parametrize("said", REFUSED)
def test_what_a_unit_cannot_be_is_named(served, said):
    body = {**SMALL, "alwayson_scripts": {"controlnet": {"args": [{**UNIT, **REFUSED[said]}]}}}
    answer = served.client.post("/sdapi/v1/txt2img", json=body)
    name = said.partition(":")[0] if "'x'" in said and "weight" in said else said
    assert (answer.status_code, name in answer.json()["detail"]) == (422, True), answer.text


def test_a_unit_without_any_picture_is_an_error(served):
    bare = {name: value for name, value in UNIT.items() if name != "image"}
    answer = served.client.post(
        "/sdapi/v1/txt2img", json={**SMALL, "alwayson_scripts": {"controlnet": {"args": [bare]}}}
    )
    assert (answer.status_code, "no image" in answer.json()["detail"]) == (422, True), answer.text


def test_lists(served, models):
    path = models / "models" / "ControlNet" / "Control_Canny.safetensors"
    assert served.get("/controlnet/model_list?update=true") == {"model_list": [f"Control_Canny [{short_hash(path)}]"]}
    assert served.get("/controlnet/version")["version"] >= 2
    assert served.get("/controlnet/settings") == {"control_net_unit_count": 3}
    modules = served.get("/controlnet/module_list")
    assert modules["module_detail"]["canny"]["sliders"][1] == {
        "name": "Low Threshold",
        "value": 100,
        "min": 1,
        "max": 255,
    }
    assert set(modules["module_list"]) == set(modules["module_detail"])
    assert (
        "invert (from white bg & black line)" in served.get("/controlnet/module_list?alias_names=true")["module_list"]
    )
    canny = served.get("/controlnet/control_types")["control_types"]["Canny"]
    assert canny["default_option"] == "canny"
    assert canny["default_model"].startswith("Control_Canny [")
    for name in modules["module_list"]:
        masks = [written(Image.new("L", (64, 64), 255))] if "inpaint" in name else []
        asked = {"controlnet_module": name, "controlnet_input_images": [UNIT["image"]], "controlnet_masks": masks}
        found = served.post("/controlnet/detect", asked)
        assert found["info"] == "Success"
        assert len(found["images"]) == 1


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"controlnet_module": "x"}, "Module not available"),
        ({"controlnet_input_images": []}, "No image selected"),
        ({"controlnet_module": "inpaint"}, "requires `controlnet_masks`"),
        ({"controlnet_input_images": ["x"]}, "controlnet_input_images"),
    ],
)
def test_what_cannot_be_detected_is_named(served, fields, said):
    asked = {"controlnet_module": "canny", "controlnet_input_images": [UNIT["image"]], **fields}
    answer = served.client.post("/controlnet/detect", json=asked)
    assert (answer.status_code, said in answer.json()["detail"]) == (422, True), answer.text
    assert served.post("/controlnet/render_openpose_json", [])["info"] == "No pose data detected."


def test_graphcs_own_protocol_has_controls_where_there_are_some(served):
    said = {each["name"]: each for each in served.get("/graphc/v1/parameters")["parameters"]}
    assert said["controls"]["choices"] == ["Control_Canny"]
    unit = {"model": "Control_Canny", "image": written(picture()), "weight": 0.5}
    settings = {**SMALL, "sampler": "Euler", "scheduler": "Automatic", "cfg_scale": 7.0}
    id = served.post("/graphc/v1/jobs", {"settings": {**settings, "controls": [unit]}})["id"]
    until(lambda: served.get(f"/graphc/v1/jobs/{id}")["state"] == "done")
    one = served.get(f"/graphc/v1/pictures/{id}/0")
    assert "Weight: 0.5" in one["labels"]["ControlNet 0"]
    assert "controls" not in one["settings"]  # its picture is not in the text
    arguments = {"args": [{**unit, "enabled": True}]}
    theirs = served.post("/sdapi/v1/txt2img", {**SMALL, "alwayson_scripts": {"controlnet": arguments}})["images"][0]
    found = served.client.get(one["url"]).content
    assert opened(theirs).tobytes() == Image.open(io.BytesIO(found)).tobytes()
    for wrong, says in (
        ({"model": "none"}, "model"),
        ({"weight": 99}, "weight"),
        ({"image": "x"}, "image"),
        ({"module": "y"}, "module"),
    ):
        answer = served.client.post("/graphc/v1/jobs", json={"settings": {"controls": [{**unit, **wrong}]}})
        assert (answer.status_code, says in answer.text) == (422, True), answer.text
