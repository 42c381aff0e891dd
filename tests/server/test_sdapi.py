"""A1111's API, by its real client and by requests as other clients send them."""

import json
import threading

import pytest
from PIL import Image
from served import SMALL, Served, opened, pixels, pixels_of, until, write_models, written

import graphc_images
from graphc_server.service import Setup

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    return write_models(tmp_path_factory.mktemp("webui"), "one", "two")


@pytest.fixture(scope="module")
def served(models, tmp_path_factory):
    with Served(Setup((models,), tmp_path_factory.mktemp("data"), threads=2)) as running:
        yield running


def test_a_prompt_alone_is_enough(served):
    made = served.post(
        "/sdapi/v1/txt2img", {"prompt": "a", "override_settings": {}, "steps": 1, "width": 64, "height": 64}
    )
    assert opened(made["images"][0]).size == (64, 64)
    assert json.loads(made["info"])["prompt"] == "a"


def test_pictures_are_those_of_the_library(served, models):
    pipeline = graphc_images.load("one", folders=models)
    asked = {"cfg_scale": 7.0, "sampler": "DPM++ 2M Karras"}
    (mine,) = pipeline("a red circle", steps=2, seed=1, width=64, height=64, **asked)
    made = served.paint(sampler_name="DPM++ 2M Karras")
    assert opened(made["images"][0]).tobytes() == mine.image.tobytes()
    assert served.paint(sampler_name="DPM++ 2M", scheduler="karras")["images"] == made["images"]
    assert served.paint(sampler_index="k_dpmpp_2m")["images"] != served.paint(seed=2)["images"]


def test_a_batch_is_as_many_single_requests(served):
    together = served.paint(batch_size=2, n_iter=2)
    assert json.loads(together["info"])["all_seeds"] == [1, 2, 3, 4]
    singles = [served.paint(seed=seed)["images"][0] for seed in (1, 2, 3, 4)]
    assert [opened(each).tobytes() for each in together["images"]] == [opened(each).tobytes() for each in singles]


def test_an_infotext_makes_it_again(served):
    first = served.paint(seed=7, cfg_scale=3, negative_prompt="blue", sampler_name="Euler a", n_iter=1)
    told = served.post("/sdapi/v1/png-info", {"image": "data:image/png;base64," + first["images"][0]})
    assert told["parameters"]["Seed"] == "7"
    assert told["info"] == told["items"]["parameters"] == json.loads(first["info"])["infotexts"][0]
    again = served.post("/sdapi/v1/txt2img", {"infotext": told["info"]})
    assert again["images"] == first["images"]
    other = served.post("/sdapi/v1/txt2img", {"infotext": told["info"], "seed": 8})
    assert json.loads(other["info"])["seed"] == 8
    assert json.loads(other["info"])["cfg_scale"] == 3


def test_from_a_picture_and_a_mask(served):
    image, mask = Image.new("RGB", (64, 64), "red"), Image.new("L", (64, 64))
    mask.paste(255, (0, 0, 32, 64))
    fields = {**SMALL, "init_images": [written(image)], "mask": written(mask), "mask_blur": 0, "inpainting_fill": 1}
    made = served.post("/sdapi/v1/img2img", {**fields, "inpaint_full_res": False})
    kept = opened(made["images"][0]).crop((40, 0, 64, 64))
    assert kept.getcolors() == [(24 * 64, (255, 0, 0))]
    assert made["parameters"]["init_images"] is None
    turned = served.post("/sdapi/v1/img2img", {**fields, "inpaint_full_res": False, "inpainting_mask_invert": 1})
    assert opened(turned["images"][0]).crop((0, 0, 24, 64)).getcolors() == [(24 * 64, (255, 0, 0))]
    assert "Inpaint area: Only masked" in json.loads(served.post("/sdapi/v1/img2img", fields)["info"])["infotexts"][0]


