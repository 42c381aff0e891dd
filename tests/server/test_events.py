"""What happens to jobs is told: over server-sent events, over a WebSocket, and to those who ask again and again."""

import asyncio
import base64
import io
import json
import threading
from contextlib import suppress

import httpx
import pytest
from PIL import Image
from served import SMALL, Process, Served, until, write_models

from graphc_server.events import MOST, Announcer, Channel
from graphc_server.service import Setup

torch = pytest.importorskip("torch")
client = pytest.importorskip("websockets.sync.client")
ConnectionClosedError = pytest.importorskip("websockets.exceptions").ConnectionClosedError
pytestmark = pytest.mark.torch

LOOK = {"live_previews_enable": True, "show_progress_every_n_steps": 2, "show_progress_type": "Approx cheap"}


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    return write_models(tmp_path_factory.mktemp("webui"), "one")


@pytest.fixture(scope="module")
def served(models, tmp_path_factory):
    with Served(Setup((models,), tmp_path_factory.mktemp("data"), threads=1)) as running:
        yield running


def by_events(served, **asked):
    """Server-sent events, as they come."""
    with httpx.stream("GET", f"{served.url}/graphc/v1/events", params=asked, timeout=60) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        for line in answer.iter_lines():
            if line.startswith("data: "):
                yield json.loads(line[6:])


def by_socket(served, **asked):
    """The same over a WebSocket."""
    address = str(httpx.URL(f"ws://127.0.0.1:{served.port}/graphc/v1/events", params=asked))
    with client.connect(address) as socket:
        for message in socket:
            yield json.loads(message)


def heard(listen, served, id, **asked):
    """All that is told until a job is over, begun before the job."""
    found, listening = [], threading.Event()

    def run():
        for event in listen(served, **asked):
            found.append(event)
            if event["job"] == "first":
                listening.set()
            if (event["kind"], event["job"], event.get("state")) == ("job", id, "done"):
                return

    thread = threading.Thread(target=run)
    thread.start()
    while not listening.wait(0.2):
        served.paint(steps=1, force_task_id="first")
    served.paint(steps=6, n_iter=2, force_task_id=id, override_settings=LOOK)
    thread.join(60)
    return [event for event in found if event["job"] == id]


@pytest.mark.parametrize("listen", [by_events, by_socket])
def test_every_step_and_preview_is_told_in_order(served, listen):
    found = heard(listen, served, f"told-{listen.__name__}")
    told = [event["state"] if event["kind"] == "job" else event["kind"] for event in found]
    assert (told[0], told[-1]) == ("waiting", "done")
    assert told.count("picture") == 2
    steps = [event for event in found if event["kind"] == "progress"]
    assert [event["share"] for event in steps] == sorted(event["share"] for event in steps)
    assert (steps[-1]["share"], steps[-1]["batches"]) == (1, 2)
    previews = [event for event in found if event["kind"] == "preview"]
    assert 1 <= len(previews) <= 6  # after steps 2, 4 and 6 of both batches; who listens slowly hears of the last alone
    head, _, content = previews[-1]["picture"].partition(",")
    assert head == "data:image/png;base64"
    assert Image.open(io.BytesIO(base64.b64decode(content))).size == (8, 8)


def test_some_kinds_of_one_job(served):
    found = heard(by_events, served, "some", kind="job")
    assert [event["state"] for event in found] == ["waiting", "painting", "done"]
    (only,) = (next(by_events(served, job="some")) for _ in range(1))
    assert only == {"kind": "job", "job": "some", "state": "done", "error": ""}


