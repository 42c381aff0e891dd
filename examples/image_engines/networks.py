"""The kinds of networks of which engines are shipped: their classes in diffusers or transformers, and which axes are free.

Each is built without its parameters' numbers (`bare`), so that even the largest takes no memory. Parameters keep the names that
diffusers and transformers give them; buffers have their numbers, because some of them are computed and in no file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn

from examples.image_engines.switches import perturbable, skippable, thrown

Config = Mapping[str, Any]
Axes = Mapping[int, str]
Inputs = dict[str, Tensor]


@dataclass(frozen=True)
class Kind:
    """A kind of network: `build` makes its module of a configuration, `inputs` an example of what its `forward` takes. `axes` are
    the free ones of each input, `outputs` the names of what it gives. `forward` gets the module and the inputs in their order."""

    build: Callable[[Config], nn.Module]
    inputs: Callable[[Config], Inputs]
    forward: Callable[..., Tensor | tuple[Tensor, ...]]
    outputs: tuple[str, ...]
    axes: Mapping[str, Axes]


@contextmanager
def without_numbers() -> Iterator[None]:
    """Modules that are built meanwhile have parameters on the device `meta`; buffers are computed as ever."""
    register = nn.Module.register_parameter

    def register_bare(module: nn.Module, name: str, parameter: nn.Parameter | None) -> None:
        register(module, name, parameter)
        if parameter is not None:
            module._parameters[name] = nn.Parameter(parameter.to("meta"), requires_grad=False)

    nn.Module.register_parameter = register_bare  # type: ignore[method-assign]
    try:
        yield
    finally:
        nn.Module.register_parameter = register  # type: ignore[method-assign]


def made(path: str, config: Config) -> Any:
    """The module class at `path`, built from a configuration."""
    module_name, _, class_name = path.rpartition(".")
    model_class = getattr(import_module(module_name), class_name)
    if path.startswith("transformers."):
        return model_class(model_class.config_class(**config))
    return model_class(**config)


def with_forward(module: nn.Module, forward: Callable[..., Any]) -> nn.Module:
    """Give a module another forward, which gets the module with its own one as `call`, then the inputs."""
    module.__dict__["call"] = module.forward
    module.__dict__["forward"] = lambda *inputs: forward(module, *inputs)
    return module.eval().requires_grad_(False)


def example(*shape: int) -> Tensor:
    """Numbers that stand for others; only their sizes matter. Sizes that are free are neither 0, 1 nor like each other."""
    return torch.zeros(shape)


PICTURE: Axes = {0: "batch", 2: "height", 3: "width"}
WORDS: Axes = {0: "batch", 1: "tokens"}
EACH: Axes = {0: "batch"}


# U-Nets


def unet_inputs(config: Config) -> Inputs:
    """Two latents of odd sizes, so that halving them and doubling them again is exported for all."""
    found = {
        "sample": example(2, config["in_channels"], 17, 13),
        "timestep": example(2),
        "encoder_hidden_states": example(2, 77, config["cross_attention_dim"]),
    }
    if "mid_block_type" not in config:
        found["perturbed"] = example(2)
    if config.get("addition_embed_type") == "text_time":
        numbers = config["conditions"]
        pooled = config["projection_class_embeddings_input_dim"] - numbers * config["addition_time_embed_dim"]
        found |= {"text_embeds": example(2, pooled), "time_ids": example(2, numbers)}
    return found


def unet_forward(module: Any, sample: Tensor, timestep: Tensor, words: Tensor, *others: Tensor) -> Tensor:
    """What the U-Net predicts."""
    added = dict(zip(("text_embeds", "time_ids"), thrown(module, others), strict=False)) or None
    return module.call(sample, timestep, words, added_cond_kwargs=added, return_dict=False)[0]


def unet(config: Config) -> nn.Module:
    """diffusers' U-Net; `conditions` are how many numbers about sizes it takes, which diffusers does not want to know."""
    config = {key: value for key, value in config.items() if key != "conditions"}
    module = made("diffusers.UNet2DConditionModel", config)
    perturbable(module)
    return module


