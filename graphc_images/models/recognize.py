"""What a checkpoint is, by the names and sizes of its tensors."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar

import numpy as np

from graphc_images.errors import ModelError
from graphc_images.models import latents
from graphc_images.models.architectures import Architecture, Part, Prediction, Sizes

Tensors = Mapping[str, Any]

VELOCITY = "output_blocks.11.1.transformer_blocks.0.norm1.bias"
"""Of Stable Diffusion 2: its numbers tell whether it predicts noise or velocity; nothing else does."""

SPREAD = 0.09
"""Their standard deviation is above this in files that predict velocity."""

DIFFUSERS = {
    "input_blocks.0.0.weight": "conv_in.weight",
    "input_blocks.1.1.": "down_blocks.0.attentions.0.",
    "input_blocks.4.1.": "down_blocks.1.attentions.0.",
    "input_blocks.7.1.": "down_blocks.2.attentions.0.",
    "middle_block.1.": "mid_block.attentions.0.",
    "label_emb.0.0.": "add_embedding.linear_1.",
    "output_blocks.11.1.": "up_blocks.3.attentions.2.",
    "zero_convs.0.0.": "controlnet_down_blocks.0.",
    "body.0.body.0.": "adapter.body.0.resnets.0.",
    "body.0.block1.": "adapter.body.0.resnets.0.block1.",
    "body.0.in_conv.": "adapter.body.0.in_conv.",
    "conv_in.": "adapter.conv_in.",
    "img_in.": "x_embedder.",
    "guidance_in.in_layer.": "time_text_embed.guidance_embedder.linear_1.",
    "double_blocks.*.img_attn.qkv.": "transformer_blocks.*.attn.to_q.",
    "single_blocks.*.linear1.": "single_transformer_blocks.*.attn.to_q.",
    "joint_blocks.*.context_block.attn.qkv.": "transformer_blocks.*.attn.add_q_proj.",
    "joint_blocks.*.x_block.attn.qkv.": "transformer_blocks.*.attn.to_q.",
    "joint_blocks.*.x_block.attn.ln_q.": "transformer_blocks.*.attn.norm_q.",
    "joint_blocks.*.x_block.attn2.qkv.": "transformer_blocks.*.attn2.to_q.",
    "pos_embed": "pos_embed.pos_embed",
    "layers.*.attention.qkv.": "layers.*.attention.to_q.",
    "single_stream_modulation.lin.": "single_stream_modulation.linear.",
    "single_blocks.*.norm.query_norm.scale": "single_transformer_blocks.*.attn.norm_q.weight",
}
"""How names of marks begin in the authors' layout, and in diffusers'; `*` is a number, the same in both."""


@dataclass(frozen=True)
class Recognized:
    """A checkpoint's architecture, what its denoiser predicts, and what the names of the denoiser's tensors begin with.

    `zero_snr` says that the last step of its schedule is pure noise. `edm` are the least and the largest sigma of a model that
    says them, and its sigma of data.
    """

    architecture: Architecture
    prefix: str
    prediction: Prediction
    zero_snr: bool = False
    edm: tuple[float, float, float] | None = None


class Known(Protocol):
    """A row of a table of what files may be: they have all names of `marks`, with these sizes."""

    @property
    def name(self) -> str:
        """What people call it."""

    @property
    def marks(self) -> Sizes:
        """The tensors that tell it."""


Row = TypeVar("Row", bound=Known)


def recognize(tensors: Tensors, architectures: Sequence[Architecture]) -> Recognized:
    """The architecture of a checkpoint.

    Raises ModelError if it is none that is known; if only its sizes are not, the message has those that differ from the
    architecture that comes nearest.
    """
    rows = [(architecture, architecture.denoiser.prefixes) for architecture in architectures]
    architecture, prefix = nearest(tensors, rows, "model of pictures")
    return _said(tensors, architecture, prefix)


def nearest(tensors: Tensors, rows: Iterable[tuple[Row, Sequence[str]]], what: str) -> tuple[Row, str]:
    """The row whose marks a file has, and which of the row's beginnings its names have. Raises ModelError, as `recognize`."""
    closest: tuple[int, Row, list[str]] | None = None
    for row, prefixes in rows:
        for prefix in prefixes:
            different = differences(tensors, row.marks, prefix)
            if different is None:
                continue
            if not different:
                return row, prefix
            if closest is None or len(different) < closest[0]:
                closest = len(different), row, different
    if closest is not None:
        raise ModelError(f"it is like {closest[1].name}, but of other sizes: {'; '.join(closest[2])}")
    some = ", ".join(list(tensors)[:3]) or "nothing"
    raise ModelError(f"it is not a {what} that is known; it has {some}, …")


