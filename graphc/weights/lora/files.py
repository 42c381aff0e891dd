"""LoRA files: which module each tensor is for, of which component of a pipeline, and what it is.

The formats differ in how they end their names (`ENDINGS`) and in how these begin (`COMPONENTS`); what lies between is the
module, with dots, or in kohya's files with underscores in their places.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from graphc.errors import CheckpointError
from graphc.ir.types import FLOATS, INTEGERS, NARROW
from graphc.weights.checkpoint import Source, open_checkpoint
from graphc.weights.formats.tensors import Unreadable
from graphc.weights.lora.adapter import BESIDE, Adapter
from graphc.weights.lora.of_weight import PARTS
from graphc.weights.lora.settings import ModuleSettings, read_settings

COMPONENTS = {
    "base_model.model.": "", "model.diffusion_model.": "denoiser", "diffusion_model.": "denoiser",
    "unet.": "denoiser", "transformer.": "denoiser",
    "lora_unet_": "denoiser", "oft_unet_": "denoiser", "lora_transformer_": "denoiser", "lycoris_": "",
    "text_encoder.": "text_encoder", "text_encoder_2.": "text_encoder_2", "text_encoder_3.": "text_encoder_3",
    "lora_te_": "text_encoder", "lora_te1_": "text_encoder", "lora_te2_": "text_encoder_2", "lora_te3_": "text_encoder_3",
    "text_encoders.clip_l.transformer.": "text_encoder", "text_encoders.clip_g.transformer.": "text_encoder_2",
    "text_encoders.t5xxl.transformer.": "text_encoder_3",
    **{f"text_encoders.{each}.transformer.": "text_encoder" for each in ("clip_h", "qwen3_4b", "qwen3_8b", "qwen25_7b")},
    "clip_l.": "text_encoder", "clip_g.": "text_encoder_2", "t5.": "text_encoder_3",
}  # fmt: skip
"""How names begin, and which component they are for; "" where that is not said. Beginnings may follow one another."""

WEIGHT, BIAS = "weight", "bias"

ENDINGS = {
    **{
        f"{before}{name}.weight": (WEIGHT, factor)
        for before in ("lora_", "lora.", "lora_linear_layer.")
        for name, factor in (("down", "down"), ("up", "up"), ("mid", "mid"))
    },
    "lora_A.weight": (WEIGHT, "down"), "lora_B.weight": (WEIGHT, "up"),
    "lora_embedding_A": (WEIGHT, "embedding_down"), "lora_embedding_B": (WEIGHT, "embedding_up"),
    "lora_magnitude_vector": (WEIGHT, "magnitude"), "lora_magnitude_vector.weight": (WEIGHT, "magnitude"),
    "magnitude": (WEIGHT, "magnitude"), "dora_scale": (WEIGHT, "dora_scale"), "alpha": (WEIGHT, "alpha"),
    "lora_B.bias": (BIAS, "diff"),
    **{f"hada_{name}": (WEIGHT, f"hada_{name}") for name in ("w1_a", "w1_b", "w2_a", "w2_b", "t1", "t2")},
    **{f"lokr_{name}": (WEIGHT, f"lokr_{name}") for name in ("w1", "w1_a", "w1_b", "w2", "w2_a", "w2_b", "t2")},
    "oft_blocks": (WEIGHT, "oft_blocks"), "oft_blocks.0": (WEIGHT, "oft_blocks"),
    **{each: (WEIGHT, each) for each in PARTS[1:]}, "rescale": (WEIGHT, "rescale"),
    "oft_R.weight": (WEIGHT, "oft_R"), "oft_R.scaled_oft": (WEIGHT, "scaled_oft"),
    **{f"{name}.weight": (WEIGHT, name) for name in ("a1", "a2", "b1", "b2")},
    "ia3_weight": (WEIGHT, "ia3_weight"), "on_input": (WEIGHT, "on_input"),
    "diff": (WEIGHT, "diff"), "w_norm": (WEIGHT, "diff"), "set_weight": (WEIGHT, "set"),
    "diff_b": (BIAS, "diff"), "b_norm": (BIAS, "diff"), "set_bias": (BIAS, "set"),
}  # fmt: skip
"""How names end, whether that changes the module's weight or its bias, and what the tensor is."""

OTHERS = {
    "lambda_layer": "a T-LoRA", "oft_diag": "an OFT of LyCORIS 1", "oft_r": "an OFT of PEFT before 0.14",
    "boft_R": "a BOFT of PEFT", "ia3_l": "an IA3 of PEFT", "hra_u": "an HRA", "vera_lambda_b": "a VeRA",
    "bm.weight": "a GLoRA with a core",
}  # fmt: skip
"""How names of kinds end that cannot be applied, and what they are part of."""

EMBEDDINGS = "bundle_emb."
"""How names of embeddings of textual inversion begin that a file has beside its adapters."""

