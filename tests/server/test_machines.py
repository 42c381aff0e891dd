"""A server and its workers over a real Redis: every job is done once, none is lost, whoever dies."""

from __future__ import annotations

import base64
import hashlib
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

pytest.importorskip("torch")
pytest.importorskip("fastapi")
pytest.importorskip("dramatiq")
pytest.importorskip("redis")
import redis
from served import IMAGES, SMALL, Process, until, write_models

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(shutil.which("redis-server") is None, reason="redis-server is not installed"),
]
CODE = "from graphc_server.commands import {0}; {0}()"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_models(tmp_path_factory.mktemp("models"), "one")


class Redis:
    """A Redis of the test's own."""

    def __init__(self, folder):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url = f"redis://127.0.0.1:{self.port}"
        self.folder = folder
        self.start()

    def start(self):
        command = ["redis-server", "--port", self.port, "--dir", self.folder, "--save", "", "--bind", "127.0.0.1"]
        self.process = subprocess.Popen(list(map(str, command)), stdout=subprocess.DEVNULL)
        self.client = redis.Redis.from_url(self.url)
        until(self.answers)

    def answers(self):
        try:
            return self.client.ping()
        except redis.ConnectionError:
            return False

    def kill(self):
        self.process.kill()
        self.process.wait()


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    found = Redis(tmp_path_factory.mktemp("redis"))
    yield found
    found.kill()


@pytest.fixture(scope="module")
def server(broker, folder, tmp_path_factory):
    found = Process(folder, tmp_path_factory.mktemp("data"), "--broker", broker.url)
    yield found
    found.kill()


class Worker:
    """`graphc worker` as a process."""

    def __init__(self, broker, models, *more):
        options = ["--broker", broker.url, "--models", models, "--threads", 1, *more]
        path = os.pathsep.join([str(IMAGES.parents[1]), *sys.path])
        self.process = subprocess.Popen(
            [sys.executable, "-c", CODE.format("worker"), *map(str, options)],
            stderr=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": path},
        )  # fmt: skip

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.process.stderr.close()

    def end(self):
        self.process.terminate()
        _, log = self.process.communicate(timeout=60)
        assert self.process.returncode == 0, log
        return log


@pytest.fixture
def workers(broker, folder):
    """Two of them, and no other."""
    broker.client.delete(*broker.client.keys("graphc:worker:*"), "graphc:worker:none")
    workers = [Worker(broker, folder) for _ in range(2)]
    until(lambda: len(broker.client.keys("graphc:worker:*")) == 2)
    yield workers
    for each in workers:
        if each.process.poll() is None:
            each.kill()


def paint(server, **fields):
    answer = server.client.post("/sdapi/v1/txt2img", json={**SMALL, **fields}, timeout=120)
    assert answer.status_code == 200, answer.text
    return [hashlib.sha256(base64.b64decode(each)).hexdigest() for each in answer.json()["images"]]


def test_jobs_are_spread_and_the_pictures_those_of_one_machine(server, workers, folder, tmp_path):
    alone = Process(folder, tmp_path / "alone")
    try:
        with ThreadPoolExecutor(4) as clients:
            found = list(clients.map(lambda seed: paint(server, seed=seed, n_iter=2), range(4)))
        assert found == [paint(alone, seed=seed, n_iter=2) for seed in range(4)]
        log = workers[0].end()
        assert "worker begins" in log
    finally:
        alone.kill()


def test_a_worker_that_is_killed_loses_no_job_and_none_is_done_twice(server, workers, broker):
    before = done(server)
    with ThreadPoolExecutor(6) as clients:
        sent = [clients.submit(paint, server, seed=seed, steps=12, force_task_id=f"job{seed}") for seed in range(6)]
        until(lambda: sum(each["state"] == "painting" for each in jobs(server)) == 2)
        workers[0].kill()
        found = [each.result() for each in sent]
    assert len({each for (each,) in found}) == 6
    assert done(server) == before + 6
    assert not broker.client.keys("graphc:said:*"), "what attempts said is taken away"


def test_steps_previews_interrupts_and_errors_come_through(server, workers):
    with ThreadPoolExecutor(1) as clients:
        sent = clients.submit(
            paint, server, steps=400, force_task_id="long", override_settings={"show_progress_every_n_steps": 1}
        )
        said = until(lambda: progress(server, "long"))
        assert 0 < said["progress"] < 1
        until(lambda: server.client.get("/sdapi/v1/progress").json()["current_image"])
        assert server.client.post("/sdapi/v1/interrupt").status_code == 200
        assert len(sent.result()) == 1
    answer = server.client.post("/sdapi/v1/txt2img", json={**SMALL, "width": 64, "sampler_name": "none"})
    assert answer.status_code in (400, 404, 422)
    answer = server.client.post("/sdapi/v1/txt2img", json={**SMALL, "prompt": "a <lora:missing:1> circle"})
    assert answer.status_code == 200
    assert "missing" in answer.text


def test_a_worker_that_ends_gives_its_job_back(server, workers):
    count = 8  # one worker may be done with a job before the other has its model
    with ThreadPoolExecutor(count) as clients:
        sent = [clients.submit(paint, server, steps=40, seed=seed) for seed in range(count)]
        until(lambda: sum(each["state"] == "painting" for each in jobs(server)) == 2)
        time.sleep(0.5)
        workers[1].process.terminate()
        assert len({each.result()[0] for each in sent}) == count
    assert workers[1].process.wait(60) == 0


def test_a_redis_that_forgets_everything(server, workers, broker):
    with ThreadPoolExecutor(1) as clients:
        sent = clients.submit(paint, server, steps=30)
        until(lambda: any(each["state"] == "painting" for each in jobs(server)))
        broker.kill()
        broker.start()
        assert len(sent.result()) == 1


def done(server):
    """How many jobs were done; each is counted once."""
    (found,) = re.findall(r'graphc_jobs\{state="done"\} (\d+)', server.client.get("/metrics").text)
    return int(found)


def jobs(server):
    return server.client.get("/graphc/v1/jobs").json()["jobs"]


def progress(server, id):
    answer = server.client.post("/internal/progress", json={"id_task": id}).json()
    return answer if answer.get("progress") else None