def differences(tensors: Tensors, marks: Sizes, prefix: str) -> list[str] | None:
    """How sizes differ from those that are expected; None if the first of the marks is not there at all."""
    found: list[str] = []
    for number, (mark, wanted) in enumerate(marks.items()):
        name, other = prefix + mark, prefix + in_diffusers(mark)
        tensor = tensors.get(name, tensors.get(other))
        if tensor is None and number == 0:
            return None
        shape = None if tensor is None else tuple(tensor.shape)
        joined = name in tensors  # queries, keys and values: one tensor in the authors' layout, three in diffusers'
        if shape is None or wanted is None:
            if (shape is None) != (wanted is None):
                found.append(f"{name} is {'missing' if shape is None else 'there'}")
        elif joined and not _fits(shape, wanted):
            found.append(f"{name} is {list(shape)}, not {list(wanted)}")
        elif not joined and shape[1:] != wanted[1:] and len(shape) == len(wanted):
            found.append(f"{other} is {list(shape)}, not {list(wanted)}")
    return found


def in_diffusers(mark: str) -> str:
    """What diffusers calls a tensor of a mark; the same name if it is not in the table."""
    for theirs, ours in DIFFUSERS.items():
        if found := re.match(re.escape(theirs).replace(r"\*", r"(\d+)"), mark):
            return ours.replace("*", "".join(found.groups())) + mark[found.end() :]
    return mark


def _fits(shape: tuple[int, ...], wanted: tuple[int | None, ...]) -> bool:
    return len(shape) == len(wanted) and all(b is None or a == b for a, b in zip(shape, wanted, strict=True))


def _said(tensors: Tensors, architecture: Architecture, prefix: str) -> Recognized:
    """What keys say of the prediction."""
    prediction = architecture.prediction
    if "v_pred" in tensors or (prefix + VELOCITY in tensors and _velocity(architecture, tensors[prefix + VELOCITY])):
        prediction = "v"
    found = Recognized(architecture, prefix, prediction, "ztsnr" in tensors)
    if "edm_mean" in tensors and "edm_std" in tensors:
        playground = replace(architecture, latent=latents.PLAYGROUND)
        return replace(found, architecture=playground, prediction="edm", edm=(0.002, 80.0, 0.5))
    if "edm_vpred.sigma_max" in tensors:
        low = tensors.get("edm_vpred.sigma_min")
        ends = 0.002 if low is None else _number(low), _number(tensors["edm_vpred.sigma_max"])
        return replace(found, prediction="v", edm=(*ends, 1.0))
    return found


def _number(tensor: Any) -> float:
    return float(np.asarray(tensor, np.float32).reshape(-1)[0])


def _velocity(architecture: Architecture, bias: Any) -> bool:
    return (
        "clip_h" in architecture.text
        and not architecture.extra
        and float(np.std(np.asarray(bias, np.float32))) > SPREAD
    )


def beginning(tensors: Tensors, part: Part) -> str | None:
    """What the names of a component's tensors begin with in a checkpoint; None if it has none."""
    return next((each for each in part.prefixes if any(name.startswith(each) for name in tensors)), None)
