"""graphc's own protocol: parameters of a model, jobs and their order, the gallery, plots, tokens."""

import base64
import io
import json
import random

import numpy as np
import pytest
from PIL import Image
from served import Served, until, write_models

from graphc_images.models import ARCHITECTURES
from graphc_images.pictures.files import Notes, save_picture
from graphc_images.settings import Settings
from graphc_server.limits import Limits
from graphc_server.orders import Order, from_json, to_json
from graphc_server.own.lists import counted, rules_of
from graphc_server.own.parameters import RECORDS, parameters_of
from graphc_server.pictures import encoded
from graphc_server.service import Setup
from graphc_server.store import Painted, Store

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch
SMALL = {"prompt": "a red circle", "steps": 2, "width": 64, "height": 64, "seed": 1}


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = write_models(tmp_path_factory.mktemp("webui"), "one")
    for kind, names in (("Lora", ("round", "painted")), ("embeddings", ())):
        (folder / "models" / kind).mkdir()
        for name in names:
            (folder / "models" / kind / f"{name}.safetensors").write_bytes(b"no tensors")
    return folder


@pytest.fixture(scope="module")
def served(models, tmp_path_factory):
    setup = Setup((models,), tmp_path_factory.mktemp("data"), limits=Limits(pixels=512 * 512, pictures=12), threads=1)
    with Served(setup) as running:
        yield running


def put(served, settings=None, **more):
    """A job that is finished; its name."""
    id = served.post("/graphc/v1/jobs", {"settings": {**SMALL, **(settings or {})}, **more})["id"]
    until(lambda: served.get(f"/graphc/v1/jobs/{id}")["state"] not in ("waiting", "painting"))
    return id


def refused(served, body, path="/graphc/v1/jobs"):
    answer = served.client.post(path, content=json.dumps(body), headers={"content-type": "application/json"})
    return answer.status_code, str(answer.json().get("detail"))


def data_uri(picture):
    return "data:image/png;base64," + base64.b64encode(encoded(picture)).decode()


def picture(served, id, place=0):
    return Image.open(io.BytesIO(served.client.get(f"/graphc/v1/pictures/{id}/{place}/file").content))


def test_a_job_is_the_picture_that_others_make(served):
    id = put(served, {"batches": 2})
    job = served.get(f"/graphc/v1/jobs/{id}")
    assert (job["state"], job["mine"], job["pictures"][1]["seed"]) == ("done", True, 2)
    theirs = served.post("/sdapi/v1/txt2img", {**SMALL, "sampler_name": "Euler a", "cfg_scale": 2.5})["images"][0]
    assert picture(served, id).tobytes() == Image.open(io.BytesIO(base64.b64decode(theirs))).tobytes()


def test_parameters_are_those_of_the_model(served):
    said = served.get("/graphc/v1/parameters")
    names = {each["name"] for each in said["parameters"]}
    assert (said["architecture"], said["unit"]) == ("coloured shapes", 8)
    assert {"prompt", "clip_skip", "pag_scale"} <= names
    assert not {"guidance", "slg_scale", "refiner", "t5_mask_pad", "image_cfg_scale", "control_image"} & names
    usual = {each["name"]: each["usual"] for each in said["parameters"]}
    assert (usual["width"], usual["steps"], usual["cfg_scale"]) == (128, 20, 2.5)
    assert {"Seed", "Steps", "Prompt S/R"} <= {each["name"] for each in said["axes"]}
    assert said["samplers"]["DPM++ 2M"] == []
    assert refused(served, {"settings": {"guidance": 3.0}}) == (422, "guidance: coloured shapes has no such parameter")


@pytest.mark.parametrize("architecture", ARCHITECTURES, ids=lambda each: each.name)
def test_usual_values_can_be_set_for_every_architecture(architecture):
    described = parameters_of(architecture, ["Latent"], [])
    assert len(described) == len({each["name"] for each in described}) > 30
    for each in described:
        if each["kind"] in ("whole", "number") and each["usual"] is not None:
            assert each["least"] <= each["usual"] <= each["most"] or each["name"] in ("seed", "subseed"), each
        if each["kind"] == "record":
            RECORDS[each["name"]](**each["parts"])
        elif each["usual"] is not None:
            made = {each["name"]: each["usual"]}
            Settings(**{**made, **({"image": Image.new("RGB", (8, 8))} if each["name"] == "mask" else {})})


