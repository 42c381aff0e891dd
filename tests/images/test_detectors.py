"""Preprocessors that are ONNX files: what they are shown, and how what they give is read, by their names."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from graphc_images.detectors import ADE20K, Detectors
from graphc_images.errors import ModelError

SIDE = 56
PIXELS = np.random.default_rng(0).integers(0, 256, (SIDE, SIDE, 3), np.uint8)
COLOURS = PIXELS.astype(np.float32) / 255


def write(path, nodes, *, shape=(1, 3, "height", "width"), output=(1, 3, "h", "w"), constants=()):
    """A network of a picture, named as people name such files."""
    graph = helper.make_graph(
        nodes, "preprocessor",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("made", TensorProto.FLOAT, output)],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in dict(constants).items()],
    )  # fmt: skip
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10), path)
    return path


def seen(path, pixels=PIXELS, resolution=SIDE):
    return Detectors(None)(pixels, str(path), resolution)


def mean_of_channels(path, **sizes):
    nodes = [helper.make_node("ReduceMean", ["image", "axes"], ["made"], keepdims=0)]
    return write(path, nodes, output=(1, "h", "w"), constants={"axes": [1]}, **sizes)


def identity(path, **more):
    return write(path, [helper.make_node("Identity", ["image"], ["made"])], **more)


@pytest.mark.parametrize(("name", "sign"), [("depth_anything_v2_small", 1), ("dpt-hybrid-midas", 1), ("zoedepth", -1)])
def test_depth_is_white_where_it_is_near(tmp_path, name, sign):
    found, shows = seen(mean_of_channels(tmp_path / f"{name}.onnx"))
    mean, deviation = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)) if "anything" in name else ((0.5,) * 3, (0.5,) * 3)
    depth = sign * ((COLOURS - mean) / deviation).mean(2)
    expected = (depth - depth.min()) / (depth.max() - depth.min()) * 255
    assert shows == "depth"
    assert np.abs(found[..., 0] - expected).max() <= 1
    assert (found[..., :1] == found).all()


def test_a_flat_picture_has_no_depth(tmp_path):
    found, _ = seen(mean_of_channels(tmp_path / "depth.onnx"), np.full((SIDE, SIDE, 3), 7, np.uint8))
    assert not found.any()


def test_pictures_go_through(tmp_path):
    found, shows = seen(identity(tmp_path / "something.onnx"))
    assert shows is None
    assert np.abs(found.astype(int) - PIXELS).max() <= 1
    found, shows = seen(identity(tmp_path / "dwpose.onnx"))
    assert shows == "openpose"
    assert np.abs(found.astype(int) - PIXELS).max() <= 1


def test_lines_are_white(tmp_path):
    first = [
        helper.make_node("Slice", ["image", "zero", "one", "axes"], ["made"]),
    ]
    constants = {"zero": [0], "one": [1], "axes": [1]}
    drawn, shows = seen(write(tmp_path / "lineart.onnx", first, output=(1, 1, "h", "w"), constants=constants))
    assert shows == "canny"
    assert np.abs(drawn[..., 0] - (255 - PIXELS[..., 0].astype(int))).max() <= 1, "black on white in the network"
    edges, shows = seen(write(tmp_path / "pidinet.onnx", first, output=(1, 1, "h", "w"), constants=constants))
    assert shows == "softedge"
    assert np.abs(edges[..., 0] - PIXELS[..., 0].astype(int)).max() <= 1
    logits, _ = seen(write(tmp_path / "ControlNetHED.onnx", first, output=(1, 1, "h", "w"), constants=constants))
    assert np.abs(logits[..., 0] - 255 / (1 + np.exp(-PIXELS[..., 0].astype(float)))).max() <= 1, "it is shown levels"


def test_normals_are_of_length_one(tmp_path):
    found, shows = seen(identity(tmp_path / "dsine.onnx"))
    given = (COLOURS - (0.485, 0.456, 0.406)) / (0.229, 0.224, 0.225)
    expected = (given / np.linalg.norm(given, axis=2, keepdims=True) + 1) * 127.5
    assert shows == "normal"
    assert np.abs(found - expected).max() <= 1


def test_segments_have_the_colours_of_ade20k(tmp_path):
    assert ADE20K.shape == (150, 3)
    nodes = [helper.make_node("Conv", ["image", "weight"], ["made"])]
    weight = np.zeros((150, 3, 1, 1), np.float32)
    weight[2, 0], weight[100, 1], weight[149, 2] = 1, 1, 1
    path = write(tmp_path / "upernet_seg.onnx", nodes, output=(1, 150, "h", "w"), constants={"weight": weight})
    found, shows = seen(path)
    given = (COLOURS - np.float32((0.485, 0.456, 0.406))) / np.float32((0.229, 0.224, 0.225))
    classes = np.where(given.max(2) > 0, np.array([2, 100, 149])[given.argmax(2)], 0)
    assert shows == "segmentation"
    assert (found == ADE20K[classes]).all()
    numbers = [
        helper.make_node("ArgMax", ["scores"], ["number"], axis=1),
        helper.make_node("Cast", ["number"], ["made"], to=1),
    ]
    nodes = [helper.make_node("Conv", ["image", "weight"], ["scores"]), *numbers]
    path = write(tmp_path / "oneformer.onnx", nodes, output=(1, 1, "h", "w"), constants={"weight": weight})
    assert (seen(path)[0] == ADE20K[classes]).all()


def test_sizes_that_a_file_takes(tmp_path):
    wide = np.repeat(PIXELS, 2, axis=1)
    found, _ = seen(identity(tmp_path / "any.onnx"), wide, 28)
    assert found.shape == (28, 56, 3)
    fixed = identity(tmp_path / "fixed.onnx", shape=(1, 3, 24, 32), output=(1, 3, 24, 32))
    assert seen(fixed, wide, 28)[0].shape == (28, 56, 3)
    last = identity(tmp_path / "last.onnx", shape=(1, "height", "width", 3), output=(1, "h", "w", 3))
    assert np.abs(seen(last)[0].astype(int) - PIXELS).max() <= 1
    assert seen(fixed, np.zeros((1, 1, 3), np.uint8), 8)[0].shape == (8, 8, 3)


def test_files_that_are_no_preprocessors(tmp_path):
    with pytest.raises(ModelError, match=r"there is no preprocessor '.*none\.onnx'"):
        seen(tmp_path / "none.onnx")
    (tmp_path / "broken.onnx").write_bytes(b"no model")
    with pytest.raises(ModelError, match=r"broken\.onnx: "):
        seen(tmp_path / "broken.onnx")
    flat = identity(tmp_path / "flat.onnx", shape=(1, 3, "width"), output=(1, 3, "w"))
    with pytest.raises(ModelError, match=r"flat\.onnx: a preprocessor takes one picture, and it takes "):
        seen(flat)
    nodes = [helper.make_node("Concat", ["image", "image"], ["made"], axis=1)]
    six = write(tmp_path / "six.onnx", nodes, output=(1, 6, "h", "w"))
    with pytest.raises(ModelError, match=r"six\.onnx: it gives 6 channels; a preprocessor's name says"):
        seen(six)


def test_one_is_kept(tmp_path):
    detectors = Detectors(None)
    assert detectors.has("a.ONNX")
    assert not detectors.has("canny")
    first, second = identity(tmp_path / "a.onnx"), identity(tmp_path / "b.onnx")
    for path in (first, first, second, first):
        assert detectors(PIXELS, str(path), SIDE)[0].shape == PIXELS.shape
    detectors.close()
    detectors.close()
