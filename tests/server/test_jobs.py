"""The queue: turns, crashes, ends, and clients that go away."""

import base64
import errno
import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
from dataclasses import replace

import httpx
import pytest
from PIL import Image
from served import SMALL, Process, Served, until, write_models

from graphc_images import Settings
from graphc_images.pictures.blending import SoftInpainting
from graphc_server.errors import RequestError, StoreError
from graphc_server.limits import Limits
from graphc_server.orders import Look, Order, from_json, pictures_of, to_json, with_seeds
from graphc_server.painter import PATIENT
from graphc_server.pictures import encoded
from graphc_server.service import Setup
from graphc_server.store import TABLES, Painted, Store

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    return write_models(tmp_path_factory.mktemp("webui"), "one")


def add(store, *pairs):
    for id, client in pairs:
        store.add(id, client, "test", {"kept": False}, {})


def taken(store):
    """The jobs in the order in which they have their turns."""
    found = []
    while jobs := store.take():
        found += [job.id for job in jobs]
        store.end(jobs[0].id, "done")
    return found


def test_turns_are_fair(tmp_path):
    store = Store(tmp_path / "jobs.sqlite")
    add(store, ("a1", "a"), ("a2", "a"), ("a3", "a"), ("b1", "b"), ("c1", "c"), ("b2", "b"))
    assert taken(store) == ["a1", "b1", "c1", "a2", "b2", "a3"]
    add(store, ("b3", "b"), ("a4", "a"), ("d1", "d"))
    assert taken(store) == ["d1", "b3", "a4"]


def test_what_was_begun_goes_first_after_a_crash(tmp_path):
    store = Store(tmp_path / "jobs.sqlite")
    add(store, ("a1", "a"), ("a2", "a"), ("b1", "b"))
    assert store.take()[0].id == "a1"
    store.add_picture("a1", 0, Painted("a1-0.png", 1, "x"))
    again = Store(tmp_path / "jobs.sqlite")  # as another process has it, after the first was killed
    assert [job.state for job in again.jobs("waiting")] == ["waiting"] * 3
    assert again.take()[0].id == "a1"
    assert again.pictures("a1") == []
    again.end("a1", "done")
    assert taken(again) == ["b1", "a2"]


def test_a_job_ends_once(tmp_path):
    store = Store(tmp_path / "jobs.sqlite")
    add(store, ("a1", "a"))
    assert store.cancel_waiting("a1")
    assert not store.cancel_waiting("a1")
    assert not store.end("a1", "done")
    assert store.job("a1").state == "cancelled"
    assert store.take() == []


def test_a_job_whose_end_could_not_be_written_is_repeated(tmp_path):
    store = Store(tmp_path / "jobs.sqlite")
    add(store, ("a1", "a"), ("b1", "b"))
    assert store.take()[0].id == "a1"
    assert store.take()[0].id == "a1"
    store.end("a1", "failed", "why", [], 500)
    assert (store.job("a1").error, store.job("a1").status) == ("why", 500)
    assert taken(store) == ["b1"]


def test_those_beside_a_job_have_their_turns_with_it(tmp_path):
    store = Store(tmp_path / "jobs.sqlite")
    add(store, ("a1", "a"), ("a2", "a"), ("b1", "b"), ("c1", "c"))
    assert [job.id for job in store.take(lambda first: lambda other: other.client != "b")] == ["a1", "c1", "a2"]
    assert [job.state for job in map(store.job, ("a1", "a2", "b1", "c1"))] == [
        "painting", "painting", "waiting", "painting",
    ]  # fmt: skip


def test_a_database_of_an_earlier_version_is_understood(tmp_path):
    with sqlite3.connect(tmp_path / "jobs.sqlite") as database:
        database.executescript(TABLES)
    store = Store(tmp_path / "jobs.sqlite")
    add(store, ("a1", "a"))
    assert Store(tmp_path / "jobs.sqlite").job("a1").status == 0


def test_a_database_that_cannot_be_used_is_one_error(tmp_path):
    (tmp_path / "jobs.sqlite").write_bytes(b"no database" * 100)
    with pytest.raises(StoreError, match=r"jobs\.sqlite"):
        Store(tmp_path / "jobs.sqlite")