UNET_AXES = {
    "sample": PICTURE, "timestep": EACH, "encoder_hidden_states": WORDS, "perturbed": EACH, "text_embeds": EACH,
    "time_ids": EACH,
}  # fmt: skip
UNET = Kind(unet, unet_inputs, unet_forward, ("prediction",), UNET_AXES)


# Text encoders


def clip(config: Config) -> nn.Module:
    """CLIP's text encoder; without `projection_dim` it has no projection."""
    module = made("transformers.CLIPTextModelWithProjection", {**config, "attn_implementation": "sdpa"})
    if "projection_dim" not in config:
        del module.text_projection
    return module


def clip_forward(module: Any, ids: Tensor) -> tuple[Tensor, ...]:
    """The states after each layer, [layers, batch, tokens, width], as they are and with the last norm; and, where there is one,
    the projection of each token's last state."""
    text = module.text_model
    state = text.embeddings(input_ids=ids)
    length = ids.shape[1]
    place = torch.arange(length)
    mask = torch.where(place[None] > place[:, None], torch.finfo(torch.float32).min, 0.0)[None, None]
    states = []
    for layer in text.encoder.layers:
        state = layer(state, mask)
        states.append(state)
    found = torch.stack(states)
    normed = text.final_layer_norm(found)
    return (
        (found, normed, module.text_projection(normed[-1])) if hasattr(module, "text_projection") else (found, normed)
    )


def clip_inputs(config: Config) -> Inputs:
    """Two prompts."""
    return {"input_ids": torch.zeros(2, 77, dtype=torch.int64)}


CLIP = Kind(clip, clip_inputs, clip_forward, ("states", "normed"), {"input_ids": EACH})
CLIP_PROJECTED = Kind(clip, clip_inputs, clip_forward, ("states", "normed", "projected"), {"input_ids": EACH})


def t5_inputs(config: Config) -> Inputs:
    """Two prompts, and which of their tokens others look at."""
    return {"input_ids": torch.zeros(2, 19, dtype=torch.int64), "attention_mask": torch.ones(2, 19, dtype=torch.int64)}


def t5_forward(module: Any, ids: Tensor, mask: Tensor) -> Tensor:
    """The last states."""
    return module.call(input_ids=ids, attention_mask=mask).last_hidden_state


T5 = Kind(
    partial(made, "transformers.T5EncoderModel"), t5_inputs, t5_forward, ("states",),
    {"input_ids": WORDS, "attention_mask": WORDS},
)  # fmt: skip


# Transformers


def sd3_inputs(config: Config) -> Inputs:
    """Two latents of even sizes, which are cut into patches."""
    return {
        "sample": example(2, config["in_channels"], 18, 14),
        "timestep": example(2),
        "encoder_hidden_states": example(2, 19, config["joint_attention_dim"]),
        "kept": example(2, config["num_layers"]),
        "pooled": example(2, config["pooled_projection_dim"]),
    }


def sd3(config: Config) -> nn.Module:
    """diffusers' transformer, which looks its places up by their numbers: slices between computed ends have sizes that are not
    known to be the image's."""
    module = made("diffusers.SD3Transformer2DModel", config)
    embed = module.pos_embed

    def places(height: int, width: int) -> Tensor:
        size, rows, columns = embed.pos_embed_max_size, height // embed.patch_size, width // embed.patch_size
        down = (size - rows) // 2 + torch.arange(rows)
        right = (size - columns) // 2 + torch.arange(columns)
        return embed.pos_embed[:, (down[:, None] * size + right).reshape(-1)]

    embed.__dict__["cropped_pos_embed"] = places
    skippable(module, module.transformer_blocks)
    return module


def sd3_forward(module: Any, sample: Tensor, timestep: Tensor, words: Tensor, *others: Tensor) -> Tensor:
    """What the transformer predicts."""
    (pooled,) = thrown(module, others)
    return module.call(sample, words, pooled, timestep, return_dict=False)[0]