@pytest.mark.parametrize("architecture", ARCHITECTURES, ids=lambda each: each.name)
def test_tokens_are_counted_for_every_architecture(architecture):
    for name in architecture.text:
        few, more = (counted([text], rules_of(architecture, name), ()) for text in ("a", "a red circle"))
        assert 0 < few["tokens"] < more["tokens"] <= (more["room"] or 9)


def test_every_parameter_is_taken(served):
    """Each with a value near its usual one; records as they are."""
    described = served.get("/graphc/v1/parameters")["parameters"]
    given = {}
    for each in described:
        if each["name"].startswith("hires_"):  # a picture that begins with another has no second pass
            continue
        if each["kind"] in ("whole", "number"):
            value = each["usual"] if each["usual"] is not None else each["least"]
            given[each["name"]] = min(max(value, each["least"]), each["most"])
        elif each["kind"] in ("choice", "switch", "text") and each["usual"] is not None:
            given[each["name"]] = each["usual"]
        elif each["kind"] == "record" and each["name"] == "soft_inpainting":
            given[each["name"]] = each["parts"]
    image, mask = Image.new("RGB", (64, 64), "red"), Image.new("L", (64, 64))
    mask.paste(255, (0, 0, 32, 64))
    given |= {
        **SMALL,
        "image": data_uri(image),
        "mask": data_uri(mask),
        "sigma_min": 0.1,
        "sigma_max": 10.0,
        "rho": 7.0,
    }
    id = put(served, given)
    assert served.get(f"/graphc/v1/jobs/{id}")["error"] == ""
    assert served.get(f"/graphc/v1/jobs/{id}")["state"] == "done"


def test_records_come_back_from_the_database(tmp_path):
    settings = Settings(prompt="a", seed=1, subseed=1, apg=RECORDS["apg"](eta=0.5), fresca=RECORDS["fresca"]())
    assert from_json(to_json(Order(settings, "one"), tmp_path), tmp_path).settings == settings


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({"settings": {"steps": 0}}, "steps"),
        ({"settings": {"steps": "many"}}, "steps"),
        ({"settings": {"nothing": 1}}, "nothing"),
        ({"settings": {"sampler": "none"}}, "sampler"),
        ({"settings": {"width": 63}}, "width"),
        ({"settings": {"width": 1024, "height": 1024}}, "pixels"),
        ({"settings": {"image": "x"}}, "image"),
        ({"settings": {"mask": data_uri(Image.new("L", (8, 8)))}}, "mask"),
        ({"settings": {"soft_inpainting": {"nothing": 1}}}, "soft_inpainting"),
        ({"settings": {"prompt": "\ud800"}}, "surrogate"),
        ({"preview": {"by": "magic"}}, "by"),
        ({"outpaint": {"left": 8}}, "outpaint"),
        (
            {"settings": {"image": data_uri(Image.new("RGB", (8, 8)))}, "outpaint": {"left": 4096, "top": 4000}},
            "pixels",
        ),
        ({"vae": "none"}, "vae"),
    ],
)
def test_what_cannot_be_done_names_the_setting(served, body, says):
    status, detail = refused(served, body)
    assert (status in (404, 422), says in detail) == (True, True), detail


def test_outpainting_keeps_the_picture(served):
    image = Image.fromarray(np.random.default_rng(0).integers(0, 255, (64, 64, 3), np.uint8))
    for fill in ("edges", "noise"):
        outpaint = {"left": 16, "bottom": 32, "fill": fill}
        id = put(served, {"image": data_uri(image), "denoising_strength": 1.0, "mask_blur": 0}, outpaint=outpaint)
        made = picture(served, id)
        assert made.size == (80, 96)
        kept = np.asarray(made.convert("RGB"))[:48, 32:]
        assert np.abs(kept.astype(int) - np.asarray(image)[:48, 16:]).max() <= 1


