"""What is refused before it does harm."""

import base64
import struct
import threading
import zlib
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from served import SMALL, Served, write_models

from graphc_server.errors import RequestError
from graphc_server.fetching import Fetching, public
from graphc_server.limits import Limits
from graphc_server.pictures import decoded, opened
from graphc_server.service import Setup

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    return write_models(tmp_path_factory.mktemp("webui"), "one")


@pytest.fixture(scope="module")
def served(models, tmp_path_factory):
    setup = Setup(
        (models,), tmp_path_factory.mktemp("data"), users={"ann": "secret", "bob": "päss"}, hosts=("pictures.example",),
        origins=("https://friend.example",), limits=Limits(body=20_000), threads=1,
    )  # fmt: skip
    with Served(setup) as running:
        running.client.auth = ("ann", "secret")
        yield running


def status(served, path="/sdapi/v1/options", **headers):
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return served.client.get(path, headers=named).status_code


def test_passwords(served):
    assert status(served) == 200
    served.client.auth = None
    try:
        answer = served.client.get("/sdapi/v1/options")
        assert (answer.status_code, answer.headers["www-authenticate"].split()[0]) == (401, "Basic")
        for wrong in ("Basic", "Basic x", "Basic " + base64.b64encode(b"ann:bob").decode(), "Bearer x", "Digest ann"):
            assert status(served, authorization=wrong) == 401
        for right in ("bob:päss", "ann:secret"):
            assert status(served, authorization="Basic " + base64.b64encode(right.encode()).decode()) == 200
        assert status(served, authorization="Bearer secret") == 200
        assert status(served, "/health") == 200
        assert status(served, "/metrics") == 401
    finally:
        served.client.auth = ("ann", "secret")


def test_hosts_and_pages(served):
    for host in ("pictures.example", "PICTURES.example:80", "localhost:1", "127.0.0.1", "[::1]:7860", "192.168.0.3"):
        assert status(served, host=host) == 200
    for host in ("evil.example", "localhost.evil.example", "", "pictures.example.evil"):
        assert status(served, host=host) == 403
    assert status(served, origin="https://friend.example") == 200
    assert status(served, origin=served.url) == 200
    for origin in ("https://evil.example", "null", f"{served.url}.evil.example"):
        assert status(served, origin=origin) == 403


def test_bodies_are_limited(served):
    large = {"prompt": "a" * 30_000}
    assert served.client.post("/sdapi/v1/txt2img", json=large).status_code == 413

    def pieces():
        for _ in range(100):
            yield b"a" * 1000

    answer = served.client.post("/sdapi/v1/txt2img", content=pieces())
    assert answer.status_code == 413


def test_names_find_no_files_elsewhere(served, models, tmp_path):
    outside = tmp_path / "x.safetensors"
    outside.write_bytes((models / "models" / "Stable-diffusion" / "one.safetensors").read_bytes())
    for field, path in (("sd_model_checkpoint", str(outside)), ("sd_vae", str(outside))):
        answer = served.client.post("/sdapi/v1/txt2img", json={**SMALL, "override_settings": {field: path}})
        assert answer.status_code in (404, 422)
        assert field in answer.json()["detail"]
    made = served.client.post("/sdapi/v1/txt2img", json={**SMALL, "prompt": f"a<lora:{outside}:1>"})
    assert "there is no lora" in made.json()["info"]
    hires = {**SMALL, "enable_hr": True, "hr_upscaler": str(outside), "hr_scale": 1.5}
    assert "there is no upscaler" in served.client.post("/sdapi/v1/txt2img", json=hires).json()["detail"]


def bomb(width, height):
    """A PNG of a few bytes that says that it is large."""

    def chunk(kind, body):
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")


@pytest.mark.parametrize(
    "content", [bomb(60000, 60000), bomb(0, 0), b"", b"%!PS-Adobe", b"\x89PNG\r\n\x1a\n", bomb(64, 64)[:60]]
)
def test_pictures_that_are_none(content):
    with pytest.raises(RequestError, match=r"^image: [^<]+$"):
        opened(content, "image", 1 << 24)


@pytest.mark.parametrize("text", ["", "!", "data:image/png;base64,", "data:,x", "é", "AAAA"])
def test_texts_that_are_no_pictures(text):
    with pytest.raises(RequestError, match=r"^image: [^<]+$"):
        decoded(text, "image", 1 << 24, lambda url: b"")


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "10.1.2.3",
        "192.168.1.1",
        "169.254.169.254",
        "::1",
        "fe80::1%eth0",
        "::ffff:127.0.0.1",
        "0.0.0.0",
        "224.0.0.1",
    ],
)
def test_private_addresses(address):
    assert not public(address)
    assert public("93.184.216.34")


class Page(BaseHTTPRequestHandler):
    """Redirects to where its path says, or answers."""

    def do_GET(self):
        target = "/loop" if self.path == "/loop" else self.path.partition("?to=")[2]
        self.send_response(302 if target else 200)
        if target:
            self.send_header("Location", target)
        self.end_headers()
        self.wfile.write(b"" if target else b"content")

    def log_message(self, *_):
        pass


@pytest.fixture
def page():
    server = HTTPServer(("127.0.0.1", 0), Page)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server.server_address[1]
    server.shutdown()
    thread.join()
    server.server_close()


def test_nothing_is_fetched_unless_it_is_allowed(page):
    with pytest.raises(RequestError, match="not allowed"):
        Fetching().fetch(f"http://127.0.0.1:{page}/")
    with pytest.raises(RequestError, match="local resource"):
        Fetching(allowed=True).fetch(f"http://localhost:{page}/")
    assert Fetching(allowed=True, private=True).fetch(f"http://127.0.0.1:{page}/a?b=c") == b"content"
    with pytest.raises(RequestError, match="more than 3 bytes"):
        Fetching(allowed=True, private=True, longest=3).fetch(f"http://127.0.0.1:{page}/")


def test_redirects_are_looked_at(page):
    first = f"http://first.example:{page}/"
    asked = []

    def look_up(host, port):
        """The first name may be reached, though it is here; others are what they are."""
        asked.append(host)
        return {"first.example": ["127.0.0.1"], "private.example": ["10.0.0.1"]}.get(host, [])

    reach = Fetching(allowed=True, private=True, look_up=look_up)
    assert reach.fetch(f"{first}?to=http://first.example:{page}/b") == b"content"
    with pytest.raises(RequestError, match="redirects more than 3"):
        reach.fetch(f"{first}loop")
    for target, says in (("file:///etc/passwd", "not a plain http"), ("http://u@first.example/", "not a plain http")):
        with pytest.raises(RequestError, match=says):
            reach.fetch(f"{first}?to={target}")
    strict = Fetching(allowed=True, look_up=lambda host, port: ["93.184.216.34", "10.0.0.1"])
    with pytest.raises(RequestError, match="local resource"):
        strict.fetch("http://both.example/")
