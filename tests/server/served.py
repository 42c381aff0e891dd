"""A server of the small model in this process, and one that is a process of its own."""

from __future__ import annotations

import base64
import contextlib
import io
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import httpx
import uvicorn
from PIL import Image

from graphc_server.app import create_app
from graphc_server.service import Setup

IMAGES = Path(__file__).parents[1] / "images"
SMALL = {"prompt": "a red circle", "steps": 2, "width": 64, "height": 64, "seed": 1}


def write_models(folder, *names):
    """Small models, each with other weights, laid out as A1111 does."""
    for place in (IMAGES, IMAGES.parents[1]):
        if str(place) not in sys.path:
            sys.path.append(str(place))
    from small_checkpoint import small_modules, write_small

    place = folder / "models" / "Stable-diffusion"
    place.mkdir(parents=True)
    for seed, name in enumerate(names):
        write_small(place / f"{name}.safetensors", small_modules(seed))
    return folder


def write_control(path):
    """A ControlNet of the small model that changes much."""
    import torch
    from safetensors.torch import save_file
    from small_checkpoint import small_modules

    from examples.shapes.networks import build_controlnet

    torch.manual_seed(3)
    control = build_controlnet(small_modules()[0])
    with torch.no_grad():
        for name, parameter in control.named_parameters():
            if "controlnet_" in name:
                parameter.normal_(0, 0.1)
    save_file(control.state_dict(), path)


class Served:
    """A server in a thread of this process; `client` asks it."""

    def __init__(self, setup: Setup) -> None:
        self.app = create_app(setup)
        self.service = self.app.state.service
        self.server = uvicorn.Server(uvicorn.Config(self.app, port=0, log_level="error", timeout_graceful_shutdown=10))
        self.thread = threading.Thread(target=self.server.run)

    def __enter__(self):
        self.thread.start()
        until(lambda: self.server.started)
        port = self.server.servers[0].sockets[0].getsockname()[1]
        self.port, self.url = port, f"http://127.0.0.1:{port}"
        self.client = httpx.Client(base_url=self.url, timeout=300)
        return self

    def __exit__(self, *error):
        self.client.close()
        self.server.should_exit = True
        self.thread.join()

    def get(self, path, **more):
        answer = self.client.get(path, **more)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def post(self, path, body=None, **more):
        answer = self.client.post(path, json={} if body is None else body, **more)
        assert answer.status_code in (200, 202), answer.text
        return answer.json()

    def paint(self, **fields):
        return self.post("/sdapi/v1/txt2img", {**SMALL, **fields})


def opened(text):
    """The picture of an answer, in base64."""
    return Image.open(io.BytesIO(base64.b64decode(text)))


def content_of(picture):
    """A picture as a PNG file."""
    made = io.BytesIO()
    picture.save(made, "PNG")
    return made.getvalue()


def written(picture):
    """The same in base64, as requests have it."""
    return base64.b64encode(content_of(picture)).decode()


def pixels(*texts):
    """What pictures in base64 show."""
    return [opened(each).tobytes() for each in texts]


def pixels_of(answer):
    """The same of all pictures of an answer."""
    return pixels(*answer["images"])


def until(what, seconds=60.0):
    """Wait until something is so; what it is, is returned."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = what()
        if found:
            return found
        time.sleep(0.01)
    raise AssertionError(f"{what} did not come true in {seconds} s")


class Process:
    """`graphc serve` as a process; over HTTPS where `trusts` says whom to trust."""

    def __init__(self, models, data, *more, trusts=None) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        code = "from graphc_server.commands import serve; serve()"
        options = ["--models", models, "--data", data, "--port", self.port, "--threads", 1, *more]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(IMAGES.parents[1]), *sys.path])}
        # A pipe that nobody reads fills, and the server waits for room.
        self.log = tempfile.TemporaryFile("w+")  # noqa: SIM115
        self.process = subprocess.Popen(
            [sys.executable, "-c", code, *map(str, options)], stderr=self.log, text=True, env=environment
        )
        scheme = "http" if trusts is None else "https"
        self.client = httpx.Client(
            base_url=f"{scheme}://127.0.0.1:{self.port}", timeout=300, verify=True if trusts is None else trusts
        )
        until(self.answers)

    def answers(self):
        assert self.process.poll() is None, self.said()
        with contextlib.suppress(httpx.TransportError):
            return self.client.get("/health").status_code == 200
        return False

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.log.close()
        self.client.close()

    def said(self):
        """Its log until now."""
        self.log.seek(0)
        return self.log.read()

    def end(self):
        """As an operator does; its log is returned."""
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(timeout=60)
        with self.log:
            said = self.said()
        self.client.close()
        return said
