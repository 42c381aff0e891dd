"""What people add to a model: a LoRA, a textual inversion and a ControlNet, each trained for the small one."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import numpy as np
import torch
from peft import LoraConfig
from peft.utils import get_peft_model_state_dict
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from examples.shapes.denoiser import longest
from examples.shapes.latents import encoded, latents_of, measure, white
from examples.shapes.networks import build_controlnet, tokens_of, trained_denoiser
from examples.shapes.scenes import OUTLINES, PLAIN, Scene, Style, draw_scene, scenes
from examples.shapes.training import SIDE, Stage, velocity_error
from graphc_images.pictures.preprocessors import canny

EXAMPLES = 2000
RANK = 16
ADAPTED = ["to_q", "to_k", "to_v", "to_out.0", "net.0.proj", "net.2", "conv1", "conv2"]
"""The U-Net's layers that the LoRA changes: attention, what follows it, and convolutions."""
GIZMO = "purple star"
"""What the textual inversion stands for."""
MARK = 49405
"""A token that no caption has, in whose place the vector is put while it is learnt."""
WITHOUT_CAPTION = 0.3


def train_lora(directory: Path, steps: int, batch: int) -> None:
    """Another style, hollow shapes, as factors of a low rank; written under kohya's names."""
    drawn = list(islice(scenes(2), EXAMPLES))
    latents, captions = drawn_latents(directory, drawn, OUTLINES), captions_of(drawn)
    unet, text = trained_denoiser(directory)
    unet.add_adapter(LoraConfig(r=RANK, lora_alpha=RANK, target_modules=ADAPTED))
    stage = Stage(directory / "lora.pt", nn.ModuleDict({"unet": unet}), 2e-3, steps)

    def loss(step: int) -> Tensor:
        torch.manual_seed(step)
        chosen = torch.randint(0, len(latents), (batch,))
        states = text(captions[chosen]).last_hidden_state
        return velocity_error(lambda noisy, level: unet(noisy, level, states).sample, latents[chosen])

    stage.train(loss)
    tensors = {}
    for name, tensor in get_peft_model_state_dict(stage.averages["unet"]).items():
        layer, side, _ = name.rsplit(".", 2)
        ours = f"lora_unet_{layer.replace('.', '_')}"
        tensors[f"{ours}.{'lora_down' if side == 'lora_A' else 'lora_up'}.weight"] = tensor.half().contiguous()
        tensors[f"{ours}.alpha"] = torch.tensor(float(RANK)).half()
    notes = {"ss_network_module": "networks.lora", "ss_output_name": "outlines", "ss_network_dim": str(RANK)}
    save_file(tensors, directory / "outlines.safetensors", notes)


def train_embedding(directory: Path, steps: int, batch: int) -> None:
    """A new word: a vector that stands for `GIZMO` is found, and nothing else learns (textual inversion)."""
    drawn = list(
        islice((each for each in scenes(3) if [thing.name for thing in each.things] == [GIZMO]), EXAMPLES // 8)
    )
    latents = drawn_latents(directory, drawn)
    words = tokens_of(GIZMO)[1:-1]
    words = words[: words.index(tokens_of("")[-1])]
    captions = torch.tensor([marked(tokens_of(each.caption), words) for each in drawn])
    unet, text = trained_denoiser(directory)
    table = text.get_input_embeddings()
    vector = nn.Parameter(table.weight.mean(0, keepdim=True).clone())
    table.register_forward_hook(lambda _, ids, rows: torch.where((ids[0] == MARK)[..., None], vector, rows))
    stage = Stage(
        directory / "embedding.pt", nn.ModuleDict({"vector": nn.ParameterDict({"gizmo": vector})}), 5e-3, steps
    )

    def loss(step: int) -> Tensor:
        torch.manual_seed(step)
        chosen = torch.randint(0, len(latents), (batch,))
        states = text(captions[chosen]).last_hidden_state
        return velocity_error(lambda noisy, level: unet(noisy, level, states).sample, latents[chosen])

    stage.train(loss)
    save_file({"emb_params": stage.averages["vector"]["gizmo"].contiguous()}, directory / "gizmo.safetensors")


def marked(ids: list[int], words: list[int]) -> list[int]:
    """A caption in which the mark stands for some words; the end follows as often as it must."""
    first = next(place for place in range(len(ids)) if ids[place : place + len(words)] == words)
    return [*ids[:first], MARK, *ids[first + len(words) :], *[ids[-1]] * (len(words) - 1)]


def train_controlnet(directory: Path, steps: int, batch: int) -> None:
    """Edges say what is where: a copy of the U-Net's first half learns to look at them, or a ControlNet in the directory does."""
    drawn = list(islice(scenes(1), 4 * EXAMPLES))
    latents, captions = (each[: len(drawn)] for each in latents_of(directory))
    edges = np.stack([canny(np.asarray(draw_scene(each, SIDE)))[..., 0] for each in drawn])
    hints = torch.from_numpy(edges)[:, None].expand(-1, 3, -1, -1)
    unet, text = trained_denoiser(directory)
    stage = Stage(directory / "controlnet.pt", nn.ModuleDict({"control": build_controlnet(unet)}), 4e-4, steps)
    written = directory / "edges.safetensors"
    if stage.done == 0 and written.exists():  # of a model that has since learnt on
        for each in (stage.modules, stage.averages):
            each["control"].load_state_dict({name: tensor.float() for name, tensor in load_file(written).items()})
    control, empty, length = (
        stage.modules["control"].requires_grad_(True),
        torch.tensor(tokens_of("")),
        longest(captions),
    )

    def loss(step: int) -> Tensor:
        torch.manual_seed(step)
        chosen = torch.randint(0, len(latents), (batch,))
        words = torch.where(torch.rand(batch, 1) < WITHOUT_CAPTION, empty, captions[chosen])[:, :length]
        states, seen = text(words).last_hidden_state, hints[chosen].float() / 255

        def predict(noisy: Tensor, level: Tensor) -> Tensor:
            down, middle = control(noisy, level, states, seen, return_dict=False)
            residuals = {"down_block_additional_residuals": down, "mid_block_additional_residual": middle}
            return unet(noisy, level, states, **residuals).sample

        return velocity_error(predict, latents[chosen])

    stage.train(loss)
    state = {name: tensor.half().contiguous() for name, tensor in stage.averages["control"].state_dict().items()}
    save_file(state, directory / "edges.safetensors", {"format": "pt"})


def drawn_latents(directory: Path, drawn: list[Scene], style: Style = PLAIN) -> Tensor:
    """The latents of scenes, as the U-Net has them."""
    return white(encoded(directory, drawn, style), *measure(directory))


def captions_of(drawn: list[Scene]) -> Tensor:
    """Token ids [scenes, tokens]; what follows the longest caption's end is left out."""
    captions = torch.tensor([tokens_of(each.caption) for each in drawn])
    return captions[:, : longest(captions)]