def half_painted(**fields):
    image, mask = Image.new("RGB", (64, 64), "red"), Image.new("L", (64, 64))
    mask.paste(255, (0, 0, 32, 64))
    return {
        **SMALL,
        "init_images": [written(image)],
        "mask": written(mask),
        "mask_blur": 0,
        "inpaint_full_res": False,
        **fields,
    }


def test_masks_come_behind_their_pictures(served):
    parts = {"return_mask": True, "return_mask_composite": True}
    plain = served.post("/sdapi/v1/img2img", half_painted(n_iter=2))
    made = served.post("/sdapi/v1/img2img", half_painted(n_iter=2, override_settings=parts))
    assert pixels(*made["images"][::3]) == pixels_of(plain)
    info = json.loads(made["info"])
    assert info["all_seeds"] == [1, 2]
    assert len(info["infotexts"]) == 2
    picture, mask, painted = (opened(each) for each in made["images"][:3])
    assert (mask.mode, painted.mode) == ("L", "RGBA")
    assert mask.crop((0, 0, 32, 64)).getcolors() == [(32 * 64, 255)]
    assert mask.crop((32, 0, 64, 64)).getcolors() == [(32 * 64, 0)]
    assert painted.getchannel("A").tobytes() == mask.tobytes()
    assert painted.convert("RGB").crop((0, 0, 32, 64)).tobytes() == picture.crop((0, 0, 32, 64)).tobytes()
    jpegs = served.post("/sdapi/v1/img2img", half_painted(override_settings={**parts, "samples_format": "jpg"}))
    assert [opened(each).format for each in jpegs["images"]] == ["JPEG"] * 3
    assert len(served.paint(override_settings=parts)["images"]) == 1  # nothing is masked


def test_masks_are_as_soft_as_is_asked_each_way(served):
    fields = half_painted(mask_blur=None, mask_blur_x=4, mask_blur_y=0, override_settings={"return_mask": True})
    mask = opened(served.post("/sdapi/v1/img2img", fields)["images"][1])
    assert 0 < mask.getpixel((33, 32)) < 255
    text = json.loads(served.post("/sdapi/v1/img2img", fields)["info"])["infotexts"][0]
    assert "Mask blur: 4, Mask blur down: 0" in text


def test_a_grid_comes_first_where_pictures_are_kept(served):
    kept = served.paint(n_iter=3, save_images=True)
    assert json.loads(kept["info"])["index_of_first_image"] == 1
    grid, *single = (opened(each) for each in kept["images"])
    assert grid.size == (128, 128)
    assert [each.size for each in single] == [(64, 64)] * 3
    assert grid.crop((64, 0, 128, 64)).tobytes() == single[1].tobytes()
    assert grid.crop((64, 64, 128, 128)).getcolors() == [(64 * 64, (0, 0, 0))]
    for fields in ({"do_not_save_grid": True}, {"override_settings": {"return_grid": False}}, {"n_iter": 1}):
        made = served.paint(**{"n_iter": 3, "save_images": True, **fields})
        assert json.loads(made["info"])["index_of_first_image"] == 0
        assert len(made["images"]) == fields.get("n_iter", 3)


def test_networks_are_left_out(served):
    plain = served.paint(prompt="a red circle")
    assert pixels_of(served.paint(prompt="a red circle<lora:nobody:1>", disable_extra_networks=True)) == pixels_of(
        plain
    )
    made = json.loads(served.paint(prompt="a red circle<lora:nobody:1>")["info"])
    assert "nobody" in made["comments"][0]


def test_texts_leave_out_what_options_say(served):
    made = served.paint(override_settings={"add_model_name_to_info": False, "add_version_to_infotext": False})
    info = json.loads(made["info"])
    assert "Model: " not in info["infotexts"][0]
    assert "Version" not in opened(made["images"][0]).text["parameters"]
    assert info["sd_model_name"] == "one"


