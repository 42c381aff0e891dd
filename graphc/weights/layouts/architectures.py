"""The architectures: which components a checkpoint has, under which beginnings of names, and by what each is recognized."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias, Union

from graphc.weights.layouts import text, transformer, unet, wan
from graphc.weights.layouts.table import SAME, Source, Table

Shapes: TypeAlias = Mapping[str, Union[tuple[int, ...], None]]
"""The shapes of tensors by name; of one that cannot be read, None."""


@dataclass(frozen=True)
class Part:
    """A component: its names begin with one of `prefixes`, and it has all of `marks`, there with so many axes (0: any)."""

    component: str
    table: Table
    prefixes: tuple[str, ...]
    marks: tuple[tuple[str, int], ...]

    def prefix(self, shapes: Shapes) -> str | None:
        """What its names begin with in a checkpoint; None if it is not in there."""
        for prefix in self.prefixes:
            found = [(prefix + name, axes) for name, axes in self.marks]
            if all(name in shapes and axes in (0, len(shapes[name] or ())) for name, axes in found):
                return prefix
        return None


def part(component: str, table: Table, prefixes: Iterable[str], *marks: str | tuple[str, int]) -> Part:
    """A part whose marks are names, or names and numbers of axes."""
    return Part(
        component, table, tuple(prefixes), tuple((each, 0) if isinstance(each, str) else each for each in marks)
    )


@dataclass(frozen=True)
class Architecture:
    """What a checkpoint holds. It is one of these if it has the first part."""

    name: str
    parts: tuple[Part, ...]


DENOISER = ("model.diffusion_model.", "")
CONTROL = ("control_model.", "")
FIRST = "input_blocks.0.0.weight"


def vae() -> Part:
    """The autoencoder, with as many channels as it has."""
    return part("vae", unet.VAE, ["first_stage_model.", "vae."], "decoder.conv_in.weight")


def vae_packed() -> Part:
    """Flux.2's autoencoder."""
    return part("vae", unet.VAE_PACKED, ["first_stage_model.", "vae."], "decoder.conv_in.weight", "bn.running_mean")


def vae_wan() -> Part:
    """Wan 2.1's autoencoder."""
    return part("vae", wan.VAE, ["first_stage_model.", "vae."], "decoder.middle.0.residual.0.gamma")


def clip(component: str, prefix: str) -> tuple[Part, Part]:
    """CLIP as transformers names it; or, in a few files, without the outer module."""
    return (
        part(component, text.CLIP, [prefix], "text_model.embeddings.token_embedding.weight"),
        part(component, text.CLIP_BARE, [prefix], "embeddings.token_embedding.weight"),
    )


def openclip(component: str, prefix: str) -> Part:
    """CLIP as OpenCLIP names it."""
    return part(component, text.OPENCLIP, [prefix], "transformer.resblocks.0.ln_1.weight")


def t5(component: str, prefix: str = "text_encoders.t5xxl.transformer.") -> Part:
    """T5's encoder."""
    return part(component, text.T5, [prefix], "encoder.block.0.layer.0.layer_norm.weight")


def qwen(component: str, prefix: str) -> Part:
    """Qwen's language model."""
    return part(component, text.QWEN, [prefix], "model.layers.0.self_attn.q_proj.weight")