SD3 = Kind(
    sd3, sd3_inputs, sd3_forward, ("prediction",),
    {"sample": PICTURE, "timestep": EACH, "encoder_hidden_states": WORDS, "kept": EACH, "pooled": EACH},
)  # fmt: skip


def patch_inputs(channels: int, width: int, axes: int, patches: int = 35, words: int = 19) -> Inputs:
    """Two images of patches with these channels, and words of this width, with the places of both on some axes."""
    return {
        "patches": example(2, patches, channels),
        "timestep": example(2),
        "encoder_hidden_states": example(2, words, width),
        "patch_places": example(patches, axes),
        "word_places": example(words, axes),
    }


AXES: dict[str, Axes] = {
    "patches": {0: "batch", 1: "patches"}, "timestep": EACH, "encoder_hidden_states": WORDS,
    "patch_places": {0: "patches"}, "word_places": {0: "tokens"},
}  # fmt: skip
"""Of transformers whose inputs are so."""


def flux_inputs(config: Config) -> Inputs:
    """Two images of patches, and words, with the places of both on three axes."""
    found = patch_inputs(config["in_channels"], config["joint_attention_dim"], axes=3)
    found["kept"] = example(2, config["num_layers"] + config["num_single_layers"])
    if "pooled_projection_dim" not in config:
        return found | {"attention_mask": torch.ones(2, 19 + 35)}
    found["pooled"] = example(2, config["pooled_projection_dim"])
    return found | ({"guidance": example(2)} if config["guidance_embeds"] else {})


FLUX_AXES = {**AXES, "kept": EACH, "pooled": EACH, "guidance": EACH, "attention_mask": {0: "batch", 1: "all"}}


def flux_forward(
    module: Any, patches: Tensor, time: Tensor, words: Tensor, places: Tensor, word_places: Tensor, *others: Tensor
) -> Tensor:
    """What Flux predicts for each patch."""
    pooled, guidance = (*thrown(module, others), None)[:2]
    return module.call(
        hidden_states=patches, timestep=time, encoder_hidden_states=words, img_ids=places, txt_ids=word_places,
        pooled_projections=pooled, guidance=guidance, return_dict=False,
    )[0]  # fmt: skip


def chroma_forward(
    module: Any, patches: Tensor, time: Tensor, words: Tensor, places: Tensor, word_places: Tensor, *others: Tensor
) -> Tensor:
    """What Chroma predicts for each patch; the mask is 1 for words and patches that others look at, and 0 for others."""
    (mask,) = thrown(module, others)
    return module.call(
        hidden_states=patches, timestep=time, encoder_hidden_states=words, img_ids=places, txt_ids=word_places,
        attention_mask=mask > 0, return_dict=False,
    )[0]  # fmt: skip


def chroma(config: Config) -> nn.Module:
    """diffusers' transformer, whose small network reads something for each image: by a list with a number for each in diffusers,
    which would be for as many as the example has."""
    module = made("diffusers.ChromaTransformer2DModel", config)
    embed = module.time_text_embed

    def forward(time: Tensor) -> Tensor:
        batch, count = time.shape[0], embed.mod_proj.shape[0]
        both = torch.cat([embed.time_proj(time), embed.guidance_proj(torch.zeros_like(time))], dim=1)
        numbers = embed.mod_proj[None].expand(batch, -1, -1)
        return torch.cat([both[:, None].expand(-1, count, -1), numbers], dim=-1)

    embed.__dict__["forward"] = forward
    skippable(module, module.transformer_blocks, module.single_transformer_blocks)
    return module


def flux(config: Config) -> nn.Module:
    """diffusers' transformer."""
    module = made("diffusers.FluxTransformer2DModel", config)
    skippable(module, module.transformer_blocks, module.single_transformer_blocks)
    return module


FLUX = Kind(flux, flux_inputs, flux_forward, ("prediction",), FLUX_AXES)
CHROMA = Kind(chroma, flux_inputs, chroma_forward, ("prediction",), FLUX_AXES)