def test_a_job_can_be_ended_and_put_before_others(served):
    first = served.post("/graphc/v1/jobs", {"settings": {**SMALL, "steps": 400, "batches": 12}})["id"]
    until(lambda: served.service.painter.turn and served.service.painter.turn.step > 0)
    others = [served.post("/graphc/v1/jobs", {"settings": {**SMALL, "seed": seed}})["id"] for seed in range(3)]
    assert [job["id"] for job in served.get("/graphc/v1/jobs")["jobs"]] == [first, *others]
    moved = served.client.put(f"/graphc/v1/jobs/{others[2]}/place", json={"place": 0})
    assert moved.status_code == 200
    assert [job["id"] for job in served.get("/graphc/v1/jobs")["jobs"]] == [first, others[2], *others[:2]]
    assert served.client.delete(f"/graphc/v1/jobs/{others[0]}").json()["state"] == "cancelled"
    assert served.client.delete(f"/graphc/v1/jobs/{others[0]}").status_code == 409
    assert served.client.put(f"/graphc/v1/jobs/{first}/place", json={"place": 0}).status_code == 409
    assert served.client.delete(f"/graphc/v1/jobs/{first}").status_code == 200
    until(lambda: served.get(f"/graphc/v1/jobs/{others[1]}")["state"] == "done")
    assert served.get(f"/graphc/v1/jobs/{first}")["state"] == "cancelled"
    assert served.client.post(f"/graphc/v1/jobs/{first}/interrupt").status_code == 409
    for path in ("none", "../../etc", "%00"):
        assert served.client.get(f"/graphc/v1/jobs/{path}").status_code == 404


def test_the_queue_is_told_as_it_will_be_taken(tmp_path):
    for seed in range(20):
        draw = random.Random(seed)
        store = Store(tmp_path / f"{seed}.sqlite")
        for number in range(20):
            store.add(f"j{number}", draw.choice("abcd"), "test", {}, {})
            if draw.random() < 0.3:
                store.end(store.take()[0].id, "done")
            if draw.random() < 0.3:
                store.put_at(f"j{draw.randrange(number + 1)}", draw.randrange(4))
        told = [job.id for job in store.upcoming()]
        taken = []
        while jobs := store.take():
            taken.append(jobs[0].id)
            store.end(jobs[0].id, "done")
        assert told == taken
        store.close()


def test_the_gallery_is_searched_and_used_again(served):
    id = put(served, {"prompt": "a blue_moon, 100% (round:1.2)", "seed": 77, "hires_scale": 1.5})
    put(served, {"prompt": "a blue moon"}, kept=False)
    for search in ("blue_moon 100%", "ROUND", "Seed: 77"):
        found = served.get("/graphc/v1/pictures", params={"search": search})["pictures"]
        assert [each["job"] for each in found] == [id]
    assert served.get("/graphc/v1/pictures", params={"search": "blueXmoon"})["pictures"] == []
    whole = served.get("/graphc/v1/pictures", params={"limit": 500})["pictures"]
    pages, before = [], {}
    while True:
        answer = served.get("/graphc/v1/pictures", params={"limit": 2, **before})
        pages += answer["pictures"]
        if answer["next"] is None:
            break
        before = {"before": answer["next"]}
    assert pages == whole
    one = served.get(found[0]["address"])
    assert one["model"] == "one"
    assert (one["settings"]["seed"], one["settings"]["hires_scale"]) == (77, 1.5)
    again = put(served, one["settings"], model=one["model"])
    assert picture(served, again).tobytes() == picture(served, id).tobytes()
    assert max(Image.open(io.BytesIO(served.client.get(found[0]["small"]).content)).size) <= 384
    assert served.client.delete(found[0]["address"]).status_code == 200
    assert served.client.delete(found[0]["address"]).status_code == 404
    assert not (served.service.painter.pictures / f"{id}-0.png").exists()


def test_files_of_others_are_not_shown(served, tmp_path):
    secret = served.service.painter.pictures.parent / "jobs.sqlite"
    id = put(served)
    served.service.store.add_picture(id, 0, Painted("../jobs.sqlite", 1, ""))
    assert secret.exists()
    for end in ("/file", "/small", ""):
        assert served.client.get(f"/graphc/v1/pictures/{id}/0{end}").status_code == 410
    assert served.client.delete(f"/graphc/v1/pictures/{id}/0").status_code == 200
    assert secret.exists()
    for path in ("/page/../app.py", "/page/%2e%2e/app.py", "/page/..%2fapp.py", "/page//etc/passwd", "/page/"):
        assert served.client.get(path).status_code == 404


