"""The networks that steer a U-Net by a picture: ControlNets, T2I-Adapters, and the U-Net that takes what they give.

What they make of the picture alone is a network of its own, which runs once for a picture and not once for a step.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from examples.image_engines.networks import (
    EACH,
    PICTURE,
    UNET_AXES,
    Axes,
    Config,
    Inputs,
    Kind,
    example,
    made,
    unet,
    unet_inputs,
)
from examples.image_engines.switches import thrown

WHOLE = (17, 13)
"""The size of the latent in examples; halves of it are rounded up."""


def halved(level: int) -> Axes:
    """The free axes of what was halved so often; which sizes are the same, the exporter finds."""
    return {0: "batch", 2: f"height_{level}", 3: f"width_{level}"} if level else PICTURE


def layer(width: int, level: int) -> Tensor:
    """An example of what a U-Net has at a level."""
    return example(2, width, *(-(-size // 2**level) for size in WHOLE))


def skips(config: Config) -> list[tuple[int, int]]:
    """The channels of what a U-Net's decoder takes from its encoder, and how often each was halved; the middle is last."""
    channels = config["block_out_channels"]
    found = [(channels[0], 0)]
    for level, width in enumerate(channels):
        found += [(width, level)] * config["layers_per_block"]
        found += [(width, level + 1)] if level + 1 < len(channels) else []
    return [*found, (channels[-1], len(channels) - 1)]


def features(config: Config) -> list[tuple[int, int]]:
    """The same of what T2I-Adapters add within the encoder: behind each level that attends; behind a first one that does not,
    where it was halved; and to the middle, if there are only three."""
    channels, last = config["block_out_channels"], len(config["block_out_channels"]) - 1
    attends = [each.startswith("CrossAttn") for each in config["down_block_types"]]
    found = [(width, level if attends[level] else min(level + 1, last)) for level, width in enumerate(channels)]
    return found if len(found) == 4 else [*found, (channels[-1], last)]


# The U-Net


def controlled(config: Config) -> Kind:
    """A U-Net that takes what ControlNets and T2I-Adapters add to it."""
    axes = {f"residual_{number}": halved(level) for number, (_, level) in enumerate(skips(config))}
    axes |= {f"feature_{number}": halved(level) for number, (_, level) in enumerate(features(config))}
    return Kind(unet, controlled_inputs, controlled_forward, ("prediction",), {**UNET_AXES, **axes})


def controlled_inputs(config: Config) -> Inputs:
    """A U-Net's, what is added to each of its skips and to the middle, and what is added within its encoder."""
    found = unet_inputs(config)
    found |= {f"residual_{number}": layer(*each) for number, each in enumerate(skips(config))}
    return found | {f"feature_{number}": layer(*each) for number, each in enumerate(features(config))}


def controlled_forward(module: Any, sample: Tensor, timestep: Tensor, words: Tensor, *others: Tensor) -> Tensor:
    """What the U-Net predicts with residuals of ControlNets and features of adapters."""
    adapted = len(features(module.config))
    count = len(skips(module.config)) + adapted
    conditions, residuals, within = others[:-count], others[-count:-adapted], others[-adapted:]
    added = dict(zip(("text_embeds", "time_ids"), thrown(module, conditions), strict=False)) or None
    return module.call(
        sample, timestep, words, added_cond_kwargs=added, return_dict=False,
        down_block_additional_residuals=residuals[:-1], mid_block_additional_residual=residuals[-1],
        down_intrablock_additional_residuals=list(within),
    )[0]  # fmt: skip


# ControlNets

FOREIGN = ("up_block_types", "sample_size", "conditions")
"""What a U-Net's configuration has, and a ControlNet's has not."""


def controlnet(config: Config) -> Kind:
    """A ControlNet. Instead of the picture it takes what its first layers make of it; with `addition_embed_type` also what is
    added to the time, for networks that are told which kind of picture it is."""
    axes = {**UNET_AXES, "hint": PICTURE, "told": EACH}
    names = tuple(f"residual_{number}" for number in range(len(skips(config))))
    return Kind(bare_controlnet, controlnet_inputs, controlnet_forward, names, axes)


def bare_controlnet(config: Config) -> nn.Module:
    """diffusers' network without its first layers."""
    own = {key: value for key, value in config.items() if key not in FOREIGN}
    told = {"class_embed_type": "identity"} if "addition_embed_type" in config else {}
    module = made("diffusers.ControlNetModel", {**own, **told})
    module.controlnet_cond_embedding = nn.Identity()
    return module