def test_old_ways(served):
    """Each changes the picture, and stands in its text: sent again, that makes the same one."""
    long = "red circle, " + "green square " * 40
    for fields, options in (
        ({"prompt": "(red:1.5) circle"}, {"use_old_emphasis_implementation": True}),
        ({"prompt": "[red:blue:1.5] circle", "steps": 4}, {"use_old_scheduling": True}),
        ({"prompt": long, "negative_prompt": "ugly"}, {"pad_cond_uncond": True}),
        ({"prompt": long, "negative_prompt": "ugly"}, {"pad_cond_uncond_v0": True}),
        ({"steps": 4}, {"use_downcasted_alpha_bar": True}),
        ({"sampler_name": "DPM++ SDE", "steps": 4}, {"no_dpmpp_sde_batch_determinism": True}),
        ({"negative_prompt": "ugly", "steps": 4, "s_min_uncond": 15}, {"s_min_uncond_all": True}),
        (
            {"refiner_checkpoint": "two", "refiner_switch_at": 0.4, "steps": 6, "scheduler": "Karras"},
            {"refiner_switch_by_sample_steps": True},
        ),
        (
            {"refiner_checkpoint": "two", "refiner_switch_at": 0.4, "steps": 4, "enable_hr": True, "hr_scale": 1.5},
            {"hires_fix_refiner_pass": "both passes"},
        ),
    ):
        made = served.paint(**fields, override_settings=options)
        assert pixels_of(made) != pixels_of(served.paint(**fields)), options
        again = served.post("/sdapi/v1/txt2img", {"infotext": json.loads(made["info"])["infotexts"][0]})
        assert pixels_of(again) == pixels_of(made), options
    assert pixels_of(served.paint(override_settings={"enable_batch_seeds": False})) == pixels_of(served.paint())


def test_the_size_of_a_second_pass_as_it_was(served):
    """With the old option, the size that is asked for is the second pass's."""
    fields = {"enable_hr": True, "width": 768, "height": 512, "steps": 1, "hr_second_pass_steps": 1}
    made = served.paint(**fields, override_settings={"use_old_hires_fix_width_height": True})
    assert opened(made["images"][0]).size == (768, 512)
    assert "Size: 640x448, " in json.loads(made["info"])["infotexts"][0]


def test_modules_of_a_second_pass(served, models):
    from safetensors.torch import load_file, save_file

    (models / "models" / "VAE").mkdir(exist_ok=True)
    own = {
        name.removeprefix("first_stage_model."): each
        for name, each in load_file(models / "models" / "Stable-diffusion" / "two.safetensors").items()
        if name.startswith("first_stage_model.")
    }
    save_file(own, models / "models" / "VAE" / "fine.safetensors")
    again = {"enable_hr": True, "hr_scale": 1.5}
    plain = pixels_of(served.paint(**again))
    for same in ([], ["Use same choices"], None):
        assert pixels_of(served.paint(**again, hr_additional_modules=same)) == plain
    served.post("/sdapi/v1/refresh-vae")
    made = served.paint(**again, hr_additional_modules=["fine.safetensors"])
    assert pixels_of(made) != plain
    assert "Hires Module 1: fine" in json.loads(made["info"])["infotexts"][0]
    wrong = served.client.post("/sdapi/v1/txt2img", json={**SMALL, **again, "hr_additional_modules": ["no such"]})
    assert wrong.status_code == 422
    assert "hr_additional_modules: there is no autoencoder or text encoder 'no such'" in wrong.text
    (models / "models" / "VAE" / "fine.safetensors").unlink()
    served.post("/sdapi/v1/refresh-vae")


def test_a_lora_that_appears_is_used(served, models):
    """Also by a model that is loaded already."""
    from safetensors.torch import save_file

    named = {"prompt": "a red circle<lora:late:1>"}
    plain = served.paint(**named)
    lora = "lora_te_text_model_encoder_layers_0_self_attn_q_proj"
    tensors = {f"{lora}.lora_down.weight": torch.ones(4, 48), f"{lora}.lora_up.weight": torch.randn(48, 4)}
    (models / "models" / "Lora").mkdir(exist_ok=True)
    save_file(tensors, models / "models" / "Lora" / "late.safetensors")
    served.post("/sdapi/v1/refresh-loras")
    assert pixels_of(served.paint(**named)) != pixels_of(plain)
    (models / "models" / "Lora" / "late.safetensors").unlink()
    served.post("/sdapi/v1/refresh-loras")
    assert pixels_of(served.paint(**named)) == pixels_of(plain)