def test_orders_come_back_as_they_were(tmp_path):
    image = Image.new("RGB", (8, 8), "red")
    settings = Settings(
        prompt="a\nb", image=image, mask=Image.new("L", (8, 8), 255), soft_inpainting=SoftInpainting(mask_influence=0.5),
        seed_resize_from=(64, 64), sigmas=(2.0, 1.0, 0.0), loras={"a": 0.5},
    )  # fmt: skip
    order = Order(with_seeds(settings), "one", None, "jpg", 70, True, False, Look(3, "full"))
    text = json.loads(json.dumps(to_json(order, tmp_path)))
    found = from_json(text, tmp_path)
    assert found.settings.image.tobytes() == image.tobytes()
    assert found.settings.mask.getpixel((0, 0)) == 255
    assert order.settings.seed >= 0
    same = {name: getattr(order.settings, name) for name in ("image", "mask")}
    assert replace(found, settings=replace(found.settings, **same)) == order
    assert sorted(pictures_of(text)) == sorted(path.name for path in tmp_path.iterdir())
    for path in tmp_path.iterdir():
        path.unlink()
    with pytest.raises(RequestError, match="gone"):
        from_json(text, tmp_path)


def post(client, id, **fields):
    """A request that is not waited for."""
    asked = {**SMALL, "force_task_id": id, **fields}

    def ask():
        try:
            client.post("/sdapi/v1/txt2img", json=asked)
        except httpx.HTTPError:
            return

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    return thread


def test_killed_in_mid_job_it_comes_back(models, tmp_path):
    data = tmp_path / "data"
    first = Process(models, data)
    first.client.post("/sdapi/v1/options", json={"jpeg_quality": 55, "something": "kept"}).raise_for_status()
    answer = first.client.post("/sdapi/v1/txt2img", json={**SMALL, "save_images": True, "force_task_id": "finished"})
    assert answer.status_code == 200
    post(first.client, "long", steps=80, n_iter=3, save_images=True, do_not_save_grid=True)
    until(lambda: first.client.get("/sdapi/v1/progress").json()["state"]["job_no"] >= 1)
    post(first.client, "next", save_images=True)
    until(lambda: first.client.get("/internal/pending-tasks").json()["size"] == 1)
    first.kill()

    second = Process(models, data)
    try:
        assert second.client.get("/sdapi/v1/options").json()["jpeg_quality"] == 55
        assert second.client.get("/sdapi/v1/options").json()["something"] == "kept"

        def completed(id):
            return second.client.post("/internal/progress", json={"id_task": id}).json()["completed"]

        until(lambda: completed("long") and completed("next"), 120)
        with sqlite3.connect(data / "jobs.sqlite") as database:
            rows = dict(database.execute("SELECT id, state FROM jobs").fetchall())
            pictures = database.execute("SELECT job, seed FROM pictures ORDER BY job, place").fetchall()
        assert rows == dict.fromkeys(("finished", "long", "next"), "done")
        assert pictures == [("finished", 1), ("long", 1), ("long", 2), ("long", 3), ("next", 1)]
        whole = second.client.post(
            "/sdapi/v1/txt2img", json={**SMALL, "steps": 80, "seed": 2, "save_images": True}
        ).json()
        again = (data / "pictures" / "long-1.png").read_bytes()
        assert base64.b64encode(again).decode() == whole["images"][0]
    finally:
        second.kill()


def test_a_graceful_stop_keeps_the_queue(models, tmp_path):
    running = Process(models, tmp_path, "--patience", "0")
    post(running.client, "at-hand", steps=500, n_iter=20)
    until(lambda: running.client.get("/sdapi/v1/progress").json()["state"]["sampling_step"] >= 1)
    post(running.client, "waiting")
    until(lambda: running.client.get("/internal/pending-tasks").json()["size"] == 1)
    log = running.end()
    assert running.process.returncode in (0, -signal.SIGTERM)
    assert all(json.loads(line)["message"] for line in log.splitlines() if line)
    with sqlite3.connect(tmp_path / "jobs.sqlite") as database:
        assert dict(database.execute("SELECT id, state FROM jobs").fetchall()) == dict.fromkeys(
            ("at-hand", "waiting"), "waiting"
        )