def controlnet_inputs(config: Config) -> Inputs:
    """A U-Net's, and the hint."""
    found, width = unet_inputs(config), config["block_out_channels"][0]
    found.pop("perturbed", None)
    found["hint"] = layer(width, 0)
    return found | ({"told": example(2, 4 * width)} if "addition_embed_type" in config else {})


def controlnet_forward(
    module: Any, sample: Tensor, timestep: Tensor, words: Tensor, *others: Tensor
) -> tuple[Tensor, ...]:
    """What is added to the U-Net's skips and to its middle."""
    *conditions, hint, told = others if len(others) > 1 else (*others, None)
    added = dict(zip(("text_embeds", "time_ids"), conditions, strict=False)) or None
    down, middle = module.call(
        sample, timestep, words, hint, class_labels=told, added_cond_kwargs=added, return_dict=False
    )
    return (*down, middle)


class First(nn.Module):
    """The layers that look at the picture."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        channels = {"conditioning_embedding_channels": config["block_out_channels"][0]}
        path = "diffusers.models.controlnets.controlnet.ControlNetConditioningEmbedding"
        self.controlnet_cond_embedding = made(path, {**channels, "block_out_channels": (16, 32, 96, 256)})


def hint_inputs(config: Config) -> Inputs:
    """Two pictures, 0 to 1; their sizes are multiples of 8."""
    return {"image": example(2, 3, 24, 40)}


def hint_forward(module: Any, image: Tensor) -> Tensor:
    """What the ControlNet is told about the picture."""
    return module.controlnet_cond_embedding(image)


HINT = Kind(First, hint_inputs, hint_forward, ("hint",), {"image": PICTURE})


class FirstOfUnion(First):
    """The same of a network for several kinds of pictures: it is also told which kind it is."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        width, kinds = config["block_out_channels"][0], config["num_control_type"]
        module = "diffusers.models.controlnets.controlnet_union."
        self.task_embedding = nn.Parameter(torch.empty(kinds, width))
        block = {"d_model": width, "n_head": config["num_trans_head"]}
        self.transformer_layes = nn.ModuleList([made(f"{module}ResidualAttentionBlock", block)])
        self.spatial_ch_projs = nn.Linear(width, width)
        numbers = config["addition_time_embed_dim"]
        self.control_type_proj = made(f"{module}Timesteps", {"num_channels": numbers, **TIMES})
        sizes = {"in_channels": numbers * kinds, "time_embed_dim": 4 * width}
        self.control_add_embedding = made(f"{module}TimestepEmbedding", sizes)


TIMES = {"flip_sin_to_cos": True, "downscale_freq_shift": 0}


def union_inputs(config: Config) -> Inputs:
    """Two pictures, and for each 1 where it is of a kind."""
    return {**hint_inputs(config), "kinds": example(2, config["num_control_type"])}


def union_forward(module: Any, image: Tensor, kinds: Tensor) -> tuple[Tensor, Tensor]:
    """The hint, and what is added to the time.

    The authors' attention goes over the rows of a batch and not over its tokens. All rows have the same hint, so that it gives
    its values as they are.
    """
    hint = module.controlnet_cond_embedding(image)
    width = hint.shape[1]
    token = hint.mean(dim=(2, 3)) + kinds @ module.task_embedding
    for block in module.transformer_layes:
        attention = block.attn
        values = functional.linear(
            block.ln_1(token), attention.in_proj_weight[2 * width :], attention.in_proj_bias[2 * width :]
        )
        token = token + attention.out_proj(values)
        token = token + block.mlp(block.ln_2(token))
    told = module.control_type_proj(kinds.flatten()).reshape(kinds.shape[0], -1)
    return hint + module.spatial_ch_projs(token)[:, :, None, None], module.control_add_embedding(told)


UNION = Kind(FirstOfUnion, union_inputs, union_forward, ("hint", "told"), {"image": PICTURE, "kinds": EACH})


# T2I-Adapters


def adapter(config: Config) -> nn.Module:
    """diffusers' adapter; its picture is cut into squares before."""
    module = made("diffusers.T2IAdapter", config)
    module.adapter.unshuffle = nn.Identity()
    return module


def adapter_inputs(config: Config) -> Inputs:
    """Two pictures of squares: each channel has as many as a square has pixels."""
    return {"squares": example(2, config["in_channels"] * config["downscale_factor"] ** 2, *WHOLE)}


def adapter_forward(module: Any, squares: Tensor) -> tuple[Tensor, ...]:
    """What is added within the U-Net."""
    return tuple(module.call(squares))


ADAPTER = Kind(
    adapter, adapter_inputs, adapter_forward, tuple(f"feature_{number}" for number in range(4)), {"squares": PICTURE}
)
