"""Requests that make several: A1111's scripts by name, and several pictures to begin with."""

import json

import pytest
from PIL import Image
from served import SMALL, Served, opened, pixels, write_models, written

from graphc_server.limits import Limits
from graphc_server.service import Setup

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    models = write_models(tmp_path_factory.mktemp("webui"), "one", "two")
    (models / "styles.csv").write_text('name,prompt,negative_prompt\nbright,"{prompt}, bright",dark\n')
    setup = Setup((models,), tmp_path_factory.mktemp("data"), threads=1, limits=Limits(pictures=12))
    with Served(setup) as running:
        yield running


def plot(x=(0, ""), y=(0, ""), z=(0, ""), legend=True, alone=True, each=False, vary=(False, False, False)):
    axes = [item for kind, values in (x, y, z) for item in (kind, values, [])]
    return {"script_name": "X/Y/Z plot", "script_args": [*axes, legend, alone, each, False, *vary, 0, False]}


def test_a_plot(served):
    made = served.paint(**plot((4, "1-3 (+2)"), ("CFG Scale", "1,7")))
    cells = [served.paint(steps=steps, cfg_scale=cfg)["images"][0] for cfg in (1, 7) for steps in (1, 3)]
    assert pixels(*made["images"][1:]) == pixels(*cells)
    assert json.loads(made["info"])["index_of_first_image"] == 1
    grid = opened(made["images"][0])
    assert grid.width > 2 * 64
    assert (
        grid.crop((grid.width - 128, grid.height - 128, grid.width - 64, grid.height - 64)).tobytes()
        == pixels(cells[0])[0]
    )
    bare = served.paint(**plot((4, "1-3 (+2)"), (6, "1,7"), legend=False, alone=False))["images"]
    assert [opened(each).size for each in bare] == [(128, 128)]
    paged = served.paint(**plot((1, "1,2"), z=("Prompt S/R", "red,blue,green"), legend=False, alone=False, each=True))
    assert [opened(each).size for each in paged["images"]] == [(384, 64), (128, 64), (128, 64), (128, 64)]
    assert json.loads(paged["info"])["index_of_first_image"] == 4
    varied = served.paint(**plot((4, "2,2"), (6, "7,7"), vary=(True, True, False)))
    assert pixels(*varied["images"][1:]) == pixels(*(served.paint(seed=seed)["images"][0] for seed in (1, 2, 3, 4)))


def test_a_plot_of_models(served):
    """Each cell is what its model makes alone, and says so; other axes are of styles, refiners and switches."""
    made = served.paint(**plot(("Checkpoint name", "one, two"), ("SGM noise multiplier", "True,false"), legend=False))
    info = json.loads(made["info"])
    singles = [
        served.paint(override_settings={"sd_model_checkpoint": model, "sgm_noise_multiplier": more})
        for more in (True, False)
        for model in ("one", "two")
    ]
    assert pixels(*made["images"][1:]) == [pixels(*single["images"])[0] for single in singles]
    assert ["Model: two" in text for text in info["infotexts"][1:]] == [False, True, False, True]
    styled = served.paint(**plot(("Styles", "bright"), ("Refiner checkpoint", "None,two"), legend=False))
    wanted = [served.paint(styles=["bright"], refiner_checkpoint=name)["images"][0] for name in (None, "two")]
    assert pixels(*styled["images"][1:]) == pixels(*wanted)
    plain = served.paint(**plot(("VAE", "Automatic"), legend=False))
    assert pixels(plain["images"][0]) == pixels(*served.paint()["images"])
    for axis, status in ((("Checkpoint name", "none"), 404), (("VAE", "none"), 422), (("Styles", "dull"), 422)):
        answer = served.client.post("/sdapi/v1/txt2img", json={**SMALL, **plot(axis)})
        assert answer.status_code == status, answer.text
        assert axis[1] in answer.json()["errors"]


def test_a_matrix_of_prompts(served):
    asked = {"script_name": "prompt matrix", "prompt": "a circle|red|small|green"}
    made = served.paint(**asked, script_args=[False, True, "positive", "comma", 0])
    info = json.loads(made["info"])
    assert info["all_seeds"][info["index_of_first_image"] :] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert info["all_prompts"][1:4] == ["a circle", "a circle, red", "a circle, small"]
    assert pixels(made["images"][2]) == pixels(served.paint(prompt="a circle, red", seed=2)["images"][0])
    assert opened(made["images"][0]).width > opened(made["images"][0]).height


def test_prompts_of_a_text(served):
    text = "a red circle\n\n--prompt a blue square --steps 3 --seed 7\na star"
    asked = {"script_name": "Prompts from file or textbox", "prompt": "", "seed": 5}
    made = served.paint(**asked, script_args=[True, False, text])
    singles = (
        {"prompt": "a red circle", "seed": 5},
        {"prompt": "a blue square", "steps": 3, "seed": 7},
        {"prompt": "a star", "seed": 7},
    )
    assert pixels(*made["images"]) == pixels(*(served.paint(**each)["images"][0] for each in singles))
    ends = served.paint(**{**asked, "prompt": "big"}, script_args=[False, False, "end", "circle"])
    assert json.loads(ends["info"])["prompt"] == "big circle"


def began_with(colour, **fields):
    return {**SMALL, "denoising_strength": 0.5, "init_images": [written(Image.new("RGB", (64, 64), colour))], **fields}