def test_who_goes_away_frees_the_place(models, tmp_path):
    with Served(Setup((models,), tmp_path, threads=1)) as served:
        asked = {**SMALL, "steps": 20, "n_iter": 60}
        for id in ("gone", "gone-too"):
            with pytest.raises(httpx.ReadTimeout):
                httpx.post(f"{served.url}/sdapi/v1/txt2img", json={**asked, "force_task_id": id}, timeout=0.5)
        assert served.paint()["images"]
        until(lambda: {served.service.store.job(id).state for id in ("gone", "gone-too")} == {"cancelled"})
        assert list((tmp_path / "pictures").iterdir()) == []


def test_jobs_of_several_clients_go_together(models, tmp_path, monkeypatch):
    with Served(Setup((models,), tmp_path, threads=1)) as served:
        asked = [{"prompt": f"{place} circles", "seed": place, "steps": 3 + place} for place in range(4)]
        alone = [served.paint(**each)["images"] for each in asked]
        post(served.client, "long", steps=500, width=128, n_iter=20)
        until(lambda: served.service.painter.turn)
        found = {}

        def ask(place):
            agent = {"user-agent": f"client {place}"}
            answer = httpx.post(
                f"{served.url}/sdapi/v1/txt2img", json={**SMALL, **asked[place]}, headers=agent, timeout=60
            )
            found[place] = answer.json()["images"]

        together = []
        run = served.service.painter._paint
        monkeypatch.setattr(
            served.service.painter, "_paint", lambda job: (together.append(len(served.service.painter.turns)), run(job))
        )
        threads = [threading.Thread(target=ask, args=(place,)) for place in range(4)]
        for thread in threads:
            thread.start()
        until(lambda: served.get("/internal/pending-tasks")["size"] == 4)
        served.client.post("/sdapi/v1/interrupt")
        for thread in threads:
            thread.join()
        assert [found[place] for place in range(4)] == alone
        assert together == [0, 1, 2, 3]


def test_of_several_one_is_interrupted(models, tmp_path):
    with Served(Setup((models,), tmp_path, threads=1)) as served:
        post(served.client, "before", steps=500, width=128, n_iter=20)
        until(lambda: served.service.painter.turn)
        answers = {}

        def ask(name, steps):
            fields = {**SMALL, "steps": steps, "force_task_id": name}
            answer = httpx.post(f"{served.url}/sdapi/v1/txt2img", json=fields, headers={"user-agent": name}, timeout=60)
            answers[name] = answer.json()

        threads = [threading.Thread(target=ask, args=pair) for pair in (("one", 500), ("other", 400))]
        for thread in threads:
            thread.start()
        until(lambda: served.get("/internal/pending-tasks")["size"] == 2)
        served.client.post("/sdapi/v1/interrupt")
        until(lambda: len(served.service.painter.turns) == 2)
        mine = served.client.get("/sdapi/v1/progress", headers={"user-agent": "other"}).json()
        assert mine["current_task"] == "other"
        assert served.post("/internal/progress", {"id_task": "one"})["active"]
        served.client.post("/sdapi/v1/interrupt", headers={"user-agent": "other"})
        until(lambda: "other" in answers)
        assert "one" not in answers
        served.client.post("/sdapi/v1/interrupt", headers={"user-agent": "one"})
        for thread in threads:
            thread.join()
        assert all(len(answer["images"]) == 1 for answer in answers.values())


def test_a_full_queue_says_so(models, tmp_path):
    with Served(Setup((models,), tmp_path, limits=Limits(waiting=1), threads=1)) as served:
        post(served.client, "one", steps=400, n_iter=20)
        until(lambda: served.service.painter.turn)
        post(served.client, "two")
        until(lambda: served.get("/internal/pending-tasks")["size"] == 1)
        answer = served.client.post("/sdapi/v1/txt2img", json=SMALL)
        assert (answer.status_code, "waiting" in answer.json()["detail"]) == (429, True)
        served.client.post("/sdapi/v1/interrupt")
        until(lambda: served.service.store.counts().get("done") == 2)