SPELLINGS = [
    (re.compile(r"(\.self_attn)\.to_([qkv])_lora\.(down|up)\.weight$"), r"\1.\2_proj.lora.\3.weight"),
    (re.compile(r"(\.self_attn)\.to_out_lora\.(down|up)\.weight$"), r"\1.out_proj.lora.\2.weight"),
    (re.compile(r"(^|\.)(double_blocks\.\d+)\.processor\.(qkv|proj)_lora1\.(?=down|up)"), r"\1\2.img_attn.\3.lora."),
    (re.compile(r"(^|\.)(double_blocks\.\d+)\.processor\.(qkv|proj)_lora2\.(?=down|up)"), r"\1\2.txt_attn.\3.lora."),
    (re.compile(r"(^|\.)(single_blocks\.\d+)\.processor\.qkv_lora\.(?=down|up)"), r"\1\2.linear1_qkv.lora."),
    (re.compile(r"(^|\.)(single_blocks\.\d+)\.processor\.proj_lora\.(?=down|up)"), r"\1\2.linear2.lora."),
    (re.compile(r"(\.processor)?\.(to_[qkv])_lora\.(down|up)\.weight$"), r".\2.lora.\3.weight"),
    (re.compile(r"(\.processor)?\.to_out_lora\.(down|up)\.weight$"), r".to_out.0.lora.\2.weight"),
    (
        re.compile(r"\.(lora_[AB]|lora_magnitude_vector|oft_R)\.(?!weight$|bias$|scaled_oft$)\w+\.weight$"),
        r".\1.weight",
    ),
    (re.compile(r"\.(lora_embedding_[AB])\.\w+$"), r".\1"),
]
"""Older names, XLabs' names for Flux, and names that say which of several adapters of PEFT's they are, as `ENDINGS` has them."""


@dataclass(frozen=True)
class LoraFile:
    """The adapters of each component ("" where the file does not say of which) by the parameter that they change, and the
    names of tensors that belong to none. Those of embeddings are for what has a tokenizer."""

    adapters: Mapping[str, Mapping[str, Adapter]]
    unknown: Mapping[str, list[str]]
    embeddings: list[str]


def read_lora(source: Source) -> LoraFile:
    """The adapters of a file, a folder that PEFT wrote, or tensors by name. Raises CheckpointError."""
    settings = read_settings(source)
    found: dict[tuple[str, str], _Group] = {}
    unknown: dict[str, list[str]] = {}
    given = open_checkpoint(source)
    for key, spelled in _spelled(given).items():
        tensor, (component, name) = given[key], _component(spelled)
        module, slot, what = _parsed(name)
        if not what:
            if kind := next((kind for end, kind in OTHERS.items() if key.endswith(f".{end}")), ""):
                raise CheckpointError(f"{key}: it is a part of {kind}, which cannot be applied")
            unknown.setdefault(component, []).append(key)
            continue
        if isinstance(tensor, Unreadable):
            raise CheckpointError(f"{key}: {tensor.reason}")
        array = np.asarray(tensor)
        array = array.astype(np.uint8) if array.dtype == np.bool_ else array
        if array.dtype not in FLOATS | NARROW | INTEGERS:
            raise CheckpointError(f"{key}: it has {array.dtype.name}, no numbers of a LoRA")
        group = found.setdefault((component, f"{module}.{slot}"), _Group(spelled[: -len(name)] + module, module))
        if what in group.tensors:
            raise CheckpointError(f"{key}: another tensor says the same of this module")
        group.tensors[what] = array
    adapters: dict[str, dict[str, Adapter]] = {}
    for (component, parameter), group in found.items():
        adapters.setdefault(component, {})[parameter] = group.adapter(settings.of(component, group.module))
    return LoraFile(adapters, unknown, [each for each in given if each.startswith(EMBEDDINGS)])


def is_lora(names: Iterable[str]) -> bool:
    """True if most of a file's tensors, by their names, are parts of a LoRA, and not only numbers beside one."""
    found = [_parsed(_component(each)[1])[2] for each in _spelled(names).values()]
    return 2 * sum(map(bool, found)) > len(found) and bool(set(found) - {"", *BESIDE})


@dataclass
class _Group:
    """The tensors of one adapter, until all have been seen."""

    name: str
    module: str
    tensors: dict[str, np.ndarray] = field(default_factory=dict)

    def adapter(self, settings: ModuleSettings) -> Adapter:
        tensors = {("diff" if what == "set" else what): array for what, array in self.tensors.items()}
        if "diff" in tensors and tensors["diff"].ndim == 1:
            tensors["diff"] = tensors["diff"][:, None]
        if "oft_blocks" in tensors and tensors["oft_blocks"].ndim == 4:
            tensors["boft_blocks"] = tensors.pop("oft_blocks")
        if {"ia3_weight", "on_input"} <= tensors.keys():
            which = "ia3_columns" if tensors.pop("on_input").any() else "ia3_rows"
            tensors[which] = tensors.pop("ia3_weight").reshape(-1)
        return Adapter(self.name, tensors, settings.scale, "set" in self.tensors, settings.transposed, settings.turning)


def _spelled(names: Iterable[str]) -> dict[str, str]:
    """A file's names but those of embeddings, and how they are read. IA3's vector is called `weight`, which another tensor
    beside it tells from a weight."""
    names = [each for each in names if not each.startswith(EMBEDDINGS)]
    scaled = {each.removesuffix(".on_input") for each in names if each.endswith(".on_input")}
    return {
        each: f"{module}.ia3_weight" if ending == "weight" and module in scaled else each
        for each in names
        for module, _, ending in [each.rpartition(".")]
    }


def _component(key: str) -> tuple[str, str]:
    """The component that a tensor is for, and its name without what says so."""
    component, rest = "", key
    while not component:
        beginning = next((each for each in COMPONENTS if rest.startswith(each)), "")
        if not beginning:
            break
        component, rest = COMPONENTS[beginning], rest[len(beginning) :]
    return component, rest


def _parsed(name: str) -> tuple[str, str, str]:
    """The module, weight or bias, and what the tensor is; "" if that is not known."""
    for spelling, usual in SPELLINGS:
        name = spelling.sub(usual, name)
    parts = name.split(".")
    for count in (3, 2, 1):
        slot, what = ENDINGS.get(".".join(parts[-count:]), ("", ""))
        if what and len(parts) > count:
            return ".".join(parts[:-count]), slot, what
    return name, "", ""
