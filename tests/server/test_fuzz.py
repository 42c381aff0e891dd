"""Every endpoint of the OpenAPI description with drawn bodies: whatever is sent, the answer is no 500 and is JSON."""

import json
import random
import re

import pytest
from chance import ODD as ANYWHERE
from served import Served, write_models

from graphc_server.limits import Limits
from graphc_server.service import Setup

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

ODD = (
    *ANYWHERE, "None", "Automatic", {"args": 3}, "data:image/png;base64,AAAA", "<lora:a:b>", "<hypernet:x:1>", "[a:b:",
    "AND", "Steps: 1, Size: 0x0, Seed: x, a: b",
)  # fmt: skip
SKIPPED = ("/sdapi/v1/server-stop", "/sdapi/v1/server-kill", "/graphc/v1/events", "/openapi.json", "/docs")


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    models = write_models(tmp_path_factory.mktemp("webui"), "one")
    limits = Limits(pixels=64 * 64, steps=2, pictures=2, body=100_000)
    with Served(Setup((models,), tmp_path_factory.mktemp("data"), limits=limits, threads=1)) as running:
        yield running


def drawn(random, schema, whole):
    """A body of a schema's fields: most left out, some as they are usually, some odd."""
    name = schema.get("$ref", "").rpartition("/")[2]
    properties = whole["components"]["schemas"].get(name, {}).get("properties", {})
    if not properties or random.random() < 0.05:
        return random.choice(ODD)
    body = {"prompt": "a", "steps": 1, "width": 64, "height": 64} if "steps" in properties else {}
    for field in random.sample(list(properties), min(len(properties), random.randint(0, 4))):
        body[field] = random.choice(ODD)
    return body


def endpoints(whole):
    for path, verbs in sorted(whole["paths"].items()):
        for verb, operation in sorted(verbs.items()):
            if path not in SKIPPED:
                yield verb, path, operation


def asked(served, seed, rounds):
    """Send them; what was sent is in the message of a failure."""
    draw = random.Random(seed)
    whole = served.get("/openapi.json")
    kinds = set()
    for verb, path, operation in list(endpoints(whole)) * rounds:
        content = operation.get("requestBody", {}).get("content", {})
        schema = next(iter(content.values()), {}).get("schema", {})
        body = drawn(draw, schema, whole) if verb in ("post", "put") else None
        text = json.dumps(body) if draw.random() > 0.03 else draw.choice(["{", "", "NaN", '{"steps": NaN}', "[" * 2000])
        url = re.sub(r"\{\w+\}", lambda _: draw.choice(["x", "%00", "a" * 300, "..%2f", "1"]), path)
        headers = {"content-type": "application/json"} if verb in ("post", "put") else {}
        answer = served.client.request(verb, url, content=text if verb in ("post", "put") else None, headers=headers)
        kinds.add(answer.status_code)
        assert answer.status_code < 500 or answer.status_code == 501, (verb, url, text[:300], answer.text)
        if answer.headers.get("content-type", "").startswith("application/json"):
            answer.json()
    return kinds


def test_whatever_is_sent_is_answered(served):
    assert {200, 422} <= asked(served, 1, 8)
    assert served.paint(width=64, height=64)["images"]


@pytest.mark.thorough
def test_much_more_is_answered(served):
    for seed in range(2, 12):
        asked(served, seed, 30)