def test_loops(served):
    """Each begins with the picture before, of the next seed, and of a strength on the way to the last one's."""
    asked = began_with("red", script_name="Loopback", seed=7)
    made = served.post("/sdapi/v1/img2img", {**asked, "script_args": [3, 0.9, "Linear"]})
    image, alone = asked["init_images"][0], []
    for seed, strength in ((7, 0.5), (8, 0.7), (9, 0.9)):
        one = {**SMALL, "init_images": [image], "seed": seed, "denoising_strength": strength}
        image = served.post("/sdapi/v1/img2img", one)["images"][0]
        alone.append(image)
    grid, *loops = made["images"]
    assert pixels(*loops) == pixels(*alone)
    assert opened(grid).size == (192, 64)
    twice = served.post("/sdapi/v1/img2img", {**asked, "n_iter": 2, "script_args": [3, 0.9, "Linear"]})
    assert pixels(*twice["images"][1:]) == [*pixels(alone[2]), *pixels(twice["images"][2])]
    assert json.loads(twice["info"])["all_seeds"][1:] == [9, 12]
    (single,) = served.post("/sdapi/v1/img2img", {**asked, "script_args": [1]})["images"]
    assert pixels(single) == pixels(alone[0])


def test_a_picture_made_larger_in_tiles(served):
    """What one tile alone covers is a picture of its own, of the seed of its place."""
    asked = began_with("blue", script_name="SD upscale", seed=3)
    (made,) = served.post("/sdapi/v1/img2img", {**asked, "script_args": ["", 16, "lanczos", 2.0]})["images"]
    assert opened(made).size == (128, 128)
    tile = served.post("/sdapi/v1/img2img", began_with("blue", seed=3))["images"][0]
    box = (0, 0, 30, 30)
    assert opened(made).crop(box).tobytes() == opened(tile).crop(box).tobytes()
    last = served.post("/sdapi/v1/img2img", began_with("blue", seed=3 + 8))["images"][0]
    assert opened(made).crop((98, 98, 128, 128)).tobytes() == opened(last).crop((34, 34, 64, 64)).tobytes()
    same = served.post("/sdapi/v1/img2img", {**asked, "n_iter": 2, "script_args": [None, 0, 0, 4.0]})["images"]
    assert [opened(each).size for each in same] == [(64, 64)] * 2, "without an upscaler, as it is"
    assert pixels(same[0]) == pixels(tile)


REFUSED_FOR_PICTURES = {
    "loops": ("loopback", [33]),
    "a curve": ("loopback", [2, 0.5, "Steep"]),
    "into words": ("loopback", [2, 0.5, "Linear", "CLIP"]),
    "upscaler 'better'": ("sd upscale", ["", 16, "better"]),
    "overlap": ("sd upscale", ["", 300, "Lanczos"]),
    "pixels": ("sd upscale", ["", 16, "Lanczos", 4.0]),
}


@pytest.mark.parametrize("said", REFUSED_FOR_PICTURES)
def test_what_a_script_of_pictures_cannot_do_is_named(served, said):
    name, arguments = REFUSED_FOR_PICTURES[said]
    large = written(Image.new("RGB", (2048, 2048)))
    fields = began_with("red", script_name=name, script_args=arguments) | {"init_images": [large]}
    answer = served.client.post("/sdapi/v1/img2img", json=fields)
    assert (answer.status_code, said in answer.json()["detail"]) == (422, True), answer.text


REFUSED = {
    "pictures": plot((1, "1-13")),
    "axis": plot((99, "1")),
    "no axis": plot(("Smell", "1")),
    "values": plot((4, "many")),
    "Face restore": plot(("Face restore", "GFPGAN")),
    "not found": {"script_name": "sd upscale"},
    "nothing to paint": {"script_name": "prompts from file or textbox", "script_args": [False, False, "start", ""]},
    "unknown option --outpath": {
        "script_name": "Prompts from file or textbox",
        "script_args": [0, 0, "start", "--outpath /etc"],
    },
    "positive": {"script_name": "Prompt matrix", "script_args": [False, False, "sideways"]},
}


@pytest.mark.parametrize("said", REFUSED)
def test_what_a_script_cannot_do_is_named(served, said):
    answer = served.client.post("/sdapi/v1/txt2img", json={**SMALL, **REFUSED[said]})
    assert answer.status_code == 422, answer.text
    name = {"values": "script_args"}.get(said, said)
    assert name.lower() in answer.json()["detail"].lower()


def test_several_pictures_to_begin_with(served):
    images = [written(Image.new("RGB", (64, 64), colour)) for colour in ("red", "blue")]
    fields = {**SMALL, "denoising_strength": 0.5}
    made = served.post("/sdapi/v1/img2img", {**fields, "init_images": images, "batch_size": 3, "n_iter": 2})
    singles = [
        served.post("/sdapi/v1/img2img", {**fields, "init_images": [images[n % 2]], "seed": 1 + n})["images"][0]
        for n in range(4)
    ]
    assert pixels(*made["images"]) == pixels(*singles)
    answer = served.client.post("/sdapi/v1/img2img", json={**fields, "init_images": images})
    assert (answer.status_code, "bad number of images" in answer.json()["detail"]) == (422, True)


def test_scripts_are_listed(served):
    assert {"x/y/z plot", "prompt matrix", "prompts from file or textbox", "controlnet"} <= set(
        served.get("/sdapi/v1/scripts")["txt2img"]
    )
    found = next(each for each in served.get("/sdapi/v1/script-info") if each["name"] == "x/y/z plot")
    assert not found["is_alwayson"]
    assert len(found["args"]) == 18
    listed = served.get("/sdapi/v1/scripts")
    assert set(listed["img2img"]) - set(listed["txt2img"]) == {"loopback", "sd upscale"}
