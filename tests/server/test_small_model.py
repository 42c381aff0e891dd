"""A server without any folder of models offers the small one that comes with the package."""

from __future__ import annotations

import base64
import io

import pytest
from PIL import Image

pytest.importorskip("torch")
from served import Served

from graphc_images.folders import SHAPES
from graphc_server.service import Setup


def test_it_is_there_without_a_folder_of_models(tmp_path):
    with Served(Setup(models=(SHAPES.parent,), data=tmp_path, threads=1)) as server:
        assert [each["model_name"] for each in server.get("/sdapi/v1/sd-models")] == ["shapes"]
        answer = server.post(
            "/sdapi/v1/txt2img", {"prompt": "a blue cross", "steps": 8, "width": 128, "height": 128, "seed": 1}
        )
        picture = Image.open(io.BytesIO(base64.b64decode(answer["images"][0])))
    assert picture.size == (128, 128)
    red, _, blue = min(picture.getdata(), key=lambda pixel: pixel[0])
    assert blue > red + 80