def test_a_second_pass(served):
    made = served.paint(
        enable_hr=True, hr_scale=1.5, denoising_strength=0.6, hr_upscaler="Latent", hr_second_pass_steps=2
    )
    assert opened(made["images"][0]).size == (96, 96)
    text = json.loads(made["info"])["infotexts"][0]
    assert "Hires upscale: 1.5, Hires steps: 2" in text
    assert "Denoising strength: 0.6" in text


def test_options_that_samplers_and_models_read(served):
    for sampler, options in (
        ("UniPC", {"uni_pc_variant": "bh2"}), ("UniPC", {"uni_pc_order": 1}), ("UniPC", {"uni_pc_skip_type": "time_quadratic"}),
        ("UniPC", {"uni_pc_lower_order_final": False}), ("Euler", {"sgm_noise_multiplier": True}),
        ("Euler", {"sd_noise_schedule": "Zero Terminal SNR"}),
    ):  # fmt: skip
        asked = {"sampler_name": sampler, "steps": 4}
        made = served.paint(**asked, override_settings=options)
        assert pixels_of(made) != pixels_of(served.paint(**asked)), options
        again = served.post("/sdapi/v1/txt2img", {"infotext": json.loads(made["info"])["infotexts"][0]})
        assert pixels_of(again) == pixels_of(made), options
    karras = {"scheduler": "Karras", "steps": 4}
    old = served.paint(**karras, override_settings={"use_old_karras_scheduler_sigmas": True})
    said = {"sigma_min": 0.1, "sigma_max": 10}
    assert (
        pixels_of(old) == pixels_of(served.paint(**karras, override_settings=said)) != pixels_of(served.paint(**karras))
    )
    beta = {"scheduler": "Beta", "steps": 4}
    assert pixels_of(served.paint(**beta, override_settings={"beta_dist_alpha": 0.9})) != pixels_of(
        served.paint(**beta)
    )
    long = {"prompt": "red circle, " + "green square " * 30 + "blue, " + "white " * 16}
    assert pixels_of(served.paint(**long, override_settings={"comma_padding_backtrack": 0})) != pixels_of(
        served.paint(**long)
    )
    of_others = {"sdxl_crop_top": 64, "inpainting_mask_weight": 0.5}
    assert pixels_of(served.paint(override_settings=of_others)) == pixels_of(served.paint())


def test_other_models_go_on(served, models):
    asked = {"steps": 4, "refiner_checkpoint": "two", "refiner_switch_at": 0.5}
    pipeline = graphc_images.load("one", folders=models, threads=1)
    plain = {"steps": 4, "seed": 1, "width": 64, "height": 64, "cfg_scale": 7.0, "sampler": "Euler"}
    (mine,) = pipeline("a red circle", **plain, refiner="two", refiner_switch_at=0.5)
    made = served.paint(**asked)
    assert pixels_of(made) == [mine.image.tobytes()]
    assert "Refiner: two.safetensors, Refiner switch at: 0.5" in json.loads(made["info"])["infotexts"][0]
    script = {"alwayson_scripts": {"Refiner": {"args": [True, "two.safetensors", 0.5]}}}
    assert pixels_of(served.paint(steps=4, **script)) == pixels_of(made)
    again = {"enable_hr": True, "hr_scale": 1.5, "steps": 2}
    found = served.paint(**again, hr_checkpoint_name="two")
    assert pixels_of(found) != pixels_of(served.paint(**again))
    assert "Hires checkpoint: two.safetensors" in json.loads(found["info"])["infotexts"][0]
    assert pixels_of(served.paint(**again, hr_checkpoint_name="one")) == pixels_of(served.paint(**again))