def test_what_a_picture_says(served, tmp_path):
    id = put(served, {"negative_prompt": "blurred"})
    text = served.get(f"/graphc/v1/pictures/{id}/0")["text"]
    said = served.post("/graphc/v1/notes", {"picture": data_uri_of(served, id)})
    assert (said["text"], said["model"]) == (text, "one")
    assert said["settings"]["negative_prompt"] == "blurred"
    other = Notes('x\nSteps: 3, Sampler: Euler, Seed: 4, Size: 64x64, Model: none, ControlNet 0: "Model: a"')
    save_picture(Image.new("RGB", (8, 8)), tmp_path / "other.png", other)
    found = served.post("/graphc/v1/notes", {"picture": data_uri(Image.open(tmp_path / "other.png"))})
    assert found["settings"] == {}
    content = "data:image/png;base64," + base64.b64encode((tmp_path / "other.png").read_bytes()).decode()
    found = served.post("/graphc/v1/notes", {"picture": content})
    assert (found["model"], found["settings"]["steps"]) == (None, 3)
    assert served.post("/graphc/v1/notes", {"picture": data_uri(Image.new("RGB", (8, 8)))})["settings"] == {}
    assert refused(served, {"picture": "x"}, "/graphc/v1/notes")[0] == 422


def data_uri_of(served, id):
    content = served.client.get(f"/graphc/v1/pictures/{id}/0/file").content
    return "data:image/png;base64," + base64.b64encode(content).decode()


def test_plots(served):
    axes = {"x": {"name": "Seed", "values": "1-3"}, "y": {"name": "CFG Scale", "values": "2, 4"}}
    plot = served.post("/graphc/v1/plots", {"picture": {"settings": SMALL}, **axes})
    said = until(lambda: done(served.get(f"/graphc/v1/plots/{plot['id']}")))
    assert [len(axis["labels"]) for axis in said["axes"]] == [3, 2, 1]
    alone = put(served, {"seed": 2, "cfg_scale": 4.0})
    assert picture(served, plot["jobs"][4]).tobytes() == picture(served, alone).tobytes()
    grid = Image.open(io.BytesIO(served.client.get(f"/graphc/v1/plots/{plot['id']}/grid").content))
    assert grid.width > 3 * 64
    assert served.client.get(f"/graphc/v1/plots/{plot['id']}/grid?z=1").status_code == 404
    for axis, says in (
        ({"name": "Seed", "values": "1-40"}, "pictures"),
        ({"name": "Nonsense", "values": "1"}, "axis"),
        ({"name": "Steps", "values": "2, 0"}, "steps"),
        ({"name": "Size", "values": "64x64, 63x64"}, "width"),
        ({"name": "Steps", "values": ""}, "values"),
    ):
        before = served.get("/graphc/v1/jobs")["count"]
        status, detail = refused(served, {"picture": {"settings": SMALL}, "x": axis}, "/graphc/v1/plots")
        assert (status, says in detail) == (422, True), detail
        assert served.get("/graphc/v1/jobs")["count"] == before


def done(said):
    return said if all(cell["state"] == "done" for cell in said["cells"]) else None


def test_tokens(served):
    def count(text, **more):
        return served.post("/graphc/v1/tokens", {"text": text, **more})["encoders"]["clip_l"]

    assert count("") == {"tokens": 0, "room": 75}
    assert count("a red circle") == {"tokens": 3, "room": 75}
    assert count("a <lora:round:0.5>(red:1.2) circle") == {"tokens": 3, "room": 75}
    assert count("a " * 76) == {"tokens": 76, "room": 150}
    assert count("[a:a red circle:0.5]") == {"tokens": 3, "room": 75}
    assert served.post("/graphc/v1/tokens", {"text": "<lora:round:0.5>"})["networks"] == ["round"]


def test_names_for_completion(served):
    said = served.get("/graphc/v1/files")
    assert [each["name"] for each in said["loras"]] == ["painted", "round"]
    assert (said["models"][0]["name"], said["selected"], said["embeddings"]) == ("one", "one", [])
