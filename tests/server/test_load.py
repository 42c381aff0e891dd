"""Many clients at once, of which some go away and some are wrong: every answer is the right one, and nothing is left behind."""

from __future__ import annotations

import asyncio
import base64
import io
import random
import sqlite3
import time

import httpx
import pytest
from PIL import Image
from served import SMALL, Process, opened, until, write_models

import graphc_images

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

SIZES = ((64, 64), (96, 64))
PROMPTS = ("a red circle", "a blue square", "two green triangles")
SEEDS = range(4)
WRONG = (
    ({"sampler_name": "Eular"}, 400),
    ({"steps": 0}, 422),
    ({"steps": "many"}, 422),
    ({"override_settings": {"sd_model_checkpoint": "none"}}, 404),
    ({"alwayson_scripts": {"controlnet": {"args": [{"model": "none", "image": "x"}]}}}, 422),
    ({"width": 1 << 16, "height": 1 << 16}, 422),
)


def expected(models):
    """The pictures by what is asked for, as the library and the command line make them."""
    pipeline = graphc_images.load("one", folders=models, threads=1)
    usual = {"cfg_scale": 7.0, "sampler": "Euler", "steps": 2}
    return {
        (prompt, seed, size): pipeline(prompt, seed=seed, width=size[0], height=size[1], **usual)[0].image.tobytes()
        for prompt in PROMPTS
        for seed in SEEDS
        for size in SIZES
    }


class Client:
    """One of many: it asks until the time is over, and says how often it had what."""

    def __init__(self, number, url, pictures, counts) -> None:
        self.draw = random.Random(number)
        self.pictures, self.counts = pictures, counts
        agent = {"user-agent": f"client {number}"}
        self.http = httpx.AsyncClient(base_url=url, headers=agent, timeout=300)

    async def run(self, count, seconds):
        """So many requests, and more until so many seconds are over."""
        end = time.monotonic() + seconds
        async with self.http:
            while count > 0 or time.monotonic() < end:
                count -= 1
                kind = self.draw.choices((self.right, self.goes_away, self.wrong, self.looks), (6, 1, 1, 2))[0]
                await kind()
                self.counts[kind.__name__] = self.counts.get(kind.__name__, 0) + 1

    def asked(self):
        prompt, seed, size = self.draw.choice(PROMPTS), self.draw.choice(SEEDS), self.draw.choice(SIZES)
        return (prompt, seed, size), {**SMALL, "prompt": prompt, "seed": seed, "width": size[0], "height": size[1]}

    async def right(self):
        key, body = self.asked()
        count = self.draw.choice((1, 1, 2)) if key[1] == 0 else 1
        answer = await self.http.post("/sdapi/v1/txt2img", json={**body, "batch_size": count})
        assert answer.status_code == 200, answer.text
        found = [opened(each).tobytes() for each in answer.json()["images"]]
        assert found == [self.pictures[key[0], key[1] + place, key[2]] for place in range(count)]

    async def goes_away(self):
        _, body = self.asked()
        picture = io.BytesIO()
        Image.new("RGB", (64, 64), (self.draw.randrange(256), 0, 0)).save(picture, "PNG")
        image = {"init_images": [base64.b64encode(picture.getvalue()).decode()]}
        body |= {"steps": 40, "n_iter": 4}
        try:
            await self.http.post("/sdapi/v1/img2img", json={**body, **image}, timeout=self.draw.random() / 2)
        except httpx.TimeoutException:
            return

    async def wrong(self):
        _, body = self.asked()
        more, status = self.draw.choice(WRONG)
        answer = await self.http.post("/sdapi/v1/txt2img", json={**body, **more})
        assert answer.status_code == status, answer.text
        assert answer.json()["detail"]

    async def looks(self):
        for path in ("/sdapi/v1/progress", "/sdapi/v1/options", "/internal/pending-tasks", "/health"):
            assert (await self.http.get(path)).status_code == 200


def memory_of(server):
    lines = server.client.get("/metrics").text.splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith("graphc_memory_bytes "))


def loaded(models, data, clients, count, seconds=0.0):
    """Let so many clients ask so often, and for so long. How often they had what is returned, and the server's memory after a
    third of that, and at the end."""
    pictures = expected(models)
    server = Process(models, data)
    try:
        url = f"http://127.0.0.1:{server.port}"
        counts = {}

        async def all_of_them(turns, share):
            several = (Client(number, url, pictures, counts) for number in range(clients))
            await asyncio.gather(*(each.run(turns, seconds * share) for each in several))

        asyncio.run(all_of_them(count, 1 / 3))
        before = memory_of(server)
        asyncio.run(all_of_them(2 * count, 2 / 3))
        until(lambda: server.client.get("/internal/pending-tasks").json()["size"] == 0)
        until(lambda: server.client.get("/sdapi/v1/progress").json()["state"]["job_count"] == 0)
        after = memory_of(server)
        assert server.client.get("/health").status_code == 200
    finally:
        server.end()
    with sqlite3.connect(data / "jobs.sqlite") as database:
        states = dict(database.execute("SELECT state, COUNT(*) FROM jobs GROUP BY state").fetchall())
    assert not states.keys() - {"done", "cancelled"}
    for folder in ("uploads", "pictures"):
        assert list((data / folder).iterdir()) == []
    return counts, before, after


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    return write_models(tmp_path_factory.mktemp("webui"), "one")


def test_a_dozen_clients(models, tmp_path):
    counts, before, after = loaded(models, tmp_path / "data", 12, 5)
    assert set(counts) == {"right", "goes_away", "wrong", "looks"}
    assert after < before + (64 << 20)


@pytest.mark.thorough
def test_sixty_four_clients_for_two_minutes(models, tmp_path):
    counts, before, after = loaded(models, tmp_path / "data", 64, 4, 120)
    assert min(counts[name] for name in ("right", "goes_away", "wrong", "looks")) > 64
    assert after < before + (32 << 20)