def test_a_socket(models, tmp_path):
    path = tmp_path / "s.sock"
    code = "from graphc_server.commands import serve; serve()"
    listening = subprocess.Popen(
        [sys.executable, "-c", code, "--models", str(models), "--data", str(tmp_path / "two"), "--listen", str(path)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stderr=subprocess.DEVNULL,
    )
    try:
        until(path.exists)
        client = httpx.Client(transport=httpx.HTTPTransport(uds=str(path)), base_url="http://localhost")
        until(lambda: client.get("/health").status_code == 200)
        assert client.get("/sdapi/v1/sd-models").json()[0]["model_name"] == "one"
        client.close()
    finally:
        listening.terminate()
        listening.wait()


def test_nothing_is_left_of_what_nobody_keeps(models, tmp_path):
    image = base64.b64encode(encoded(Image.new("RGB", (64, 64), "red"))).decode()
    with Served(Setup((models,), tmp_path, threads=1)) as served:
        fields = {**SMALL, "init_images": [image], "force_task_id": "again"}
        first, second = (served.post("/sdapi/v1/img2img", fields)["images"] for _ in range(2))
        assert first == second
        assert list((tmp_path / "uploads").iterdir()) == list((tmp_path / "pictures").iterdir()) == []
        kept = served.post("/sdapi/v1/img2img", {**fields, "save_images": True, "force_task_id": "kept"})["images"]
        assert base64.b64encode((tmp_path / "pictures" / "kept-0.png").read_bytes()).decode() == kept[0]
        refused = served.client.post("/sdapi/v1/img2img", json={**fields, "force_task_id": "kept"})
        assert refused.status_code == 409
    (tmp_path / "uploads" / "0.png").write_bytes(b"what a killed process left")
    with Served(Setup((models,), tmp_path, threads=1)):
        until(lambda: not list((tmp_path / "uploads").iterdir()))


def test_a_failure_is_one_error_and_the_next_job_works(models, tmp_path, monkeypatch):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    def broken(*_, **__):
        raise MemoryError("no room for 9 GB")

    with Served(Setup((models,), tmp_path, threads=1)) as served:
        for place, failing, says in (
            ("graphc_server.series.save_picture", full, "No space left"),
            ("graphc_images.models.ImageModel.decode_latent", broken, "no room"),
        ):
            with monkeypatch.context() as patched:
                patched.setattr(place, failing)
                answer = served.client.post("/sdapi/v1/txt2img", json=SMALL)
            assert (answer.status_code, says in answer.json()["detail"]) == (500, True), answer.text
            assert served.paint()["images"]
        with sqlite3.connect(tmp_path / "jobs.sqlite") as other:
            other.execute("BEGIN EXCLUSIVE")
            answer = served.client.post("/sdapi/v1/txt2img", json=SMALL)
            assert (answer.status_code, "locked" in answer.json()["detail"]) == (503, True), answer.text
            other.rollback()
        assert served.paint()["images"]


@pytest.mark.skipif(sys.platform != "linux", reason="threads have priorities of their own on Linux")
def test_what_computes_gives_way(models, tmp_path):
    """Threads that answer requests are not kept waiting by those that paint."""
    with Served(Setup((models,), tmp_path / "data", threads=2)) as served:
        served.paint()
        own, painter = os.getpriority(os.PRIO_PROCESS, 0), served.service.painter.native_id
        assert os.getpriority(os.PRIO_PROCESS, painter) == own + PATIENT
        assert os.getpriority(os.PRIO_PROCESS, served.thread.native_id) == own


def test_no_thread_is_asked_for_what_is_at_hand(models, tmp_path, monkeypatch):
    """FastAPI has a thread of its pool carry out each dependency that is no coroutine: twice as much to wait for."""

    async def refuse(function, *given, **more):
        raise AssertionError(f"a thread carries out {function}")

    with Served(Setup((models,), tmp_path / "data", threads=1)) as served:
        monkeypatch.setattr("fastapi.dependencies.utils.run_in_threadpool", refuse)
        for path in (
            "/sdapi/v1/progress",
            "/sdapi/v1/options",
            "/queue",
            "/api/jobs?limit=1",
            "/graphc/v1/jobs",
            "/v1/models",
        ):
            assert served.client.get(path).status_code == 200
        assert served.client.get("/").text.startswith("<!doctype html>")