ARCHITECTURES = (
    Architecture("ControlNet of Stable Diffusion XL", (
        part("controlnet", unet.CONTROLNET_XL, CONTROL, "input_hint_block.0.weight", "label_emb.0.0.weight"),
    )),
    Architecture("ControlNet of Stable Diffusion 1 or 2", (
        part("controlnet", unet.CONTROLNET, CONTROL, "input_hint_block.0.weight"),
        part("unet", unet.UNET, DENOISER[:1], FIRST), vae(), *clip("text_encoder", "cond_stage_model.transformer."),
        openclip("text_encoder", "cond_stage_model.model."),
    )),
    Architecture("ControlNet of diffusers", (
        part("controlnet", unet.CONTROLNET_NAMED, [""], "controlnet_cond_embedding.conv_in.weight"),
    )),
    Architecture("T2I-Adapter", (part("adapter", unet.ADAPTER, [""], "body.0.block1.weight"),)),
    Architecture("light T2I-Adapter", (part("adapter", unet.ADAPTER_LIGHT, [""], "body.0.body.0.block1.weight"),)),
    Architecture("T2I-Adapter of diffusers", (
        part("adapter", unet.ADAPTER_NAMED, [""], "adapter.body.0.resnets.0.block1.weight"),
    )),
    Architecture("Stable Diffusion XL refiner", (
        part("unet", unet.UNET_REFINER, DENOISER, FIRST, "label_emb.0.0.weight", "output_blocks.11.0.in_layers.0.weight"),
        vae(), openclip("text_encoder_2", "conditioner.embedders.0.model."),
    )),
    Architecture("Stable Diffusion XL", (
        part("unet", unet.UNET_XL, DENOISER, FIRST, "label_emb.0.0.weight"),
        vae(), *clip("text_encoder", "conditioner.embedders.0.transformer."),
        openclip("text_encoder_2", "conditioner.embedders.1.model."),
    )),
    Architecture("Stable Diffusion 2", (
        part("unet", unet.UNET, DENOISER, FIRST, ("input_blocks.1.1.proj_in.weight", 2)),
        vae(), openclip("text_encoder", "cond_stage_model.model."),
    )),
    Architecture("Stable Diffusion 1", (
        part("unet", unet.UNET, DENOISER, FIRST),
        vae(), *clip("text_encoder", "cond_stage_model.transformer."),
    )),
    Architecture("Stable Diffusion 3", (
        part("transformer", transformer.SD3, DENOISER, "joint_blocks.0.x_block.attn.qkv.weight"),
        vae(), *clip("text_encoder", "text_encoders.clip_l.transformer."),
        *clip("text_encoder_2", "text_encoders.clip_g.transformer."), t5("text_encoder_3"),
    )),
    Architecture("Chroma", (
        part(
            "transformer", transformer.CHROMA, DENOISER, "distilled_guidance_layer.in_proj.weight",
            "double_blocks.0.img_attn.qkv.weight",
        ),
        vae(), t5("text_encoder"),
    )),
    Architecture("Flux.2", (
        part("transformer", transformer.FLUX2, DENOISER, "single_stream_modulation.lin.weight"),
        vae_packed(), qwen("text_encoder", "text_encoders.qwen3_4b.transformer."),
        qwen("text_encoder", "text_encoders.qwen3_8b.transformer."),
    )),
    Architecture("Flux", (
        part("transformer", transformer.FLUX, DENOISER, "double_blocks.0.img_attn.qkv.weight"),
        vae(), *clip("text_encoder", "text_encoders.clip_l.transformer."), t5("text_encoder_2"),
    )),
    Architecture("Z-Image", (
        part("transformer", transformer.Z_IMAGE, DENOISER, "cap_embedder.1.weight", "x_embedder.weight", "x_pad_token"),
        vae(), qwen("text_encoder", "text_encoders.qwen3_4b.transformer."),
    )),
    Architecture("Qwen-Image", (
        part("transformer", transformer.QWEN_IMAGE, DENOISER, "txt_norm.weight", "transformer_blocks.0.img_mod.1.weight"),
        vae_wan(), qwen("text_encoder", "text_encoders.qwen25_7b.transformer."),
    )),
    Architecture("autoencoder of Flux.2", (
        part(
            "vae", unet.VAE_PACKED, ["first_stage_model.", "vae.", ""], "decoder.conv_in.weight",
            "decoder.mid.block_1.norm1.weight", "bn.running_mean",
        ),
    )),
    Architecture("autoencoder", (
        part("vae", unet.VAE, ["first_stage_model.", "vae.", ""], "decoder.conv_in.weight", "decoder.mid.block_1.norm1.weight"),
    )),
    Architecture("autoencoder of Wan 2.1", (
        part("vae", wan.VAE, ["first_stage_model.", "vae.", ""], "decoder.middle.0.residual.0.gamma"),
    )),
    Architecture("autoencoder of Qwen-Image in diffusers", (
        part("vae", wan.VAE_NAMED, [""], "decoder.mid_block.resnets.0.norm1.gamma"),
    )),
    Architecture("autoencoder of diffusers", (
        part("vae", unet.VAE_BEFORE, [""], "decoder.conv_in.weight", "decoder.mid_block.resnets.0.norm1.weight"),
    )),
    Architecture("TAESD of diffusers", (part("tiny", unet.TINY, [""], "decoder.layers.0.weight", "encoder.layers.0.weight"),)),
    Architecture("TAEW2.1", (part("tiny", unet.TINY, [""], "decoder.3.conv.0.weight", "decoder.7.conv.weight"),)),
    Architecture("TAESD's decoder", (part("tiny", unet.TINY_DECODER, [""], "1.weight", "3.conv.0.weight"),)),
    Architecture("TAESD's encoder", (part("tiny", unet.TINY_ENCODER, [""], "0.weight", "1.conv.0.weight"),)),
    Architecture("OpenCLIP", (openclip("text_encoder", ""),)),
    Architecture("CLIP", clip("text_encoder", "")),
    Architecture("T5", (t5("text_encoder", ""),)),
    Architecture("Qwen", (qwen("text_encoder", ""),)),
    Architecture("Qwen that sees", (
        part("text_encoder", text.QWEN, [""], "model.language_model.layers.0.self_attn.q_proj.weight"),
    )),
    Architecture("Qwen of llama.cpp", (
        part("text_encoder", text.QWEN_LLAMA, [""], "blk.0.attn_q.weight", "blk.0.ffn_gate.weight"),
    )),
    Architecture("T5 of llama.cpp", (part("text_encoder", text.T5_LLAMA, [""], "enc.blk.0.attn_q.weight"),)),
)  # fmt: skip
"""In the order in which they are tried: of two that share a mark, the one with more marks is first."""

