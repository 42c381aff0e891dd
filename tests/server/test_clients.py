"""The requests of known clients, in the order in which they send them, with the fields that they read from the answers."""

import json
import threading

import httpx
import pytest
from PIL import Image
from served import Served, opened, until, write_models, written

from graphc_server.service import Setup

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

USER = ("ann", "secret")


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    return write_models(tmp_path_factory.mktemp("webui"), "one", "two")


@pytest.fixture(scope="module")
def served(models, tmp_path_factory):
    with Served(Setup((models,), tmp_path_factory.mktemp("data"), threads=1, users=dict([USER]))) as running:
        running.client.close()
        running.client = httpx.Client(base_url=running.url, timeout=60, auth=USER)
        yield running


def test_silly_tavern(served):
    """Its server: ping, lists, a model that is set and waited for, a picture with its second pass, and an interrupt."""
    without = httpx.get(f"{served.url}/sdapi/v1/options")
    assert without.status_code == 401
    assert without.headers["www-authenticate"].startswith("Basic")
    options = served.get("/sdapi/v1/options")
    assert options["sd_model_checkpoint"]
    assert "forge_preset" not in options
    assert all(each["name"] for each in served.get("/sdapi/v1/samplers"))
    assert all(each["name"] for each in served.get("/sdapi/v1/schedulers"))
    assert {"Latent"} <= {each["name"] for each in served.get("/sdapi/v1/latent-upscale-modes")}
    assert {"None"} <= {each["name"] for each in served.get("/sdapi/v1/upscalers")}
    assert served.get("/sdapi/v1/sd-vae") == []
    titles = [each["title"] for each in served.get("/sdapi/v1/sd-models")]
    served.post("/sdapi/v1/options", {"sd_model_checkpoint": titles[1]})
    until(lambda: (found := served.get("/sdapi/v1/progress"))["progress"] == 0 and found["state"]["job_count"] == 0)
    assert served.get("/sdapi/v1/options")["sd_model_checkpoint"] == titles[1]
    asked = {
        "prompt": "a red circle", "negative_prompt": "", "sampler_name": "Euler a", "scheduler": "Automatic", "steps": 2,
        "cfg_scale": 7, "width": 64, "height": 64, "restore_faces": False, "enable_hr": True, "hr_upscaler": "Latent",
        "hr_scale": 1.5, "hr_additional_modules": [], "denoising_strength": 0.7, "hr_second_pass_steps": 0, "seed": -1,
        "clip_skip": 1, "override_settings": {"CLIP_stop_at_last_layers": 1}, "override_settings_restore_afterwards": True,
        "do_not_save_grid": True, "do_not_save_samples": True, "save_images": False, "send_images": True,
    }  # fmt: skip
    assert opened(served.post("/sdapi/v1/txt2img", asked)["images"][0]).size == (96, 96)
    assert served.client.post("/sdapi/v1/interrupt").json() == {}
    served.post("/sdapi/v1/options", {"sd_model_checkpoint": titles[0]})


def test_open_webui(served):
    """It reads the options, changes one of them in the whole object, and sends that back; then the picture."""
    options = served.get("/sdapi/v1/options")
    found = [(each["title"], each["model_name"]) for each in served.get("/sdapi/v1/sd-models")]
    options["sd_model_checkpoint"] = found[0][0]
    served.post("/sdapi/v1/options", options)
    asked = {"prompt": "a cat", "batch_size": 2, "width": 64, "height": 64, "steps": 2, "negative_prompt": "dogs"}
    made = served.post("/sdapi/v1/txt2img", {**asked, "cfg_scale": 7.0, "sampler_name": "Euler", "scheduler": "Karras"})
    assert len(made["images"]) == 2
    assert json.loads(made["info"])["prompt"] == "a cat"
    bearer = httpx.Client(base_url=served.url, headers={"authorization": f"Bearer {USER[1]}"}, timeout=60)
    answer = bearer.post("/v1/images/generations", json={"model": "", "prompt": "a cat", "n": 1, "size": "64x64"})
    assert opened(answer.json()["data"][0]["b64_json"]).size == (64, 64)
    bearer.close()


