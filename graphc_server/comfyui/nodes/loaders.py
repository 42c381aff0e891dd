"""Nodes that load models, and put LoRAs on them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from graphc_images import SettingError
from graphc_images.models import Architecture
from graphc_images.upscalers.upscaler import Upscaler
from graphc_server.comfyui.executor import Room
from graphc_server.comfyui.library import Library
from graphc_server.comfyui.table import Input, choice, link, node, number, whole
from graphc_server.comfyui.values import Clip, ControlFile, Model, Vae

LOADERS = "loaders"
KINDS: Mapping[str, Callable[[Architecture], bool]] = {
    "stable_diffusion": lambda row: row.kind == "unet",
    "sdxl": lambda row: row.kind == "unet",
    "sd3": lambda row: row.kind == "sd3",
    "flux": lambda row: row.kind == "flux",
    "chroma": lambda row: row.kind == "chroma",
    "flux2": lambda row: row.kind == "flux2",
    "lumina2": lambda row: row.kind == "z_image",
    "qwen_image": lambda row: row.kind == "qwen_image",
}
"""ComfyUI's types of text encoders, and whose they are."""


def files_of(folder: str) -> Callable[[Library], Sequence[str]]:
    """The files of one of ComfyUI's folders."""
    return lambda library: library.names(folder)


def file_in(folder: str, name: str) -> Input:
    """An input that names one."""
    return choice(name, files_of(folder))


def changed_with(folder: str, *inputs: str) -> Callable[..., Any]:
    """What is another when one of the files is."""
    return lambda room, **values: [room.library.stamp(folder, str(values.get(name))) for name in inputs]


@node(
    "CheckpointLoaderSimple", LOADERS, file_in("checkpoints", "ckpt_name"), gives="MODEL CLIP VAE", title="Load Checkpoint",
    changed=changed_with("checkpoints", "ckpt_name"),
)  # fmt: skip
def checkpoint(room: Room, ckpt_name: str) -> tuple[Model, Clip, Vae]:
    """Load a checkpoint: a denoiser, text encoders and an autoencoder."""
    found = room.library.checkpoint("checkpoints", ckpt_name)
    return Model(found), Clip(found), Vae(found)


@node(
    "UNETLoader", "advanced/loaders", file_in("diffusion_models", "unet_name"),
    choice("weight_dtype", ("default",), "default", optional=True), gives="MODEL", title="Load Diffusion Model",
    changed=changed_with("diffusion_models", "unet_name"),
)  # fmt: skip
def unet(room: Room, unet_name: str, weight_dtype: str | None) -> Model:
    """Load a denoiser alone, in the types that its file has."""
    return Model(room.library.checkpoint("diffusion_models", unet_name))


def _encoders(room: Room, names: Sequence[str], type: str) -> Clip:
    return Clip(room.library.encoders(names, type, KINDS[type]))


def _clip_names(count: int) -> tuple[Input, ...]:
    return tuple(file_in("text_encoders", f"clip_name{number}") for number in range(1, count + 1))


DEVICE = choice("device", ("default", "cpu"), "default", optional=True)
"""Where an encoder computes: where the server does, whichever is chosen."""


@node(
    "CLIPLoader", "advanced/loaders", file_in("text_encoders", "clip_name"),
    choice("type", ("stable_diffusion", "chroma", "flux2", "lumina2", "qwen_image")), DEVICE, gives="CLIP", title="Load CLIP",
    changed=changed_with("text_encoders", "clip_name"),
)  # fmt: skip
def clip(room: Room, clip_name: str, type: str, device: str | None) -> Clip:
    """Load a text encoder: CLIP of Stable Diffusion 1 or 2, Chroma's T5, the Qwen of Flux.2, Z-Image (lumina2) or Qwen-Image."""
    return _encoders(room, [clip_name], type)


@node(
    "DualCLIPLoader", "advanced/loaders", *_clip_names(2), choice("type", ("sdxl", "sd3", "flux")), DEVICE, gives="CLIP",
    changed=changed_with("text_encoders", "clip_name1", "clip_name2"),
)  # fmt: skip
def two_clips(room: Room, clip_name1: str, clip_name2: str, type: str, device: str | None) -> Clip:
    """Load two text encoders, in any order: CLIP-L and CLIP-G of Stable Diffusion XL and 3, CLIP-L and T5 of Flux."""
    return _encoders(room, [clip_name1, clip_name2], type)


