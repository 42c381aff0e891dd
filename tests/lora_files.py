"""Adapters of PEFT as the files of other programs: kohya's and LyCORIS's names, diffusers' old and new ones."""

from __future__ import annotations

import re

import numpy as np
import torch
from peft import LoHaConfig, LoKrConfig, LoraConfig, OFTConfig, get_peft_model, get_peft_model_state_dict

KINDS = {
    "lora": (LoraConfig, {"lora_alpha": 3, "init_lora_weights": False}),
    "rslora": (LoraConfig, {"lora_alpha": 3, "init_lora_weights": False, "use_rslora": True}),
    "dora": (LoraConfig, {"lora_alpha": 3, "init_lora_weights": False, "use_dora": True}),
    "loha": (LoHaConfig, {"alpha": 3, "init_weights": False}),
    "loha_cores": (LoHaConfig, {"alpha": 3, "init_weights": False, "use_effective_conv2d": True}),
    "lokr": (LoKrConfig, {"alpha": 3, "init_weights": False}),
    "lokr_both": (LoKrConfig, {"alpha": 3, "init_weights": False, "decompose_both": True, "decompose_factor": 4}),
    "lokr_cores": (LoKrConfig, {"alpha": 3, "init_weights": False, "use_effective_conv2d": True}),
    "oft": (OFTConfig, {"oft_block_size": 0, "init_weights": False}),
    "oft_exact": (OFTConfig, {"oft_block_size": 0, "use_cayley_neumann": False, "init_weights": False}),
}
"""PEFT's kinds of adapters, with random factors in place of those that change nothing."""


def adapted(module, kind: str, targets: str, rank: int = 4, seed: int = 0):
    """The module with PEFT's adapters in all modules whose names match `targets` to their ends."""
    torch.manual_seed(seed)
    config, settings = KINDS[kind]
    made = get_peft_model(module, config(r=rank, target_modules=rf".*\.({targets})", **settings))
    for name, parameter in made.named_parameters():
        if "magnitude" in name:
            parameter.data *= 1 + 0.3 * torch.rand_like(parameter)
        elif parameter.requires_grad:
            parameter.data = 0.3 * torch.randn_like(parameter) / parameter.shape[-1] ** 0.25
    return made


def merged(made):
    """The weights of the module with the adapters in them, by name."""
    module = made.merge_and_unload()
    return {name: tensor.detach().numpy().copy() for name, tensor in module.state_dict().items()}


def peft_tensors(made) -> dict[str, np.ndarray]:
    """What PEFT writes into its file, without what it puts before names."""
    state = get_peft_model_state_dict(made)
    return {name.removeprefix("base_model.model."): tensor.detach().numpy() for name, tensor in state.items()}


KOHYA = {"lora_A.weight": "lora_down.weight", "lora_B.weight": "lora_up.weight", "lora_magnitude_vector": "dora_scale"}


def kohya(made, prefix: str, alpha: float = 3, rank: int = 4) -> dict[str, np.ndarray]:
    """The tensors as kohya's scripts and LyCORIS write them: underscores in module names, and alpha beside each.

    They do not scale a product of two whole matrices (LoKr), where PEFT does.
    """
    found = {}
    for name, tensor in peft_tensors(made).items():
        module, what = re.fullmatch(r"(.*?)\.((?:lora|hada|lokr)_.*)", name).groups()
        what, module = KOHYA.get(what, what), prefix + module.replace(".", "_")
        found[f"{module}.{what}"] = tensor.reshape(-1, *[1] * (tensor.ndim or 1)) if what == "dora_scale" else tensor
        found[f"{module}.alpha"] = np.float32(alpha)
    for name in [each for each in found if each.endswith(".lokr_w1")]:
        if name.replace("w1", "w2") in found:
            found[name] = found[name] * np.float32(alpha / rank)
    return found


def old_diffusers(made, prefix: str) -> dict[str, np.ndarray]:
    """The tensors of attention layers as diffusers wrote them before it used PEFT: no alpha, the rank in its place."""
    found = {}
    for name, tensor in peft_tensors(made).items():
        module, factor = re.fullmatch(r"(.*)\.lora_([AB])\.weight", name).groups()
        attention, which = re.fullmatch(r"(.*\.attn\d)\.(to_[qkv]|to_out)(?:\.0)?", module).groups()
        found[f"{prefix}{attention}.processor.{which}_lora.{'down' if factor == 'A' else 'up'}.weight"] = tensor
    return found
