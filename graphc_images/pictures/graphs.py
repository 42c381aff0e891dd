"""ComfyUI's graphs: what one says of how a picture was made, and one that makes a picture.

A graph is what ComfyUI's API takes: nodes by number, each with a `class_type` and `inputs`, which are values or links
[number of a node, number of its output].
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from graphc_images.pictures.parameters import Parameters

Graph = Mapping[str, Any]

SAMPLERS = ("KSampler", "KSamplerAdvanced", "SamplerCustom", "SamplerCustomAdvanced")
LOADERS = {"ckpt_name": "Model", "unet_name": "Model", "vae_name": "VAE"}
"""Inputs of nodes that load, and A1111's names."""

SETTINGS = {  # an input of a node that leads to the picture, and A1111's name for it
    "steps": "Steps",
    "sampler_name": "Sampler",
    "scheduler": "Schedule type",
    "cfg": "CFG scale",
    "guidance": "Distilled CFG Scale",
    "seed": "Seed",
    "noise_seed": "Seed",
    "denoise": "Denoising strength",
}
AGAIN = {
    "Steps": "Hires steps",
    "Sampler": "Hires sampler",
    "Schedule type": "Hires schedule type",
    "CFG scale": "Hires CFG Scale",
}
"""What a second pass has of its own."""
LATENT_METHODS = {"bilinear": "Latent"}
SAMPLER, CHECKPOINT, POSITIVE, NEGATIVE, LATENT, DECODER, SAVER = "3", "4", "6", "7", "5", "8", "9"

LAST_NUMBER = 9


def parameters_of_graph(graph: Graph) -> Parameters | None:
    """What the graph's last sampler does, under A1111's names with ComfyUI's values; None if it has none.

    Its settings are those of the nodes that lead to it, the nearest first. LoRAs are `<lora:…>` behind the prompt. Where it goes
    on from another sampler, it is a second pass if the latent was made larger in between, else a refiner.
    """
    samplers = [node for node in _nodes(graph) if node.get("class_type") in SAMPLERS]
    if not samplers:
        return None
    read = {id(node) for sampler in samplers for node in _upstream(graph, sampler) if node is not sampler}
    last = next((node for node in samplers if id(node) not in read), samplers[-1])
    behind = _upstream(graph, _follow(graph, _inputs(last).get("latent_image")))
    first = next((node for node in behind if node.get("class_type") in SAMPLERS), last)
    settings = _settings(graph, first)
    if first is not last:
        settings |= _continued(graph, first, last, settings)
    elif settings.get("Denoising strength") in ("1", "1.0"):
        del settings["Denoising strength"]
    guider = _follow(graph, _inputs(first).get("guider")) or first
    texts = {name: _text(graph, _inputs(guider).get(name)) for name in ("positive", "negative", "conditioning")}
    networks = [_lora(graph, node) for node in _upstream(graph, first) if "lora_name" in _inputs(node)]
    return Parameters(
        "".join([texts["positive"] or texts["conditioning"], *networks[::-1]]), texts["negative"], settings
    )


def _settings(graph: Graph, sampler: Graph) -> dict[str, str]:
    """What the nodes say that lead to a sampler."""
    settings: dict[str, str] = {}
    for node in _upstream(graph, sampler):
        inputs = _inputs(node)
        for name, label in {**SETTINGS, **LOADERS}.items():
            value = _value(graph, inputs.get(name))
            if value is not None:
                settings.setdefault(label, str(value))
        if {"width", "height"} <= inputs.keys() and "Latent" in str(node.get("class_type")):
            settings.setdefault("Size", f"{_value(graph, inputs['width'])}x{_value(graph, inputs['height'])}")
        skip = _value(graph, inputs.get("stop_at_clip_layer"))
        if isinstance(skip, int) and skip < 0:
            settings.setdefault("Clip skip", str(-skip))
    return settings


def _continued(graph: Graph, first: Graph, last: Graph, before: Mapping[str, str]) -> dict[str, str]:
    """What is added by a sampler that goes on from the first one's latent."""
    mine = _settings(graph, last)
    for node in _upstream(graph, _follow(graph, _inputs(last).get("latent_image"))):
        if node is first:
            break
        inputs, kind = _inputs(node), str(node.get("class_type"))
        factor = _value(graph, inputs.get("scale_by"))
        size = [_value(graph, inputs.get(side)) for side in ("width", "height")]
        if factor is None and None in size:
            continue
        method = str(_value(graph, inputs.get("upscale_method")) or "bilinear")
        found = {
            "Hires upscale" if factor is not None else "Hires resize": str(factor)
            if factor is not None
            else f"{size[0]}x{size[1]}",
            "Hires upscaler": LATENT_METHODS.get(method, f"Latent ({method})")
            if kind.startswith("Latent")
            else "Lanczos",
            "Denoising strength": mine.get("Denoising strength", "1"),
        }
        for label, hires in AGAIN.items():
            if label in mine and mine[label] != before.get(label):
                found[hires] = mine[label]
        return found
    begins, steps = (_value(graph, _inputs(last).get(name)) for name in ("start_at_step", "steps"))
    if isinstance(begins, int) and isinstance(steps, int) and steps:
        return {"Refiner": mine.get("Model", ""), "Refiner switch at": f"{begins / steps:g}"}
    return {}