def test_text_encoders_of_their_own(served, models):
    from safetensors.torch import save_file
    from small_checkpoint import small_modules

    path = models / "models" / "text_encoder" / "other.safetensors"
    path.parent.mkdir()
    text = small_modules(7)[2].state_dict()
    save_file({name: array.contiguous() for name, array in text.items()}, path)
    served.post("/sdapi/v1/refresh-vae-and-text-encoders")
    assert {each["model_name"] for each in served.get("/sdapi/v1/sd-modules")} == {"other.safetensors"}
    modules = {"override_settings": {"forge_additional_modules": [str(path)]}}
    assert pixels_of(served.paint(**modules)) != pixels_of(served.paint())
    answer = served.client.post(
        "/sdapi/v1/txt2img", json={**SMALL, "override_settings": {"sd_vae": "other.safetensors"}}
    )
    assert (answer.status_code, "sd_vae" in answer.json()["detail"]) == (422, True)
    path.unlink()
    served.post("/sdapi/v1/refresh-vae-and-text-encoders")
    answer = served.client.post("/sdapi/v1/txt2img", json={**SMALL, **modules})
    assert (answer.status_code, "forge_additional_modules" in answer.json()["detail"]) == (422, True)


def test_a_second_pass_goes_on_from_a_picture(served):
    asked = {"enable_hr": True, "hr_scale": 2, "denoising_strength": 0.5, "hr_upscaler": "Lanczos"}
    first = served.paint()["images"][0]
    assert pixels_of(served.paint(**asked, firstpass_image=first)) == pixels_of(served.paint(**asked))
    red = written(Image.new("RGB", (64, 64), "red"))
    for upscaler in ("Lanczos", "Latent"):
        made = served.paint(**{**asked, "hr_upscaler": upscaler}, firstpass_image=red)
        assert opened(made["images"][0]).size == (128, 128)
        assert pixels_of(made) != pixels_of(served.paint(**asked))


def test_a_latent_is_stretched_and_has_a_mask_of_its_own(served):
    image, mask = Image.new("RGB", (96, 80), "red"), Image.new("L", (64, 64), 255)
    fields = {**SMALL, "init_images": [written(image)], "denoising_strength": 0.4}
    made = [pixels_of(served.post("/sdapi/v1/img2img", {**fields, "resize_mode": mode})) for mode in (0, 3)]
    assert made[0] != made[1]
    square = {
        **fields,
        "init_images": [written(image.crop((0, 0, 64, 64)))],
        "mask": written(mask),
        "inpaint_full_res": False,
    }
    half = mask.copy()
    half.paste(0, (0, 0, 32, 64))
    made = [
        pixels_of(served.post("/sdapi/v1/img2img", {**square, **each})) for each in ({}, {"latent_mask": written(half)})
    ]
    assert made[0] != made[1]


REFUSED = {
    "sampler": ({"sampler_name": "Eular"}, 400),
    "Scheduler not found": ({"scheduler": "Karas"}, 400),
    "restore_faces": ({"restore_faces": True}, 422),
    "refiner_checkpoint": ({"refiner_checkpoint": "three"}, 404),
    "steps: 0": ({"steps": 0}, 422),
    "hr_scale: 0.5": ({"enable_hr": True, "hr_scale": 0.5}, 422),
    "steps: 100000": ({"steps": 100000}, 422),
    "pixels": ({"width": 65536, "height": 65536}, 422),
    "pictures": ({"n_iter": 1000}, 422),
    "cfg_scale": ({"cfg_scale": 1e300}, 422),
    "n_iter": ({"n_iter": 0}, 422),
    "Script 'x' not found": ({"script_name": "x"}, 422),
    "always on script adetailer not found": ({"alwayson_scripts": {"adetailer": {"args": []}}}, 422),
    "alwayson_scripts.seed": ({"alwayson_scripts": {"seed": {"args": ["x"]}}}, 422),
    "styles": ({"styles": ["none"]}, 422),
    "token_merging_ratio": ({"override_settings": {"token_merging_ratio": 0.5}}, 422),
    "uni_pc_variant": ({"override_settings": {"uni_pc_variant": "bh3"}}, 422),
    "hr_checkpoint_name": ({"enable_hr": True, "hr_checkpoint_name": "three"}, 404),
    "sd_model_checkpoint": ({"override_settings": {"sd_model_checkpoint": "three"}}, 404),
    "force_task_id": ({"force_task_id": "../../x"}, 422),
    "surrogate": ({"prompt": "\ud800"}, 422),
}


