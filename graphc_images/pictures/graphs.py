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
LOADERS = {
    "ckpt_name": "Model",
    "unet_name": "Model",
    "vae_name": "VAE",
}  # inputs of nodes that load, and A1111's names
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
SAMPLER, CHECKPOINT, POSITIVE, NEGATIVE, LATENT, DECODER, SAVER = "3", "4", "6", "7", "5", "8", "9"

LAST_NUMBER = 9


def parameters_of_graph(graph: Graph) -> Parameters | None:
    """What the graph's last sampler does, under A1111's names with ComfyUI's values; None if it has none.

    Its settings are those of the nodes that lead to it, the nearest first. LoRAs are `<lora:…>` behind the prompt.
    """
    samplers = [node for node in _nodes(graph) if node.get("class_type") in SAMPLERS]
    if not samplers:
        return None
    sampler = samplers[-1]
    settings: dict[str, str] = {}
    networks: list[str] = []
    for node in _upstream(graph, sampler):
        inputs = _inputs(node)
        for name, label in {**SETTINGS, **LOADERS}.items():
            if _is_value(inputs.get(name)):
                settings.setdefault(label, str(inputs[name]))
        if {"width", "height"} <= inputs.keys() and "Latent" in str(node.get("class_type")):
            settings.setdefault("Size", f"{inputs['width']}x{inputs['height']}")
        if _is_value(inputs.get("lora_name")):
            networks.append(_lora(inputs))
    if settings.get("Denoising strength") in ("1", "1.0"):
        del settings["Denoising strength"]
    guider = _follow(graph, _inputs(sampler).get("guider")) or sampler
    texts = {name: _text(graph, _inputs(guider).get(name)) for name in ("positive", "negative", "conditioning")}
    prompt = texts["positive"] or texts["conditioning"]
    return Parameters("".join([prompt, *networks]), texts["negative"], settings)


def _lora(inputs: Graph) -> str:
    name = str(inputs["lora_name"]).rpartition(".")[0] or str(inputs["lora_name"])
    model = inputs.get("strength_model", 1)
    return f"<lora:{name}:{inputs.get('strength_clip', model)}:{model}>"


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


def _upstream(graph: Graph, node: Graph) -> Iterator[Graph]:
    """A node and all that it reads from, the nearest first, each once."""
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
    start = _follow(graph, link)
    for node in _upstream(graph, start) if start is not None else ():
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