@node(
    "TripleCLIPLoader", "advanced/loaders", *_clip_names(3), gives="CLIP",
    changed=changed_with("text_encoders", "clip_name1", "clip_name2", "clip_name3"),
)  # fmt: skip
def three_clips(room: Room, clip_name1: str, clip_name2: str, clip_name3: str) -> Clip:
    """Load the three text encoders of Stable Diffusion 3, in any order."""
    return _encoders(room, [clip_name1, clip_name2, clip_name3], "sd3")


@node(
    "VAELoader",
    LOADERS,
    file_in("vae", "vae_name"),
    gives="VAE",
    title="Load VAE",
    changed=changed_with("vae", "vae_name"),
)
def vae(room: Room, vae_name: str) -> Vae:
    """Load an autoencoder alone."""
    return Vae(room.library.vae(vae_name))


LORA, FILE = number("strength_model", 1.0, -100, 100), file_in("loras", "lora_name")


@node(
    "LoraLoader", LOADERS, link("model"), link("clip"), FILE, LORA, number("strength_clip", 1.0, -100, 100),
    gives="MODEL CLIP", title="Load LoRA", changed=changed_with("loras", "lora_name"),
)  # fmt: skip
def lora(
    room: Room, model: Model, clip: Clip, lora_name: str, strength_model: float, strength_clip: float
) -> tuple[Model, Clip]:
    """Put a LoRA on a denoiser and on text encoders."""
    path = room.library.path("loras", lora_name)
    if strength_model:
        model = replace(model, loras=(*model.loras, (path, strength_model)))
    if strength_clip:
        clip = replace(clip, loras=(*clip.loras, (path, strength_clip)))
    return model, clip


@node(
    "LoraLoaderModelOnly", LOADERS, link("model"), FILE, LORA, gives="MODEL", changed=changed_with("loras", "lora_name")
)
def lora_of_model(room: Room, model: Model, lora_name: str, strength_model: float) -> Model:
    """Put a LoRA on a denoiser alone."""
    if not strength_model:
        return model
    return replace(model, loras=(*model.loras, (room.library.path("loras", lora_name), strength_model)))


@node(
    "CLIPSetLastLayer", "conditioning", link("clip"), whole("stop_at_clip_layer", -1, -24, -1), gives="CLIP",
    title="CLIP Set Last Layer",
)  # fmt: skip
def last_layer(room: Room, clip: Clip, stop_at_clip_layer: int) -> Clip:
    """Have texts read up to another layer than the last: -2 is the last but one, and Stable Diffusion XL's usual one."""
    return replace(clip, skip=-stop_at_clip_layer)


@node(
    "ControlNetLoader", LOADERS, file_in("controlnet", "control_net_name"), gives="CONTROL_NET", title="Load ControlNet Model",
    changed=changed_with("controlnet", "control_net_name"),
)  # fmt: skip
def control_net(room: Room, control_net_name: str) -> ControlFile:
    """Load a ControlNet or T2I-Adapter."""
    return ControlFile(room.library.path("controlnet", control_net_name))


@node(
    "DiffControlNetLoader", LOADERS, link("model"), file_in("controlnet", "control_net_name"), gives="CONTROL_NET",
    title="Load ControlNet Model (diff)", changed=changed_with("controlnet", "control_net_name"),
)  # fmt: skip
def diff_control_net(room: Room, model: Model, control_net_name: str) -> ControlFile:
    """Load a ControlNet whose file has what differs from the denoiser; it is added to the one that is steered."""
    return ControlFile(room.library.path("controlnet", control_net_name))


@node(
    "UpscaleModelLoader", LOADERS, file_in("upscale_models", "model_name"), gives="UPSCALE_MODEL", title="Load Upscale Model",
    changed=changed_with("upscale_models", "model_name"),
)  # fmt: skip
def upscale_model(room: Room, model_name: str) -> Upscaler:
    """Load a network that makes pictures larger."""
    if not model_name:
        raise SettingError("model_name: there is none")
    return room.library.upscaler(room.library.path("upscale_models", model_name))