def _value(graph: Graph, given: Any) -> str | int | float | None:
    """What an input is: itself, or what a node has that only holds a value."""
    held = _follow(graph, given)
    for value in (
        (given,) if held is None else map(_inputs(held).get, ("value", "int", "float", "string", "seed", "number"))
    ):
        if _is_value(value):
            return value
    return None


def _lora(graph: Graph, node: Graph) -> str:
    inputs = _inputs(node)
    file = str(_value(graph, inputs["lora_name"]) or "")
    model = _value(graph, inputs.get("strength_model", 1))
    text = 0 if node.get("class_type") == "LoraLoaderModelOnly" else _value(graph, inputs.get("strength_clip", model))
    return f"<lora:{file.rpartition('.')[0] or file}:{text}:{model}>"


def _nodes(graph: Graph) -> Iterator[Graph]:
    return (node for node in graph.values() if isinstance(node, Mapping))


def _inputs(node: Graph) -> Graph:
    inputs = node.get("inputs")
    return inputs if isinstance(inputs, Mapping) else {}


def _is_value(value: Any) -> bool:
    return isinstance(value, str | int | float) and not isinstance(value, bool)


def _follow(graph: Graph, link: Any) -> Graph | None:
    """The node that a link names."""
    node = graph.get(str(link[0])) if isinstance(link, list) and link else None
    return node if isinstance(node, Mapping) else None


def _upstream(graph: Graph, node: Graph | None) -> Iterator[Graph]:
    """A node and all that it reads from, the nearest first, each once."""
    if node is None:
        return
    seen = {id(node)}
    waiting = [node]
    while waiting:
        here = waiting.pop(0)
        yield here
        for link in _inputs(here).values():
            found = _follow(graph, link)
            if found is not None and id(found) not in seen:
                seen.add(id(found))
                waiting.append(found)


def _text(graph: Graph, link: Any) -> str:
    """The first text of the nodes behind a link, nearest first."""
    for node in _upstream(graph, _follow(graph, link)):
        inputs = _inputs(node)
        for name in ("text", "text_g", "text_l", "t5xxl", "clip_l", "prompt", "value", "string"):
            if isinstance(inputs.get(name), str) and inputs[name]:
                return str(inputs[name])
    return ""


def graph_of(
    prompt: str,
    negative_prompt: str,
    *,
    checkpoint: str,
    width: int,
    height: int,
    seed: int,
    steps: int,
    cfg: float,
    sampler: str,
    scheduler: str,
    batch_size: int = 1,
    loras: Sequence[tuple[str, float, float]] = (),
    clip_skip: int = 1,
) -> dict[str, Any]:
    """The graph of text to image, with ComfyUI's names of samplers and schedulers. A LoRA is a file's name, its strength in the
    model, and that in the text encoder."""

    def node(kind: str, **inputs: Any) -> dict[str, Any]:
        return {"class_type": kind, "inputs": inputs}

    graph = {
        CHECKPOINT: node("CheckpointLoaderSimple", ckpt_name=checkpoint),
        LATENT: node("EmptyLatentImage", width=width, height=height, batch_size=batch_size),
        DECODER: node("VAEDecode", samples=[SAMPLER, 0], vae=[CHECKPOINT, 2]),
        SAVER: node("SaveImage", filename_prefix="graphc", images=[DECODER, 0]),
    }
    model, clip = [CHECKPOINT, 0], [CHECKPOINT, 1]
    for name, strength, text_strength in loras:
        number = str(LAST_NUMBER + len(graph))
        strengths = {"strength_model": strength, "strength_clip": text_strength}
        graph[number] = node("LoraLoader", lora_name=name, **strengths, model=model, clip=clip)
        model, clip = [number, 0], [number, 1]
    if clip_skip > 1:
        number = str(LAST_NUMBER + len(graph))
        graph[number] = node("CLIPSetLastLayer", stop_at_clip_layer=-clip_skip, clip=clip)
        clip = [number, 0]
    graph[POSITIVE] = node("CLIPTextEncode", text=prompt, clip=clip)
    graph[NEGATIVE] = node("CLIPTextEncode", text=negative_prompt, clip=clip)
    sampling = {"seed": seed, "steps": steps, "cfg": cfg, "sampler_name": sampler, "scheduler": scheduler, "denoise": 1}
    links = {"positive": [POSITIVE, 0], "negative": [NEGATIVE, 0], "latent_image": [LATENT, 0]}
    graph[SAMPLER] = node("KSampler", **sampling, model=model, **links)
    return graph
