"""A U-Net whose attention to words looks at pictures too, beside what ControlNets and T2I-Adapters add to it.

Ye, Zhang, Liu, Han, Yang, IP-Adapter: Text Compatible Image Prompt Adapter for Text-to-Image Diffusion Models (2023). What a
layer finds among the words is added to what it finds among the tokens of each picture, whose keys and values are inputs: adapters
make them of pictures, once for all steps. At each place, words and pictures count by shares.
"""

from __future__ import annotations

from collections import Counter
from math import prod
from typing import Any

from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from examples.image_engines.controls import WHOLE, controlled, controlled_forward, controlled_inputs
from examples.image_engines.networks import Axes, Config, Inputs, Kind, example, unet

PICTURES: Axes = {1: "batch", 2: "pictures", 3: "looks"}
"""The free axes of keys and values."""


def prompted(config: Config) -> Kind:
    """Such a U-Net. Keys and values are [layers, batch, pictures, tokens, width], of all layers of a width that attend to words,
    in the order of adapters' files: of the encoder, the decoder, and the middle."""
    plain = controlled(config)
    axes: dict[str, Axes] = {f"{name}_{width}": PICTURES for name in ("keys", "values") for width in widths(config)}
    for level in levels(config):
        axes[f"words_share_{level}"] = {0: "batch", 1: f"places_{level}"}
        axes[f"pictures_share_{level}"] = {0: "batch", 1: "pictures", 2: f"places_{level}"}
    return Kind(prompted_module, prompted_inputs, prompted_forward, plain.outputs, {**plain.axes, **axes})


def attending(config: Config) -> list[tuple[int, int]]:
    """The width of each layer that attends to words, in adapters' order, and how often its places were halved."""
    channels, many = config["block_out_channels"], config["layers_per_block"]
    deep = config.get("transformer_layers_per_block", 1)
    deep = (deep,) * len(channels) if isinstance(deep, int) else deep
    attends = [each.startswith("CrossAttn") for each in config["down_block_types"]]
    found = [[(width, level)] * (deep[level] if attends[level] else 0) for level, width in enumerate(channels)]
    middle = [(channels[-1], len(channels) - 1)] * deep[-1]
    encoder = [layer for each in found for layer in each * many]
    return [*encoder, *(layer for each in reversed(found) for layer in each * (many + 1)), *middle]


def widths(config: Config) -> dict[int, int]:
    """How many layers there are of each width."""
    return Counter(width for width, _ in attending(config))


def levels(config: Config) -> list[int]:
    """How often the places of any of them were halved."""
    return sorted({level for _, level in attending(config)})


def prompted_inputs(config: Config) -> Inputs:
    """A controlled U-Net's, the keys and values of three pictures of five tokens, and the shares."""
    found = controlled_inputs(config)
    for width, count in widths(config).items():
        found |= {f"{name}_{width}": example(count, 2, 3, 5, width) for name in ("keys", "values")}
    for level in levels(config):
        places = prod(-(-size // 2**level) for size in WHOLE)
        found[f"words_share_{level}"] = example(2, places)
        found[f"pictures_share_{level}"] = example(2, 3, places)
    return found


def prompted_module(config: Config) -> nn.Module:
    """diffusers' U-Net, whose layers also look at pictures."""
    module: Any = unet(config)
    stages = [*module.down_blocks, *module.up_blocks, module.mid_block]
    blocks = [
        block for stage in stages for each in getattr(stage, "attentions", ()) for block in each.transformer_blocks
    ]
    seen: Counter[int] = Counter()
    for block, (width, level) in zip(blocks, attending(config), strict=True):
        block.attn2.set_processor(Prompted(module, width, seen[width], level))
        seen[width] += 1
    return module


def prompted_forward(module: Any, *inputs: Tensor) -> Tensor:
    """What it predicts."""
    wide, places = list(widths(module.config)), levels(module.config)
    count = 2 * len(wide)
    others, told = inputs[: -count - 2 * len(places)], inputs[-count - 2 * len(places) :]
    module.__dict__["seen"] = {width: told[2 * i : 2 * i + 2] for i, width in enumerate(wide)}
    module.__dict__["shares"] = {each: told[count + 2 * i : count + 2 * i + 2] for i, each in enumerate(places)}
    return controlled_forward(module, *others)


class Prompted:
    """Attention of diffusers to words and to pictures."""

    def __init__(self, unet: Any, width: int, number: int, level: int) -> None:
        self.unet, self.width, self.number, self.level = unet, width, number, level

    def __call__(
        self, attention: Any, hidden: Tensor, encoder_hidden_states: Tensor, *_: object, **__: object
    ) -> Tensor:
        """The output [batch, places, width]."""
        keys, values = (each[self.number] for each in self.unet.seen[self.width])
        words, pictures = self.unet.shares[self.level]
        query = headed(attention, attention.to_q(hidden))
        own = [headed(attention, each(encoder_hidden_states)) for each in (attention.to_k, attention.to_v)]
        found = joined(scaled_dot_product_attention(query, *own)) * words[..., None]
        batch, count = keys.shape[:2]
        query = query[:, None].expand(-1, count, -1, -1, -1).flatten(0, 1)
        seen = [headed(attention, each.flatten(0, 1)) for each in (keys, values)]
        more = joined(scaled_dot_product_attention(query, *seen)).unflatten(0, (batch, count))
        return attention.to_out[0](found + (more * pictures[..., None]).sum(1))


def headed(attention: Any, rows: Tensor) -> Tensor:
    """Rows [batch, rows, width] by heads [batch, heads, rows, width]."""
    return rows.unflatten(2, (attention.heads, -1)).transpose(1, 2)


def joined(heads: Tensor) -> Tensor:
    """And back."""
    return heads.transpose(1, 2).flatten(2)
