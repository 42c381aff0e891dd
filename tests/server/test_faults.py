"""What may break around a picture: each time one clear error, and the next request works."""

import errno
import json
import os
import shutil
import sqlite3
import sys
import threading

import httpx
import numpy as np
import pytest
from safetensors.numpy import save_file
from served import SMALL, Process, Served, pixels_of, until, write_models

from graphc_server.service import Setup

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


@pytest.fixture
def models(tmp_path):
    return write_models(tmp_path / "webui", "one", "two")


def refused(served, **fields):
    """The status and the message of a request that is not answered with pictures."""
    answer = served.client.post("/sdapi/v1/txt2img", json={**SMALL, **fields})
    assert set(answer.json()) == {"error", "detail", "body", "errors"}
    return answer.status_code, answer.json()["detail"]


def test_a_model_that_is_cut_off_while_it_is_used(models, tmp_path):
    path = models / "models" / "Stable-diffusion" / "one.safetensors"
    whole = tmp_path / "whole"
    shutil.copy(path, whole)
    with Served(Setup((models,), tmp_path / "data", threads=1)) as served:
        first = served.paint()["images"]
        for size in (os.path.getsize(whole) // 2, 100, 0):
            shorter = tmp_path / "shorter"
            shorter.write_bytes(whole.read_bytes()[:size])
            os.replace(shorter, path)
            status, said = refused(served)
            assert (status, "one.safetensors" in said) == (500, True), said
            assert served.paint(override_settings={"sd_model_checkpoint": "two"})["images"]
        served.post("/sdapi/v1/refresh-checkpoints")  # looked at just before
        path.unlink()
        status, said = refused(served, override_settings={"sd_model_checkpoint": "one"})
        assert (status, "'one'" in said) == (404, True), said
        shutil.copy(whole, path)
        served.post("/sdapi/v1/refresh-checkpoints")
        assert served.paint(override_settings={"sd_model_checkpoint": "one"})["images"] == first


@pytest.mark.skipif(
    sys.platform != "linux", reason="elsewhere the system does not let go of a mapped file, or ends who reads it"
)
def test_a_model_file_that_something_writes_over(models, tmp_path):
    """`cp` makes a file shorter before it writes: what is mapped of it is gone, in the midst of a run."""
    path = models / "models" / "Stable-diffusion" / "one.safetensors"
    whole = path.read_bytes()
    server = Process(models, tmp_path / "data")
    first = server.client.post("/sdapi/v1/txt2img", json=SMALL).json()["images"]
    for size in (0, len(whole) // 3):
        answers = []
        body = {**SMALL, "steps": 60, "width": 128, "height": 128}
        asking = threading.Thread(target=lambda: answers.append(server.client.post("/sdapi/v1/txt2img", json=body)))  # noqa: B023
        asking.start()
        until(lambda: any(each.get("step", 0) > 1 for each in server.client.get("/graphc/v1/progress").json()))
        os.truncate(path, size)
        asking.join()
        (answer,) = answers
        assert (answer.status_code, "one.safetensors" in answer.json()["detail"]) == (500, True), answer.text
        other = {**SMALL, "override_settings": {"sd_model_checkpoint": "two"}}
        assert server.client.post("/sdapi/v1/txt2img", json=other).status_code == 200
        path.write_bytes(whole)
        one = {**SMALL, "override_settings": {"sd_model_checkpoint": "one"}}
        assert server.client.post("/sdapi/v1/txt2img", json=one).json()["images"] == first
    server.end()


def test_a_damaged_model_is_not_taken_unasked(models, tmp_path):
    """A file that was half fetched may be the first of the list: who names no model has the first that is one."""
    folder = models / "models" / "Stable-diffusion"
    (folder / "half.safetensors").write_bytes((folder / "one.safetensors").read_bytes()[:1000])
    with Served(Setup((models,), tmp_path / "data", threads=1)) as served:
        assert json.loads(served.paint()["info"])["sd_model_name"] == "one"
        assert served.get("/sdapi/v1/options")["sd_model_checkpoint"].startswith("one")
        status, said = refused(served, override_settings={"sd_model_checkpoint": "half"})
        assert (status, "half.safetensors: it is damaged or cut off" in said) == (500, True), said


def test_a_lora_that_goes_is_left_out(models, tmp_path):
    """Also in the second in which the folders are taken to be as they were."""
    lora = models / "models" / "Lora" / "goes.safetensors"
    lora.parent.mkdir(exist_ok=True)
    rows = {"lora_unet_conv_in.lora_up.weight": np.ones((32, 1, 1, 1), np.float32)}
    save_file({**rows, "lora_unet_conv_in.lora_down.weight": np.ones((1, 4, 3, 3), np.float32)}, lora)
    with Served(Setup((models,), tmp_path / "data", threads=1)) as served:
        plain = pixels_of(served.paint())
        assert pixels_of(served.paint(prompt=f"{SMALL['prompt']}<lora:goes:1>")) != plain
        lora.unlink()
        assert pixels_of(served.paint(prompt=f"{SMALL['prompt']}<lora:goes:1>")) == plain


def test_a_picture_that_memory_is_too_small_for(models, tmp_path):
    with Served(Setup((models,), tmp_path / "data", threads=1, memory="24MiB")) as served:
        first = served.paint()["images"]
        status, said = refused(served, width=1024, height=1024, steps=1)
        assert (status, "MiB" in said) == (500, True), said
        assert served.paint()["images"] == first
    with Served(Setup((models,), tmp_path / "data", threads=1, memory="1MiB")) as served:
        status, said = refused(served)
        assert (status, "memory is limited" in said) == (500, True), said


def test_a_full_disk(models, tmp_path, monkeypatch):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    with Served(Setup((models,), tmp_path / "data", threads=1)) as served:
        picture = served.paint(steps=1)["images"][0]
        for place, path, status in (
            ("graphc_server.series.save_picture", "txt2img", 500), ("graphc.replacing", "img2img", 503),
        ):  # fmt: skip
            with monkeypatch.context() as patched:
                patched.setattr(place, full)
                answer = served.client.post(f"/sdapi/v1/{path}", json={**SMALL, "init_images": [picture]})
            assert (answer.status_code, "No space left" in answer.json()["detail"]) == (status, True), answer.text
            assert served.paint()["images"]


def test_a_database_that_is_locked_while_a_picture_is_painted(models, tmp_path):
    """The job is repeated when the database can be written again, and its client has its picture."""
    with Served(Setup((models,), tmp_path / "data", threads=1)) as served:
        expected = served.paint(steps=30)["images"]
        answers = []
        thread = threading.Thread(target=lambda: answers.append(served.paint(steps=30)["images"]))
        thread.start()
        until(lambda: served.service.painter.turn)
        with sqlite3.connect(tmp_path / "data" / "jobs.sqlite") as other:
            other.execute("BEGIN EXCLUSIVE")
            until(lambda: served.service.painter.turn is None)
            status, said = refused(served)
            assert (status, "locked" in said) == (503, True), said
            other.rollback()
        thread.join()
        assert answers == [expected]
        assert served.paint()["images"]


def test_a_server_that_is_killed_again_and_again(models, tmp_path):
    data = tmp_path / "data"
    for number in range(3):
        server = Process(models, data)
        body = {**SMALL, "steps": 100, "force_task_id": f"job {number}".replace(" ", "-"), "save_images": True}
        with pytest.raises(httpx.HTTPError):
            server.client.post("/sdapi/v1/txt2img", json=body, timeout=0.2)
        server.kill()
    server = Process(models, data)
    until(lambda: server.client.get("/internal/pending-tasks").json()["size"] == 0)
    assert server.client.post("/sdapi/v1/txt2img", json=SMALL).status_code == 200
    server.end()