@pytest.mark.parametrize("named", REFUSED)
def test_what_cannot_be_done_is_named(served, named):
    fields, status = REFUSED[named]
    body = json.dumps({**SMALL, **fields}).encode()
    answer = served.client.post("/sdapi/v1/txt2img", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == status
    assert named.lower() in answer.json()["detail"].lower()
    assert set(answer.json()) == {"error", "detail", "body", "errors"}


@pytest.mark.parametrize(
    ("fields", "status", "said"),
    [
        ({}, 404, "Init image not found"),
        ({"init_images": ["x"]}, 422, "init_images"),
        ({"init_images": ["http://127.0.0.1/a.png"]}, 422, "Requests not allowed"),
        ({"init_images": [written(Image.new("RGB", (64, 64)))], "resize_mode": 4}, 422, "resize_mode"),
        ({"init_images": [written(Image.new("L", (8192, 8192)))]}, 422, "init_images: the picture has 8192 x 8192"),
    ],
)
def test_pictures_that_cannot_be_used_are_named(served, fields, status, said):
    answer = served.client.post("/sdapi/v1/img2img", json={**SMALL, **fields})
    assert (answer.status_code, said in answer.json()["detail"]) == (status, True), answer.text


def test_a_wrong_type_is_answered_as_fastapi_does(served):
    answer = served.client.post("/sdapi/v1/txt2img", json={"steps": "many"})
    assert answer.status_code == 422
    assert answer.json()["detail"][0]["loc"] == ["body", "steps"]


def test_options_are_kept_and_given_back_whole(served):
    options = served.get("/sdapi/v1/options")
    assert options["sd_model_checkpoint"].startswith("one.safetensors")
    served.post("/sdapi/v1/options", {**options, "something_of_theirs": [1]})
    assert served.get("/sdapi/v1/options")["something_of_theirs"] == [1]
    assert served.client.post("/sdapi/v1/options", json={"token_merging_ratio": 0.5}).status_code == 422
    assert served.client.post("/sdapi/v1/options", content=b"[]").status_code == 422
    for name, value in (("CLIP_stop_at_last_layers", 99), ("s_churn", -1), ("eta_noise_seed_delta", 2.5)):
        answer = served.client.post("/sdapi/v1/options", json={name: value})
        assert (answer.status_code, answer.json()["detail"].startswith(f"{name}: {value} is not ")) == (422, True)
    plain = served.paint(sampler_name="Euler a")["images"]
    assert served.paint(sampler_name="Euler a", override_settings={"eta_ancestral": 0.5})["images"] != plain
    assert served.paint(sampler_name="Euler a", override_settings={"randn_source": "CPU"})["images"] != plain
    assert served.paint(sampler_name="Euler a")["images"] == plain


def test_models_are_chosen_by_title_name_and_hash(served):
    one = served.paint()["images"]
    two = served.paint(override_settings={"sd_model_checkpoint": "two"})["images"]
    assert one != two
    listed = served.service.models.with_hash(served.service.models.find("two"))
    shown = next(each for each in served.get("/sdapi/v1/sd-models") if each["model_name"] == "two")
    assert shown["title"] == f"two.safetensors [{listed.sha256[:10]}]"
    for name in (shown["title"], "two.safetensors", "TWO", listed.sha256[:10], listed.sha256):
        served.post("/sdapi/v1/options", {"sd_model_checkpoint": name})
        assert served.paint()["images"] == two
    served.post("/sdapi/v1/options", {"sd_model_checkpoint": "one"})
    served.post("/sdapi/v1/unload-checkpoint")
    assert served.service.models.loaded is None
    assert served.paint()["images"] == one


def test_a_file_that_comes_and_goes_is_noticed(served, models):
    folder = models / "models" / "Stable-diffusion"
    (folder / "three.safetensors").write_bytes((folder / "one.safetensors").read_bytes())
    served.post("/sdapi/v1/refresh-checkpoints")
    assert {each["model_name"] for each in served.get("/sdapi/v1/sd-models")} == {"one", "two", "three"}
    (folder / "three.safetensors").write_bytes(b"damaged")
    answer = served.client.post(
        "/sdapi/v1/txt2img", json={**SMALL, "override_settings": {"sd_model_checkpoint": "three"}}
    )
    assert answer.status_code == 500
    assert "three.safetensors" in answer.json()["detail"]
    (folder / "three.safetensors").unlink()
    served.post("/sdapi/v1/refresh-checkpoints")
    assert {each["model_name"] for each in served.get("/sdapi/v1/sd-models")} == {"one", "two"}
    assert served.paint()["images"]


def in_background(served, **fields):
    """A request that is waited for by a thread, and what comes of it."""
    answer = {}
    asked = {**SMALL, **fields}
    thread = threading.Thread(target=lambda: answer.update(served.client.post("/sdapi/v1/txt2img", json=asked).json()))
    thread.start()
    return thread, answer


def test_progress_moves_and_an_interrupt_gives_what_there_is(served):
    served.post("/sdapi/v1/options", {"show_progress_every_n_steps": 1})
    thread, answer = in_background(served, steps=400, n_iter=3, force_task_id="task(long)")
    first = until(lambda: (found := served.get("/sdapi/v1/progress"))["current_image"] and found)
    assert opened(first["current_image"]).size == (8, 8)
    assert first["state"]["job_count"] == 3
    assert first["current_task"] == "task(long)"
    # A picture of 64 pixels is the same after some steps: it is waited for, not compared once.
    seen = (None, first["current_image"])
    later = until(lambda: (found := served.get("/sdapi/v1/progress"))["current_image"] not in seen and found)
    assert later["progress"] > first["progress"]
    told = served.post("/internal/progress", {"id_task": "task(long)"})
    assert told["active"]
    assert told["live_preview"].startswith("data:image/png;base64,")
    assert served.client.post("/sdapi/v1/interrupt").json() == {}
    thread.join()
    assert len(answer["images"]) == 1
    assert served.get("/sdapi/v1/progress")["state"]["job_count"] == 0
    assert served.post("/internal/progress", {"id_task": "task(long)"})["completed"]


def test_a_skip_keeps_the_rest(served):
    thread, answer = in_background(served, steps=60, n_iter=2)
    until(lambda: served.get("/sdapi/v1/progress")["state"]["sampling_step"] > 1)
    assert served.client.post("/sdapi/v1/skip", headers={"content-type": "application/json"}).json() is None
    thread.join()
    whole = served.paint(seed=2, steps=60)["images"]
    assert len(answer["images"]) == 2
    assert opened(answer["images"][1]).tobytes() == opened(whole[0]).tobytes()


def test_an_unknown_lora_is_named_in_the_reply(served):
    made = served.paint(prompt="a red circle<lora:nothing:1>")
    assert "there is no lora 'nothing'" in json.loads(made["info"])["comments"][0].lower()


LISTS = (
    *("samplers", "schedulers", "sd-models", "sd-vae", "sd-modules", "loras", "embeddings", "upscalers"),
    *("latent-upscale-modes", "prompt-styles", "hypernetworks", "face-restorers", "realesrgan-models", "extensions"),
    *("scripts", "script-info", "cmd-flags", "memory", "options", "progress"),
)


@pytest.mark.parametrize("name", LISTS)
def test_lists_answer(served, name):
    assert served.get(f"/sdapi/v1/{name}") is not None


def test_names_in_lists_are_understood(served):
    for sampler in served.get("/sdapi/v1/samplers"):
        graphc_images.sampling.find_sampler(sampler["name"], "a1111")
    assert {"Euler", "DPM++ 2M"} <= {each["name"] for each in served.get("/sdapi/v1/samplers")}
    assert {"Automatic", "Karras"} <= {each["label"] for each in served.get("/sdapi/v1/schedulers")}


def test_enlarging(served):
    picture = written(Image.new("RGB", (16, 8), "blue"))
    by_factor = {"image": picture, "upscaling_resize": 3, "upscaler_1": "Lanczos"}
    assert opened(served.post("/sdapi/v1/extra-single-image", by_factor)["image"]).size == (48, 24)
    to_size = {"upscaling_resize_w": 32, "upscaling_resize_h": 32, "resize_mode": 1, "upscaler_1": "Nearest"}
    both = {"imageList": [{"data": picture, "name": "a"}] * 2, **to_size}
    assert [opened(each).size for each in served.post("/sdapi/v1/extra-batch-images", both)["images"]] == [(32, 32)] * 2
    whole = {"image": picture, "upscaling_crop": False, **to_size}
    assert opened(served.post("/sdapi/v1/extra-single-image", whole)["image"]).size == (64, 32)
    refused = served.client.post("/sdapi/v1/extra-single-image", json={**by_factor, "codeformer_visibility": 1})
    assert refused.status_code == 422
    assert "codeformer_visibility" in refused.json()["detail"]


def test_the_real_client(served):
    webuiapi = pytest.importorskip("webuiapi")
    api = webuiapi.WebUIApi(host="127.0.0.1", port=served.port, sampler="Euler a", steps=2)
    made = api.txt2img(prompt="a red circle", seed=1, width=64, height=64, cfg_scale=7)
    assert made.image.size == (64, 64)
    assert made.info["sampler_name"] == "Euler a"
    again = api.img2img(
        images=[made.image], prompt="a blue circle", seed=2, width=64, height=64, denoising_strength=0.5
    )
    assert again.info["denoising_strength"] == 0.5
    larger = api.extra_single_image(image=made.image, upscaler_1=webuiapi.Upscaler.Lanczos, upscaling_resize=1.5)
    assert larger.image.size == (96, 96)
    assert "Steps: 2" in api.png_info(made.image).info
    assert len(api.extra_batch_images([made.image] * 2, upscaler_1="Nearest", upscaling_resize=1).images) == 2
    assert api.util_get_sampler_names()
    api.util_set_model("two")
    assert api.util_get_current_model().startswith("two")
    api.util_set_model("one")
    api.refresh_checkpoints()
    api.util_wait_for_ready()
    assert api.get_progress()["progress"] == 0
    api.interrupt()
    assert api.get_memory()["ram"]["total"] > 0
    assert api.get_scripts()["txt2img"]
    assert api.get_cmd_flags()["api"]


@pytest.mark.parametrize("value", ["NaN", "Infinity", "1e999", "[NaN]"])
def test_what_is_no_number_is_never_kept(served, value):
    """One client's option would else be in everybody's answers."""
    headers = {"content-type": "application/json"}
    bodies = {
        "options": f'{{"of_others": {value}}}',
        "txt2img": f'{{"override_settings": {{"of_others": {value}}}, "override_settings_restore_afterwards": false}}',
        "img2img": f'{{"comments": {{"a": {value}}}}}',
    }
    for path, body in bodies.items():
        answer = served.client.post(f"/sdapi/v1/{path}", content=body, headers=headers)
        assert answer.status_code in (400, 422), answer.text
    assert "of_others" not in served.get("/sdapi/v1/options")
