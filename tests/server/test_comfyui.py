"""ComfyUI's protocol: what its clients send, in their order, and what they wait for."""

import base64
import io
import json
import struct
import threading
import uuid

import numpy as np
import pytest
from graphs import changed, kinds, node, of_text, picture, told
from PIL import Image
from served import Process, Served, until, write_models

from graphc_server.limits import Limits
from graphc_server.service import Setup

torch = pytest.importorskip("torch")
client = pytest.importorskip("websockets.sync.client")
pytestmark = pytest.mark.torch

PASSWORD = "secret"


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    return write_models(tmp_path_factory.mktemp("webui"), "one", "two")


@pytest.fixture(scope="module")
def served(models, tmp_path_factory):
    with Served(Setup((models,), tmp_path_factory.mktemp("data"), threads=1)) as running:
        yield running


def finished(served, id):
    return until(lambda: served.get(f"/history/{id}")).get(id)


def carried_out(served, graph, **more):
    return finished(served, served.post("/prompt", {"prompt": graph, **more})["prompt_id"])


def images_of(done):
    return [image for said in done["outputs"].values() for image in said.get("images", [])]


def seen(served, image):
    answer = served.client.get("/view", params=image)
    assert answer.status_code == 200, answer.text
    return Image.open(io.BytesIO(answer.content))


def test_events_of_a_graph(served):
    id, found = told(served, of_text(seed=11, steps=3))
    assert kinds(found)[0] == "status"
    assert found[0]["data"]["sid"]
    assert kinds(found)[-1] == "executing"
    assert found[-1]["data"] == {"node": None, "prompt_id": id}
    events = [each for each in found if isinstance(each, dict) and each["type"] != "status"]
    assert all(each["data"]["prompt_id"] == id for each in events)
    order = list(dict.fromkeys(each["type"] for each in events))
    assert order == ["execution_start", "execution_cached", "executing", "progress", "executed", "execution_success"]
    assert [each["data"]["node"] for each in events if each["type"] == "executing"][:-1] == [
        "4",
        "6",
        "7",
        "5",
        "3",
        "8",
        "9",
    ]
    assert [each["data"]["value"] for each in events if each["type"] == "progress"] == [1, 2, 3]
    previews = [each for each in found if isinstance(each, bytes)]
    assert len(previews) == 3
    assert struct.unpack(">II", previews[0][:8]) == (1, 1)
    assert Image.open(io.BytesIO(previews[0][8:])).size == (512, 512)
    (image,) = next(each["data"]["output"]["images"] for each in events if each["type"] == "executed")
    assert seen(served, image).size == (64, 64)


def test_what_was_made_before_is_not_made_again(served):
    graph = of_text(seed=12)
    _, first = told(served, graph)
    _, again = told(served, graph)
    cached = next(
        each["data"]["nodes"] for each in again if isinstance(each, dict) and each["type"] == "execution_cached"
    )
    assert set(cached) == set(graph)
    assert "progress" not in kinds(again)
    files = [
        [each["data"]["output"] for each in found if isinstance(each, dict) and each["type"] == "executed"]
        for found in (first, again)
    ]
    assert files[0] == files[1] != []
    _, other = told(served, changed(graph, "8", vae=["4", 2]) | {"9": node("PreviewImage", images=["8", 0])})
    ran = [each["data"]["node"] for each in other if isinstance(each, dict) and each["type"] == "executing"]
    assert ran == ["9", None]
    _, reseeded = told(served, changed(graph, "3", seed=13))
    ran = [each["data"]["node"] for each in reseeded if isinstance(each, dict) and each["type"] == "executing"]
    assert ran == ["3", "8", "9", None]