FOLDERS = {
    "unet": SAME, "transformer": transformer.AS_FILED, "vae": wan.VAE_IN_FOLDER, "controlnet": SAME,
    "text_encoder": text.AS_FILED, "text_encoder_2": text.AS_FILED, "text_encoder_3": text.AS_FILED,
}  # fmt: skip
"""The components that are looked for in a folder, each in a folder of its name, which is before its tensors' names."""

IGNORED = re.compile(
    r"model_ema\.|denoiser\.|loss\.|edm_|(v_pred|ztsnr|global_step|lvlb_weights|betas)$"
    r"|(alphas_cumprod|sqrt_|log_one_minus_|posterior_|logvar)\w*$|.*\b(logit_scale|attn_mask|position_ids|inv_freq|num_batches_tracked)$"
)
"""Names that are no part of a model: averages of training, the schedule of the noise, what a loss needs."""


@dataclass(frozen=True)
class Layout:
    """How a checkpoint's tensors are arranged: its architecture, and what the names of each of its parts begin with."""

    name: str
    parts: Mapping[str, tuple[Table, str]]

    def names(self, component: str, names: Iterable[str]) -> list[str]:
        """The names of a component's tensors, as the checkpoint has them."""
        prefix = self.parts[component][1]
        others = tuple(each for _, each in self.parts.values() if each.startswith(prefix) and each != prefix)
        return [each for each in names if each.startswith(prefix) and not (others and each.startswith(others))]

    def images(self, component: str, names: Iterable[str]) -> list[tuple[str, Source]]:
        """Each of our names that a component's tensors give, and where it is from; what no row knows is left out."""
        table, prefix = self.parts[component]
        found = table.images(each.removeprefix(prefix) for each in self.names(component, names))
        return [(ours, Source(prefix + theirs, row.steps)) for row, theirs, ours in found]

    def sources(self, names: Iterable[str]) -> dict[str, dict[str, Source]]:
        """Where the tensors of every component are from, by our names."""
        names = list(names)
        return {each: dict(reversed(self.images(each, names))) for each in self.parts}


def detect(shapes: Shapes) -> Layout | None:
    """The layout of a checkpoint, by the names of its tensors and, where they are the same, by their numbers of axes."""
    folders = {name.partition("/")[0] for name in shapes if "/" in name}
    if folders and folders <= FOLDERS.keys():
        return Layout("folder of diffusers", {each: (FOLDERS[each], f"{each}/") for each in FOLDERS if each in folders})
    for each in ARCHITECTURES:
        if each.parts[0].prefix(shapes) is not None:
            prefixes = [(part, part.prefix(shapes)) for part in each.parts]
            return Layout(
                each.name, {part.component: (part.table, prefix) for part, prefix in prefixes if prefix is not None}
            )
    return None


@dataclass(frozen=True)
class Origin:
    """What a model is, by its own names: a component of these architectures, and where each of its parameters is from; `idle` is
    that of the component's table.

    The names of the sources are those within the component, without what a checkpoint puts before them.
    """

    architectures: tuple[str, ...]
    component: str
    sources: Mapping[str, Source]
    idle: tuple[str, ...] = ()


def spellings(names: Iterable[str]) -> list[tuple[str, str]]:
    """What to take off the beginning of a model's names, and what to put there, to get the names of a component.

    A model may be within another module. transformers' CLIPTextModel has lost the module `text_model` that its files name.
    """
    names = sorted(names)
    first, last = names[0], names[-1]
    shared = [""] + [first[: dot.end()] for dot in re.finditer(r"\.", first) if last.startswith(first[: dot.end()])]
    return [(cut, put) for cut in shared for put in ("", "text_model.")]


def origins(names: Iterable[str]) -> list[Origin]:
    """The components that know a model's names, those that know the most first, and of those the smallest; only names that are
    known are in `sources`."""
    names = list(names)
    first = {each.parts[0].table for each in ARCHITECTURES}
    places: dict[Table, dict[str, str]] = {}
    for architecture in ARCHITECTURES if names else ():
        for part in architecture.parts:
            if part is architecture.parts[0] or part.table not in first:
                places.setdefault(part.table, {})[architecture.name] = part.component
    tables = sorted(places.items(), key=lambda each: len(each[0].rows))
    found = [
        Origin(tuple(there), next(iter(there.values())), _known(table, names), table.idle) for table, there in tables
    ]
    return sorted((each for each in found if each.sources), key=lambda each: -len(each.sources))


def _known(table: Table, names: Sequence[str]) -> dict[str, Source]:
    def known(cut: str, put: str) -> dict[str, Source]:
        ours = {put + name.removeprefix(cut): name for name in names}
        return {ours[name]: source for name, source in table.theirs(ours).items()}

    return max((known(*each) for each in spellings(names)), key=len)
