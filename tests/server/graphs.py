"""Graphs for tests, files that they name, and a room in which nodes are carried out without a server."""

from __future__ import annotations

import json
import sys
import threading
import uuid
from pathlib import Path

import numpy as np
from PIL import Image
from safetensors.numpy import save_file

IMAGES = Path(__file__).parents[1] / "images"
for place in (IMAGES, IMAGES.parents[1]):
    if str(place) not in sys.path:
        sys.path.append(str(place))


def node(kind, **inputs):
    return {"class_type": kind, "inputs": inputs}


def of_text(model="one.safetensors", prompt="a red circle", negative="", size=64, batch=1, **sampling):
    """From words to a picture, numbered as ComfyUI's own example."""
    sampling = {
        "seed": 1,
        "steps": 2,
        "cfg": 4.0,
        "sampler_name": "euler",
        "scheduler": "normal",
        "denoise": 1,
        **sampling,
    }
    return {
        "3": node("KSampler", **sampling, model=["4", 0], positive=["6", 0], negative=["7", 0], latent_image=["5", 0]),
        "4": node("CheckpointLoaderSimple", ckpt_name=model),
        "5": node("EmptyLatentImage", width=size, height=size, batch_size=batch),
        "6": node("CLIPTextEncode", text=prompt, clip=["4", 1]),
        "7": node("CLIPTextEncode", text=negative, clip=["4", 1]),
        "8": node("VAEDecode", samples=["3", 0], vae=["4", 2]),
        "9": node("SaveImage", filename_prefix="test", images=["8", 0]),
    }


def changed(graph, name, **inputs):
    """A graph with other inputs of a node."""
    return {**graph, name: {**graph[name], "inputs": {**graph[name]["inputs"], **inputs}}}


def listening(served, name, ready, found, ends=("executing",)):
    """Listens as a client until its graph is over."""
    from websockets.sync.client import connect

    with connect(f"ws://127.0.0.1:{served.port}/ws?clientId={name}") as socket:
        ready.set()
        for message in socket:
            found.append(message if isinstance(message, bytes) else json.loads(message))
            last = found[-1]
            if isinstance(last, dict) and last["type"] in ends and last["data"].get("node", 0) is None:
                return


def told(served, graph, name=None, **more):
    """All messages of a graph to its client."""
    name = name or uuid.uuid4().hex
    found, ready = [], threading.Event()
    thread = threading.Thread(target=listening, args=(served, name, ready, found), daemon=True)
    thread.start()
    assert ready.wait(20)
    answer = served.post("/prompt", {"prompt": graph, "client_id": name, **more})
    thread.join(60)
    assert not thread.is_alive()
    return answer["prompt_id"], found


def kinds(messages):
    return [each["type"] if isinstance(each, dict) else "preview" for each in messages]


class Watched:
    """Who watches a graph: keeps what it is told, and ends it after so many steps."""

    def __init__(self, steps=10**9):
        self.left, self.told, self.shown = steps, [], {}

    def goes_on(self):
        return self.left > 0

    def cached(self, names):
        self.told.append(("cached", list(names)))

    def executing(self, name):
        self.told.append(("executing", name))

    def progress(self, name, value, most, draw):
        self.left -= 1
        self.told.append(("progress", name, value, most))
        if draw is not None:
            assert np.isfinite(draw()).all()

    def writes(self, kind, below, name):
        self.told.append(("writes", kind, below, name))

    def written(self, below, name, seed, parameters):
        self.told.append(("written", name, seed, parameters))

    def sends(self, name, value, most, picture):
        self.told.append(("sends", name, len(picture)))

    def executed(self, name, shown, again):
        self.shown[name] = shown
        self.told.append(("executed", name, again))


class Bench:
    """An executor, a library of small models and folders of files; `run` carries out a graph."""

    def __init__(self, folder, models, **library):
        from graphc_server.comfyui import nodes
        from graphc_server.comfyui.executor import Executor
        from graphc_server.comfyui.files import Files
        from graphc_server.comfyui.library import Library
        from graphc_server.limits import Limits
        from graphc_server.models import Models

        assert nodes.SUBJECTS
        (folder / "pictures").mkdir(parents=True)
        self.files = Files(folder, folder / "pictures")
        self.library = Library(Models([models], threads=1), Limits(), self.files, **library)
        self.executor = Executor()

    def run(self, graph, extra=None, steps=10**9):
        """What was told; the graph is checked before."""
        from graphc_server.comfyui.checking import check
        from graphc_server.comfyui.executor import NodeError, Room

        found = check(graph, self.library)
        assert found.error is None, found
        watch = Watched(steps)
        self.library.begin()
        try:
            self.executor.run(Room(self.library, self.files, graph, extra or {}, watch), found.outputs)
        except NodeError as error:
            raise error.__cause__ from None
        finally:
            self.library.end(self.executor.held())
        return watch

    def pictures(self, shown):
        """The pictures that an output node showed, as arrays."""
        return [
            np.asarray(Image.open(self.files.file(each["type"], each["subfolder"], each["filename"])))
            for each in shown.images
        ]

    def value(self, graph, name, slot=0):
        """What a node of the last graph gave."""
        from graphc_server.comfyui.executor import Room, ordered, signatures

        marks = signatures(Room(self.library, self.files, graph, {}, Watched()), ordered(graph, [name]))
        return self.executor._made[marks[name]][slot]


def picture(size=(64, 64), seed=0, alpha=False):
    """A picture by chance; with `alpha`, transparent on its left."""
    pixels = np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3), np.uint8)
    found = Image.fromarray(pixels)
    if alpha:
        mask = np.full((size[1], size[0]), 255, np.uint8)
        mask[:, : size[0] // 2] = 0
        found.putalpha(Image.fromarray(mask))
    return found


def write_lora(path, width=16, text=48, scale=0.3):
    """A LoRA of the small Stable Diffusion 1: something for its U-Net, and for its text encoder."""
    random = np.random.default_rng(0)
    parts = {
        "lora_unet_input_blocks_1_1_transformer_blocks_0_attn2_to_k": (width, 48),
        "lora_te_text_model_encoder_layers_0_self_attn_q_proj": (text, 48),
    }
    tensors = {}
    for name, (rows, columns) in parts.items():
        tensors[f"{name}.lora_down.weight"] = random.standard_normal((2, columns)).astype(np.float32)
        tensors[f"{name}.lora_up.weight"] = (scale * random.standard_normal((rows, 2))).astype(np.float32)
    save_file(tensors, path)
    return path
