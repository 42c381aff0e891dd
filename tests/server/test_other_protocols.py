"""OpenAI's endpoints by its own client, stable-diffusion.cpp's jobs, and what operators ask."""

import pytest
from PIL import Image
from served import Served, content_of, opened, until, write_models

from graphc_server.service import Setup

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    models = write_models(tmp_path_factory.mktemp("webui"), "one", "two")
    with Served(Setup((models,), tmp_path_factory.mktemp("data"), threads=2)) as running:
        yield running


def as_file(picture):
    return ("picture.png", content_of(picture), "image/png")


def test_the_real_client_of_openai(served):
    openai = pytest.importorskip("openai")
    with openai.OpenAI(base_url=f"{served.url}/v1", api_key="none", max_retries=0) as client:
        assert {each.id for each in client.models.list()} == {"one", "two"}
        made = client.images.generate(prompt="a red circle", n=2, size="64x64", model="two", output_format="webp")
        assert [opened(each.b64_json).size for each in made.data] == [(64, 64)] * 2
        assert opened(made.data[0].b64_json).format == "WEBP"
        picture, mask = Image.new("RGB", (64, 64), "red"), Image.new("RGBA", (64, 64), (0, 0, 0, 255))
        mask.paste((0, 0, 0, 0), (0, 0, 32, 64))
        edited = client.images.edit(prompt="a circle", image=as_file(picture), mask=as_file(mask), size="64x64")
        found = opened(edited.data[0].b64_json)
        assert found.crop((40, 0, 64, 64)).getcolors() == [(24 * 64, (255, 0, 0))]
        assert found.crop((0, 0, 24, 64)).getcolors() != [(24 * 64, (255, 0, 0))]
        for wrong, says in (
            ({"size": "large"}, "size"),
            ({"model": "three"}, "three"),
            ({"response_format": "url"}, "response_format"),
            ({"stream": True}, "stream"),
        ):
            with pytest.raises(openai.APIStatusError, match=says):
                client.images.generate(prompt="x", **wrong)


def test_a_job_of_stable_diffusion_cpp(served):
    asked = {"prompt": "a", "width": 64, "height": 64, "seed": 3, "batch_count": 2, "sample_params": {
        "sample_method": "euler_a", "scheduler": "karras", "sample_steps": 2, "guidance": {"txt_cfg": 5},
    }}  # fmt: skip
    answer = served.client.post("/sdcpp/v1/img_gen", json=asked)
    assert answer.status_code == 202
    place = answer.json()["poll_url"]
    job = until(lambda: (found := served.get(place))["status"] == "completed" and found)
    assert [opened(each["b64_json"]).size for each in job["result"]["images"]] == [(64, 64)] * 2
    assert served.client.post(f"{place}/cancel").status_code == 409
    assert served.client.get("/sdcpp/v1/jobs/none").status_code == 404
    for wrong, says in (({"lora": [{"path": "/etc/x"}]}, "lora"), ({"output_format": "gif"}, "output_format")):
        refused = served.client.post("/sdcpp/v1/img_gen", json={**asked, **wrong})
        assert refused.status_code == 400
        assert says in refused.json()["detail"]
    assert "euler_a" in served.get("/sdcpp/v1/capabilities")["samplers"]


def test_a_job_is_cancelled_while_it_waits_and_while_it_is_painted(served):
    long = {"width": 64, "height": 64, "batch_count": 50, "sample_params": {"sample_steps": 500}}
    first = served.client.post("/sdcpp/v1/img_gen", json=long).json()["poll_url"]
    until(lambda: served.get(first).get("progress"))  # two that wait and are alike would be painted together
    second = served.client.post("/sdcpp/v1/img_gen", json=long).json()["poll_url"]
    assert served.get(second)["queue_position"] == 1
    for place in (second, first):
        assert served.post(f"{place}/cancel")["status"] == "cancelled"
        until(lambda place=place: served.get(place)["status"] == "cancelled")
    assert served.paint()["images"]


def test_what_operators_ask(served):
    assert served.get("/health") == {"status": "ok"}
    text = served.client.get("/metrics").text
    assert 'graphc_jobs{state="waiting"} 0' in text
    assert all(len(line.split()) == 2 for line in text.splitlines() if not line.startswith("#"))
    page = served.client.get("/docs").text
    assert "/sdapi/v1/txt2img" in page
    assert "http://" not in page.replace("http://127.0.0.1", "")
    assert "https://" not in page