def test_who_comes_later_hears_how_things_are_and_asking_says_the_same(served):
    ids = "long", "behind"
    threads = [
        threading.Thread(target=served.paint, kwargs={"steps": 300, "force_task_id": id, "override_settings": LOOK})
        for id in ids
    ]
    threads[0].start()
    until(lambda: served.service.painter.turn and served.service.painter.turn.preview)
    threads[1].start()
    until(lambda: served.service.store.waiting())
    said = served.get("/graphc/v1/progress")
    assert [(event["kind"], event["job"]) for event in said] == [
        ("job", "long"),
        ("progress", "long"),
        ("job", "behind"),
    ]
    assert (said[0]["state"], said[2]["state"]) == ("painting", "waiting")
    events = by_events(served)
    assert [next(events)["kind"] for _ in range(4)] == ["job", "progress", "preview", "job"]
    answer = served.client.get("/graphc/v1/jobs/long/preview")
    assert (answer.status_code, answer.headers["content-type"]) == (200, "image/png")
    assert Image.open(io.BytesIO(answer.content)).size == (8, 8)
    for _ in ids:
        served.post("/sdapi/v1/interrupt")
        until(lambda: not served.service.painter.turn or served.service.painter.turn.job.id == "behind")
    until(lambda: served.post("/sdapi/v1/interrupt") == {} and not served.service.painter.turn)
    for thread in threads:
        thread.join()
    assert served.client.get("/graphc/v1/jobs/long/preview").status_code == 404
    assert served.get("/graphc/v1/progress") == []


def test_sockets_are_guarded_as_requests_are(models, tmp_path):
    from websockets.exceptions import InvalidStatus

    with Served(Setup((models,), tmp_path, users={"ann": "secret"}, threads=1)) as served:
        address = f"ws://127.0.0.1:{served.port}/graphc/v1/events"
        right = {"Authorization": "Basic " + base64.b64encode(b"ann:secret").decode()}
        for more, status in (
            ({}, 401),
            ({"additional_headers": {"Authorization": "Basic " + base64.b64encode(b"ann:x").decode()}}, 401),
            ({"additional_headers": right, "origin": "http://evil.example"}, 403),
        ):
            with pytest.raises(InvalidStatus) as refused:
                client.connect(address, **more)
            assert refused.value.response.status_code == status
        with client.connect(address, additional_headers=right, origin=served.url):
            pass
        with pytest.raises(InvalidStatus) as refused:
            client.connect(address.replace("127.0.0.1", "localhost.example"), sock=_connected(served.port))
        assert refused.value.response.status_code == 403


def _connected(port):
    import socket

    return socket.create_connection(("127.0.0.1", port))


def test_a_stop_ends_what_listens(models, tmp_path):
    running = Process(models, tmp_path, "--patience", "30")
    running.url = f"http://127.0.0.1:{running.port}"
    heard, ended = set(), set()

    def listen(way):
        with suppress(ConnectionClosedError):  # the process may be gone before a goodbye has been answered
            for _ in way(running):
                heard.add(way)
        ended.add(way)

    threads = [threading.Thread(target=listen, args=(way,), daemon=True) for way in (by_events, by_socket)]
    for thread in threads:
        thread.start()
    until(lambda: len(heard) == 2 or not running.client.post("/sdapi/v1/txt2img", json=SMALL).raise_for_status())
    running.end()
    for thread in threads:
        thread.join(30)
    assert len(ended) == 2


def test_who_does_not_listen_costs_little():
    async def run():
        announcer = Announcer()
        with Channel(announcer, lambda event: True) as slow:
            for place in range(3):
                announcer.tell("job", "one", {"state": "waiting"})
                announcer.tell("progress", "one", {"step": place})
                announcer.tell("picture", "one", {"place": place})
            announcer.tell("job", "one", {"state": "done"})
            await asyncio.sleep(0)
            found = await slow.next(1)
            kinds = [event.kind for event in found]
            assert kinds == ["picture", "picture", "job", "progress", "picture", "job"]
            assert found[3].said == {"step": 2}
            for number in range(MOST + 10):
                announcer.tell("job", str(number), {"state": "waiting"})
            await asyncio.sleep(0)
            assert len(await slow.next(1)) == MOST
            assert await slow.next(1) is None
        assert announcer.listeners == set()

    asyncio.run(run())