def test_previews_that_say_what_they_are_of(served):
    name, found = uuid.uuid4().hex, []
    with client.connect(f"ws://127.0.0.1:{served.port}/api/ws?clientId={name}") as socket:
        socket.send(json.dumps({"type": "feature_flags", "data": {"supports_preview_metadata": True}}))
        socket.send("no JSON")
        assert json.loads(socket.recv())["type"] == "status"
        flags = next(each for each in map(json.loads, socket) if each["type"] != "status")
        assert flags["type"] == "feature_flags"
        assert flags["data"]["supports_preview_metadata"] is True
        id = served.post("/api/prompt", {"prompt": of_text(seed=14), "client_id": name})["prompt_id"]
        for message in socket:
            found.append(message)
            if isinstance(message, bytes):
                break
    kind, length = struct.unpack(">II", found[-1][:8])
    assert kind == 4
    said = json.loads(found[-1][8 : 8 + length])
    assert (said["prompt_id"], said["node_id"], said["image_type"]) == (id, "3", "image/jpeg")
    finished(served, id)


GOOD = of_text()
WRONG = {
    "a node that there is not": ({**GOOD, "7": node("FaceDetailer")}, "missing_node_type", {}),
    "no class_type": ({"1": {"inputs": {}}}, "invalid_prompt", {}),
    "no outputs": ({"4": GOOD["4"]}, "prompt_no_outputs", {}),
    "nothing": ({}, "prompt_no_outputs", {}),
    "no graph": ([1], "prompt_no_outputs", {}),
    "no inputs": ({"1": {"class_type": "SaveImage"}}, "invalid_prompt", {}),
    "an input that is missing": (
        {**GOOD, "3": node("KSampler", **{k: v for k, v in GOOD["3"]["inputs"].items() if k != "steps"})}, "",
        {"3": "required_input_missing"},
    ),
    "too few": (changed(GOOD, "3", steps=0), "", {"3": "value_smaller_than_min"}),
    "too many": (changed(GOOD, "3", steps=10001), "", {"3": "value_bigger_than_max"}),
    "no number": (changed(GOOD, "3", steps="many"), "", {"3": "invalid_input_type"}),
    "not in a list": (changed(GOOD, "3", sampler_name="best"), "", {"3": "value_not_in_list"}),
    "a model that there is not": (changed(GOOD, "4", ckpt_name="../one"), "", {"4": "value_not_in_list"}),
    "another type": (changed(GOOD, "8", samples=["4", 0]), "", {"8": "return_type_mismatch"}),
    "no such output": (changed(GOOD, "8", samples=["3", 7]), "", {"8": "bad_linked_input"}),
    "no such node": (changed(GOOD, "8", samples=["33", 0]), "", {"8": "bad_linked_input"}),
    "half a link": (changed(GOOD, "8", samples=["3"]), "", {"8": "bad_linked_input"}),
    "a value for a link": (changed(GOOD, "8", samples=3), "", {"8": "bad_linked_input"}),
    "a circle": (changed(GOOD, "5", width=["9", 0]) | changed(GOOD, "3", latent_image=["3", 0]), "", {"3": "dependency_cycle"}),
    "a picture that there is not": (
        {**GOOD, "1": node("LoadImage", image="none.png"), "9": node("SaveImage", filename_prefix="", images=["1", 0])}, "",
        {"1": "custom_validation_failed"},
    ),
    "a picture elsewhere": (
        {"1": node("LoadImage", image="../../jobs.sqlite"), "9": node("PreviewImage", images=["1", 0])}, "",
        {"1": "custom_validation_failed"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_what_cannot_be_done_is_refused_as_comfyui_does(served, name):
    graph, error, errors = WRONG[name]
    answer = served.client.post("/prompt", json={"prompt": graph})
    assert answer.status_code == 400
    said = answer.json()
    assert set(said) == {"error", "node_errors"}
    assert set(said["error"]) == {"type", "message", "details", "extra_info"}
    assert said["error"]["type"] == (error or "prompt_outputs_failed_validation")
    for name, kind in errors.items():
        entry = said["node_errors"][name]
        assert entry["dependent_outputs"] == ["9"]
        assert entry["class_type"] == graph[name]["class_type"]
        assert kind in [each["type"] for each in entry["errors"]]
        assert entry["class_type"] in said["error"]["details"]


def test_outputs_that_can_be_made_are_though_others_cannot(served):
    graph = {
        **of_text(seed=15),
        "10": node("SaveImage", filename_prefix="x", images=["11", 0]),
        "11": node("LoadImage", image="none.png"),
    }
    answer = served.post("/prompt", {"prompt": graph})
    assert set(answer["node_errors"]) == {"11"}
    done = finished(served, answer["prompt_id"])
    assert set(done["outputs"]) == {"9"}
    assert done["status"]["status_str"] == "success"


def test_what_breaks_while_a_graph_is_carried_out(served):
    graph = changed(of_text(), "3", latent_image=["12", 0]) | {
        "11": node("EmptySD3LatentImage", width=64, height=64, batch_size=1),
        "12": node("LatentAdd", samples1=["11", 0], samples2=["5", 0]),
    }
    id, found = told(served, graph)
    error = next(each["data"] for each in found if isinstance(each, dict) and each["type"] == "execution_error")
    assert (error["node_id"], error["node_type"], error["exception_type"]) == ("12", "LatentAdd", "SettingError")
    assert "16 and 4 channels" in error["exception_message"]
    assert {"executed", "traceback", "current_inputs", "current_outputs"} <= error.keys()
    done = finished(served, id)
    assert done["status"]["status_str"] == "error"
    assert done["status"]["messages"][-1][0] == "execution_error"
    assert images_of(carried_out(served, of_text(seed=16)))


def test_an_error_does_not_repeat_whole_pictures(served):
    """Krita's graphs carry them in base64."""
    graph = changed(of_text(), "9", images=["11", 0]) | {
        "11": node("ETN_LoadImageBase64", image="!" * 100_000),
    }
    _, found = told(served, graph)
    error = next(each["data"] for each in found if isinstance(each, dict) and each["type"] == "execution_error")
    assert error["node_id"] == "11"
    assert error["current_inputs"] == {"image": ["!" * 200 + "… (100000 characters)"]}
    assert len(json.dumps(error)) < 2000


def long(**more):
    return of_text(steps=500, seed=20, **more)


def test_the_queue_and_interrupts(served):
    first, second, third = (served.post("/prompt", {"prompt": long(negative=f"{n}")})["prompt_id"] for n in range(3))
    until(lambda: served.get("/queue")["queue_running"] and served.service.painter.turn.step)
    queue = served.get("/queue")
    assert [each[1] for each in queue["queue_running"]] == [first]
    assert [each[1] for each in queue["queue_pending"]] == [second, third]
    assert queue["queue_pending"][0][2] == long(negative="1")
    assert queue["queue_pending"][0][4] == ["9"]
    assert served.get("/prompt")["exec_info"]["queue_remaining"] == 3
    assert served.client.post("/queue", json={"delete": [second, "none"]}).status_code == 200
    assert served.client.post("/interrupt", json={"prompt_id": third}).status_code == 200
    assert [each[1] for each in served.get("/queue")["queue_running"]] == [first]
    assert served.client.post("/interrupt").status_code == 200
    done = finished(served, first)
    assert done["status"]["status_str"] == "error"
    assert done["status"]["messages"][-1][0] == "execution_interrupted"
    assert done["status"]["messages"][-1][1]["node_id"] == "3"
    until(lambda: [each[1] for each in served.get("/queue")["queue_running"]] == [third])
    fourth = served.post("/prompt", {"prompt": long(negative="4")})["prompt_id"]
    served.client.post("/queue", json={"clear": True})
    assert served.get("/queue")["queue_pending"] == []
    assert served.get(f"/history/{fourth}") == {}
    served.client.post("/interrupt", json={"prompt_id": third})
    finished(served, third)
    listed = {each["id"]: each["status"] for each in served.get("/api/jobs")["jobs"]}
    assert [listed[id] for id in (first, second, third, fourth)] == ["cancelled"] * 4


def test_the_history(served):
    ids = [served.post("/prompt", {"prompt": of_text(seed=30 + n)})["prompt_id"] for n in range(2)]
    for id in ids:
        finished(served, id)
    assert list(served.get("/history"))[-2:] == ids
    assert list(served.get("/history", params={"max_items": 1})) == ids[-1:]
    job = served.get(f"/api/jobs/{ids[0]}")
    assert (job["status"], job["outputs_count"], job["preview_output"]["nodeId"]) == ("completed", 1, "9")
    assert job["workflow"]["prompt"]["3"]["inputs"]["seed"] == 30
    pages = served.get("/api/jobs", params={"limit": 1, "offset": 0, "status": "completed", "sort_order": "asc"})
    assert len(pages["jobs"]) == 1
    assert pages["pagination"]["has_more"]
    for wrong in ({"status": "odd"}, {"sort_by": "x"}, {"limit": "many"}):
        assert served.client.get("/api/jobs", params=wrong).status_code == 400
    served.client.post("/history", json={"delete": [ids[0]]})
    assert served.get(f"/history/{ids[0]}") == {}
    assert served.client.get(f"/api/jobs/{ids[0]}").status_code == 404
    assert served.get(f"/history/{ids[1]}")
    served.client.post("/history", json={"clear": True})
    assert served.get("/history") == {}


def test_pictures_are_sent_and_looked_at(served):
    made = io.BytesIO()
    picture().save(made, "PNG")
    content = made.getvalue()

    def upload(name="in.png", what="image", body=content, **form):
        return served.client.post(f"/upload/{what}", files={"image": (name, body, "image/png")}, data=form)

    assert upload().json() == {"name": "in.png", "subfolder": "", "type": "input"}
    assert upload().json()["name"] == "in.png"
    other = io.BytesIO()
    picture(seed=1).save(other, "PNG")
    assert upload(body=other.getvalue()).json()["name"] == "in (1).png"
    assert upload(body=other.getvalue(), overwrite="true", subfolder="a/b").json()["subfolder"] == "a/b"
    assert upload(name="../../up.png").json()["name"] == "up.png"
    assert served.client.get("/view", params={"filename": "in.png", "type": "input"}).content == content
    assert seen(served, {"filename": "in.png", "type": "input", "preview": "webp;50"}).format == "WEBP"
    assert seen(served, {"filename": "in.png", "type": "input", "channel": "a"}).mode == "RGBA"
    for wrong in (
        upload(body=b"no picture"), upload(subfolder="../.."), upload(type="etc"),
        served.client.post("/upload/image", data={"type": "input"}), served.client.post("/upload/image", json={}),
    ):  # fmt: skip
        assert wrong.status_code in (400, 403, 422), wrong.text
    for wrong in (
        {"filename": "../jobs.sqlite"}, {"filename": "jobs.sqlite", "subfolder": ".."}, {"filename": "in.png", "type": "etc"},
        {"filename": ""}, {}, {"filename": "none.png"}, {"filename": "/etc/passwd"}, {"filename": "a" * 5000},
        {"filename": "../jobs.sqlite [input]"},
    ):  # fmt: skip
        assert served.client.get("/view", params=wrong).status_code in (400, 403, 404), wrong
    mask = io.BytesIO()
    picture(alpha=True).save(mask, "PNG")
    ref = json.dumps({"filename": "in.png", "subfolder": "", "type": "input"})
    said = upload("masked.png", "mask", mask.getvalue(), original_ref=ref, type="input").json()
    assert seen(served, {"filename": said["name"], "type": "input"}).getpixel((0, 0))[3] == 0
    for odd in ("", "[]", json.dumps({"filename": "../x"}), json.dumps({"filename": "none.png", "type": "input"})):
        assert upload("m.png", "mask", mask.getvalue(), original_ref=odd).status_code == 400
    done = carried_out(served, {
        "1": node("LoadImage", image="masked.png"), "2": node("MaskToImage", mask=["1", 1]),
        "3": node("PreviewImage", images=["2", 0]),
        "4": node("LoadImage", image="a/b/in.png [input]"),
        "5": node("SaveImage", filename_prefix="sub/%width%", images=["4", 0]),
    })  # fmt: skip
    shown = np.asarray(seen(served, done["outputs"]["3"]["images"][0]))
    assert (shown[:, :32] == 255).all()
    assert (shown[:, 32:] == 0).all()
    (kept,) = done["outputs"]["5"]["images"]
    assert kept == {"filename": "64_00001_.png", "subfolder": "sub", "type": "output"}
    assert (np.asarray(seen(served, kept)) == np.asarray(picture(seed=1))).all()
    refused = served.client.post("/prompt", json={"prompt": {
        "4": node("LoadImage", image="in.png"), "5": node("SaveImage", filename_prefix="../../x", images=["4", 0])}})  # fmt: skip
    done = finished(served, refused.json()["prompt_id"])
    assert "filename_prefix" in done["status"]["messages"][-1][1]["exception_message"]


def test_a_png_of_comfyui_is_a_workflow(served):
    workflow = {"id": "w1", "nodes": [], "version": 0.4}
    done = carried_out(served, of_text(seed=40), extra_data={"extra_pnginfo": {"workflow": workflow, "bad\nname": 1}})
    (image,) = images_of(done)
    first = seen(served, image)
    assert json.loads(first.info["workflow"]) == workflow
    graph = json.loads(first.info["prompt"])
    assert graph == of_text(seed=40)
    served.client.post("/free", json={"unload_models": True, "free_memory": True})
    (image,) = images_of(carried_out(served, graph))
    assert (np.asarray(seen(served, image)) == np.asarray(first)).all()
    said = served.post(
        "/sdapi/v1/png-info", {"image": base64.b64encode(served.client.get("/view", params=image).content).decode()}
    )
    assert said


def test_what_there_is(served):
    nodes = served.get("/object_info")
    assert nodes["KSampler"]["input"]["required"]["sampler_name"][0][:2] == ["euler", "ddim"]
    assert nodes["CheckpointLoaderSimple"]["input"]["required"]["ckpt_name"][0] == [
        "one.safetensors",
        "two.safetensors",
    ]
    assert served.get("/object_info/KSampler") == {"KSampler": nodes["KSampler"]}
    assert nodes["KSampler"]["output"] == ["LATENT"]
    assert served.get("/object_info/None") == {}
    assert served.get("/models/checkpoints") == ["one.safetensors", "two.safetensors"]
    assert "loras" in served.get("/models")
    assert served.client.get("/models/etc").status_code == 404
    assert served.get("/embeddings") == []
    assert served.get("/extensions") == []
    assert served.get("/features")["supports_preview_metadata"]
    stats = served.get("/api/system_stats")
    assert stats["devices"][0]["vram_total"] > 0
    assert stats["system"]["comfyui_version"]


def test_graphs_and_other_requests_share_the_queue(served):
    first = served.post("/prompt", {"prompt": of_text(seed=50, model="two.safetensors")})["prompt_id"]
    image = served.paint(override_settings={"sd_model_checkpoint": "one"})["images"]
    again = served.post("/prompt", {"prompt": of_text(seed=50, model="two.safetensors", prompt="x")})["prompt_id"]
    assert image
    assert images_of(finished(served, first))
    assert images_of(finished(served, again))
    progress = served.get("/sdapi/v1/progress")
    assert progress["progress"] == 0


def test_limits_of_the_server(models, tmp_path):
    limits = Limits(pixels=64 * 64, steps=3, pictures=2, waiting=1)
    with Served(Setup((models,), tmp_path, threads=1, limits=limits, users={"ann": PASSWORD})) as served:
        headers = {"Authorization": f"Bearer {PASSWORD}"}
        refused = [(of_text(steps=4), "3", "value_bigger_than_max"), (of_text(batch=3), "5", "value_bigger_than_max")]
        for graph, name, kind in refused:
            answer = served.client.post("/prompt", json={"prompt": graph}, headers=headers)
            assert answer.json()["node_errors"][name]["errors"][0]["type"] == kind
        answer = served.client.post("/prompt", json={"prompt": of_text(size=128)}, headers=headers).json()
        done = until(lambda: served.client.get(f"/history/{answer['prompt_id']}", headers=headers).json())
        assert "pixels" in done[answer["prompt_id"]]["status"]["messages"][-1][1]["exception_message"]
        assert served.client.get("/queue").status_code == 401
        with pytest.raises(Exception, match="401"), client.connect(f"ws://127.0.0.1:{served.port}/ws"):
            pass
        with client.connect(f"ws://127.0.0.1:{served.port}/ws", additional_headers=headers) as socket:
            assert json.loads(socket.recv())["type"] == "status"


def test_a_killed_server_goes_on(models, tmp_path):
    graph = {**of_text(steps=300, seed=60), "20": node("SaveImage", filename_prefix="early", images=["21", 0]),
             "21": node("EmptyImage", width=16, height=16, batch_size=1, color=255)}  # fmt: skip
    process = Process(models, tmp_path)
    ask = {"prompt": changed(graph, "3", steps=30), "prompt_id": "first"}
    assert process.client.post("/prompt", json=ask).json()["prompt_id"] == "first"
    process.client.post("/prompt", json={"prompt": of_text(seed=61), "prompt_id": "second"})
    until(lambda: list((tmp_path / "pictures").glob("early*")))
    process.kill()
    again = Process(models, tmp_path)
    try:
        done = [until(lambda id=id: again.client.get(f"/history/{id}").json())[id] for id in ("first", "second")]
        assert [each["status"]["status_str"] for each in done] == ["success"] * 2
        names = sorted(each["filename"] for each in images_of(done[0]))
        assert names == ["early_00001_.png", "test_00001_.png"]
        assert sorted(path.name for path in (tmp_path / "pictures").iterdir()) == [*names, "test_00002_.png"]
    finally:
        again.end()


FLOWS = {
    "SillyTavern": (
        ("GET", "/system_stats", None), ("GET", "/object_info", None),
        ("POST", "/prompt", json.dumps({"prompt": of_text(seed=70)})),
        ("GET", "/history", None), ("POST", "/interrupt", ""),
    ),
    "Open WebUI": (
        ("GET", "/object_info", None), ("POST", "/api/upload/image", picture(seed=3)),
        ("POST", "/prompt", json.dumps({"prompt": of_text(seed=71), "client_id": "owui"})), ("GET", "/history/{id}", None),
    ),
    "Krita AI Diffusion": (
        ("GET", "/system_stats", None), ("GET", "/object_info", None),
        ("POST", "/prompt", json.dumps({"prompt": of_text(seed=72), "client_id": "krita", "prompt_id": str(uuid.UUID(int=7))})),
        ("POST", "/queue", json.dumps({"delete": [str(uuid.UUID(int=8))]})), ("POST", "/interrupt", "{}"),
        ("GET", "/history", None),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FLOWS)
def test_clients_are_answered(served, name):
    """SillyTavern sends its graph as plain text, and waits for it by the whole history."""
    id = None
    for verb, path, body in FLOWS[name]:
        if isinstance(body, Image.Image):
            made = io.BytesIO()
            body.save(made, "PNG")
            answer = served.client.post(
                path, files={"image": ("a.png", made.getvalue(), "image/png")}, data={"type": "input"}
            )
        else:
            headers = {"content-type": "text/plain;charset=UTF-8"} if name == "SillyTavern" else {}
            answer = served.client.request(verb, path.replace("{id}", str(id)), content=body, headers=headers)
        assert answer.status_code == 200, answer.text
        if path == "/prompt":
            id = answer.json()["prompt_id"]
            finished(served, id)
        if path.startswith("/history"):
            assert images_of(answer.json()[id])
        if path == "/object_info":
            inputs = {
                kind: answer.json()[kind]["input"]["required"]
                for kind in ("CheckpointLoaderSimple", "UNETLoader", "VAELoader", "KSampler")
            }
            assert "one.safetensors" in inputs["CheckpointLoaderSimple"]["ckpt_name"][0]
            assert {"euler", "dpmpp_2m"} <= set(inputs["KSampler"]["sampler_name"][0])
            assert {"karras", "simple"} <= set(inputs["KSampler"]["scheduler"][0])
            assert all(
                isinstance(each, list)
                for each in (inputs["UNETLoader"]["unet_name"][0], inputs["VAELoader"]["vae_name"][0])
            )


def test_several_clients_hear_of_their_own_graphs_alone(served):
    found = {}

    def one(name):
        found[name] = told(served, of_text(seed=80 + int(name[-1])), name)

    threads = [threading.Thread(target=one, args=(f"client{n}",)) for n in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(120)
    assert len({id for id, _ in found.values()}) == 4
    for id, messages in found.values():
        events = [each["data"]["prompt_id"] for each in messages if isinstance(each, dict) and each["type"] != "status"]
        assert set(events) == {id}
        assert kinds(messages).count("progress") == 2