def test_easy_diffusion(served):
    """It waits for the ping, looks for its task while the picture is painted, and paints parts of pictures."""
    assert served.client.get("/internal/ping").json() == {}
    for name in ("refresh-checkpoints", "refresh-vae-and-text-encoders"):
        served.post(f"/sdapi/v1/{name}")
    served.post("/sdapi/v1/options", {"sd_model_checkpoint": "one.safetensors", "forge_additional_modules": []})
    asked = {
        "force_task_id": "ed-1", "prompt": "a red circle", "negative_prompt": "", "seed": 3, "steps": 300, "cfg_scale": 7.5,
        "distilled_cfg_scale": 3.5, "sampler_name": "Euler a", "scheduler": "simple", "width": 64, "height": 64,
        "batch_size": 1, "n_iter": 1, "tiling": False, "ref_images": [], "lora_paths": [], "alwayson_scripts": {},
    }  # fmt: skip
    answers = []
    thread = threading.Thread(target=lambda: answers.append(served.post("/sdapi/v1/txt2img", asked)))
    thread.start()
    seen = {"id_task": "ed-1", "id_live_preview": -1, "live_preview": True}
    told = until(lambda: (found := served.post("/internal/progress", seen))["live_preview"] and found)
    assert (told["active"], told["completed"], told["queued"]) == (True, False, False)
    assert 0 < told["progress"] <= 1
    assert told["live_preview"].startswith("data:image/")
    served.client.post("/sdapi/v1/interrupt")
    thread.join()
    assert len(answers[0]["images"]) == 1
    assert served.post("/internal/progress", seen)["completed"]
    picture, mask = written(Image.new("RGB", (64, 64), "red")), written(Image.new("L", (64, 64), 255))
    of_picture = {
        "init_images": [picture], "mask": mask, "denoising_strength": 0.8, "inpainting_fill": 1, "inpaint_full_res": 0,
        "inpaint_full_res_padding": 32, "resize_mode": 1, "mask_blur": 4,
    }  # fmt: skip
    made = served.post("/sdapi/v1/img2img", {**asked, **of_picture, "steps": 2, "force_task_id": "ed-2"})
    assert opened(made["images"][0]).size == (64, 64)
    larger = {"upscaler_1": "Lanczos", "upscaling_resize": 2, "imageList": [{"data": picture, "name": "0"}]}
    assert opened(served.post("/sdapi/v1/extra-batch-images", larger)["images"][0]).size == (128, 128)
    asked_of = {"controlnet_module": "canny", "controlnet_input_images": [picture], "controlnet_processor_res": 64}
    assert opened(served.post("/controlnet/detect", asked_of)["images"][0]).size == (64, 64)


def test_plugins_of_painting_programs(served):
    """Photoshop's, Krita's and GIMP's for A1111: lists at their start, then a part of a picture with ControlNet's lists."""
    for path in (
        "cmd-flags",
        "options",
        "samplers",
        "sd-models",
        "upscalers",
        "prompt-styles",
        "loras",
        "embeddings",
        "scripts",
    ):
        assert served.get(f"/sdapi/v1/{path}") is not None
    assert served.get("/controlnet/version")["version"] >= 2
    assert served.get("/controlnet/model_list") == {"model_list": []}
    assert "canny" in served.get("/controlnet/module_list?alias_names=false")["module_list"]
    assert served.get("/controlnet/control_types")["control_types"]["All"]["model_list"] == ["None"]
    picture = "data:image/png;base64," + written(Image.new("RGBA", (96, 64), (255, 0, 0, 255)))
    mask = Image.new("L", (96, 64))
    mask.paste(255, (32, 16, 64, 48))
    asked = {
        "prompt": "a door", "init_images": [picture], "mask": "data:image/png;base64," + written(mask), "mask_blur": 2,
        "inpainting_fill": 2, "inpaint_full_res": True, "inpaint_full_res_padding": 8, "inpainting_mask_invert": 0,
        "include_init_images": True, "steps": 2, "width": 64, "height": 64, "sampler_index": "DPM++ 2M Karras", "eta": 0,
        "alwayson_scripts": {"controlnet": {"args": [{"enabled": False, "module": "none", "model": "None"}]}},
    }  # fmt: skip
    made = served.post("/sdapi/v1/img2img", asked)
    assert opened(made["images"][0]).size == (96, 64)
    assert made["parameters"]["init_images"] == [picture]
    info = served.post("/sdapi/v1/png-info", {"image": "data:image/png;base64," + made["images"][0]})
    assert info["parameters"]["Inpaint area"] == "Only masked"
