"""Trains the small model of Stable Diffusion 1.5's structure that comes with graphc_images, on pictures that it draws.

    python -m examples.train_shapes autoencoder DIRECTORY --steps 4000
    python -m examples.train_shapes denoiser DIRECTORY --steps 20000
    python -m examples.train_shapes write DIRECTORY -o shapes.safetensors

Needs torch, diffusers and transformers. Each stage goes on where it was stopped: its state is in DIRECTORY. The autoencoder
learns first; then the text encoder and the U-Net together, on latents.
"""

from __future__ import annotations

import argparse
import copy
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch
from diffusers import AutoencoderKL, UNet2DConditionModel
from diffusers.models.attention_processor import AttnProcessor
from safetensors.torch import save_file
from torch import Tensor, nn
from transformers import CLIPTextConfig, CLIPTextModel

from examples.image_engines.table import SHAPES_CLIP, SHAPES_UNET, SHAPES_VAE
from examples.shape_scenes import PLAIN, Scene, Style, any_style, draw_scene, random_scene
from graphc.weights.layouts.table import Flat
from graphc.weights.layouts.text import CLIP
from graphc.weights.layouts.unet import UNET, VAE
from graphc_images.tokenizers.clip import ClipTokenizer

State = dict[str, Tensor]

SIDE = 128
"""Pixels of the pictures that are learnt."""
TOKENS = 77
SCALING_FACTOR = 0.18215
WITHOUT_CAPTION = 0.1
LEVELS = 1000
DRAWN = 40_000
"""Pictures whose latents are learnt from."""
SAVE_EVERY = 100
TOKENIZER = ClipTokenizer()


def build_autoencoder() -> AutoencoderKL:
    """Stable Diffusion's, with an eighth of its channels."""
    return AutoencoderKL(**SHAPES_VAE)


def build_unet() -> UNet2DConditionModel:
    """Stable Diffusion 1.5's, with a tenth of its channels.

    Attention is written out: on a CPU, the gradient of PyTorch's own takes several times as long."""
    unet = UNet2DConditionModel(**SHAPES_UNET)
    unet.set_attn_processor(AttnProcessor())
    return unet


def build_text_encoder() -> CLIPTextModel:
    """CLIP's, with three layers; all of its tokens."""
    config = CLIPTextConfig(**SHAPES_CLIP, bos_token_id=TOKENIZER.start, eos_token_id=TOKENIZER.end)
    config._attn_implementation = "eager"
    return CLIPTextModel(config)


def tokens_of(caption: str) -> list[int]:
    """A caption's token ids, filled up with the end as Stable Diffusion 1 does."""
    ids = TOKENIZER.encode(caption)
    return [TOKENIZER.start, *ids, *[TOKENIZER.end] * (TOKENS - 1 - len(ids))]


def pixels_of(scene: Scene, style: Style = PLAIN) -> Tensor:
    """A scene's picture [3, SIDE, SIDE] from -1 to 1."""
    return torch.from_numpy(np.asarray(draw_scene(scene, SIDE, style), np.float32).transpose(2, 0, 1) / 127.5 - 1)


def scenes(seed: int, held_out: bool = False) -> Iterator[Scene]:
    """Scenes without an end: those that are trained on, or those that are not."""
    random = np.random.default_rng(seed)
    while True:
        scene = random_scene(random)
        if scene.held_out == held_out:
            yield scene


class Stage:
    """Modules that learn together, with averages of their weights, in a file that training goes on from."""

    def __init__(self, path: Path, modules: nn.ModuleDict, rate: float, steps: int) -> None:
        self.path, self.modules, self.steps = path, modules.to(memory_format=torch.channels_last), steps
        self.averages = copy.deepcopy(modules).requires_grad_(False).eval()
        self.optimizer = torch.optim.AdamW(
            modules.parameters(), lr=rate, betas=(0.9, 0.98), weight_decay=0.01, fused=True
        )
        warm = [torch.optim.lr_scheduler.LinearLR(self.optimizer, 0.01, 1.0, total_iters=200)]
        cool = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, max(steps - 200, 1), eta_min=rate / 50)
        self.schedule = torch.optim.lr_scheduler.SequentialLR(self.optimizer, [*warm, cool], [200])
        self.done = 0
        self.parts = {"modules": modules, "averages": self.averages, "optimizer": self.optimizer}
        if path.exists():
            state = torch.load(path, weights_only=True)
            for name, part in self.parts.items():
                part.load_state_dict(state[name])
            self.done = state["done"]
            for _ in range(self.done):
                self.schedule.step()

    def train(self, loss: Callable[[int], Tensor]) -> None:
        """Minimize `loss(step)`, which draws its own examples."""
        begun, losses = time.monotonic(), []
        for step in range(self.done, self.steps):
            with torch.autocast("cpu", torch.bfloat16):
                value = loss(step)
            self.optimizer.zero_grad()
            value.backward()
            nn.utils.clip_grad_norm_(self.modules.parameters(), 1.0)
            self.optimizer.step()
            self.schedule.step()
            keep = min(0.999, (step + 1) / (step + 10))
            weights = [weight.detach() for weight in self.modules.parameters()]
            torch._foreach_lerp_(list(self.averages.parameters()), weights, 1 - keep)
            losses.append(float(value.detach()))
            if (step + 1) % SAVE_EVERY == 0 or step + 1 == self.steps:
                self.done = step + 1
                self._save()
                pace = (time.monotonic() - begun) / len(losses)
                print(
                    f"{self.path.stem} {self.done}: loss {np.mean(losses[-SAVE_EVERY:]):.5f}, {pace:.2f} s a step",
                    flush=True,
                )

    def _save(self) -> None:
        beside = self.path.with_suffix(".new")
        torch.save({**{name: part.state_dict() for name, part in self.parts.items()}, "done": self.done}, beside)
        beside.replace(self.path)


def train_autoencoder(directory: Path, steps: int) -> None:
    """Pictures to latents and back, of every colour. It learns on squares of 64 pixels, and now and then on whole pictures."""
    stage = Stage(directory / "autoencoder.pt", nn.ModuleDict({"vae": build_autoencoder()}), 1e-3, steps)
    vae = stage.modules["vae"]

    def loss(step: int) -> Tensor:
        torch.manual_seed(step)
        drawn, random = scenes(1000 + step), np.random.default_rng(step)
        styles = [PLAIN if place % 2 else any_style(random) for place in range(16)]
        if step % 8 == 7:
            pixels = torch.stack([pixels_of(next(drawn), style) for style in styles[:4]])
        else:
            pixels = torch.stack([window(next(drawn), style) for style in styles])
        posterior = vae.encode(pixels).latent_dist
        difference = vae.decode(posterior.sample()).sample.float() - pixels
        divergence = 0.5 * (posterior.mean.square() + posterior.var - 1 - posterior.logvar).mean()
        return difference.abs().mean() + difference.square().mean() + 1e-6 * divergence

    stage.train(loss)


def window(scene: Scene, style: Style, side: int = 64) -> Tensor:
    """A square of a scene's picture that has a thing, or a part of one, in it."""
    thing = scene.things[int(torch.randint(0, len(scene.things), ()))]
    left, top = (
        int(np.clip(centre * SIDE - side * float(torch.rand(())), 0, SIDE - side)) for centre in (thing.x, thing.y)
    )
    return pixels_of(scene, style)[:, top : top + side, left : left + side]


def trained_autoencoder(directory: Path) -> AutoencoderKL:
    """The autoencoder with the averages of its weights."""
    vae = build_autoencoder()
    state = torch.load(directory / "autoencoder.pt", weights_only=True)["averages"]
    vae.load_state_dict({name.removeprefix("vae."): value for name, value in state.items()})
    return vae.requires_grad_(False).eval()


def latents_of(directory: Path) -> tuple[Tensor, Tensor]:
    """Latents [DRAWN, 4, h, w] of spread 1 and captions [DRAWN, TOKENS] to learn from, kept in a file."""
    path = directory / "latents.pt"
    if not path.exists():
        vae, drawn = trained_autoencoder(directory), scenes(1)
        made, captions = [], []
        for _ in range(DRAWN // 50):
            some = [next(drawn) for _ in range(50)]
            with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
                made.append(vae.encode(torch.stack([pixels_of(each) for each in some])).latent_dist.mean.half())
            captions += [tokens_of(each.caption) for each in some]
        torch.save({"latents": torch.cat(made), "captions": torch.tensor(captions)}, path)
    state = torch.load(path, weights_only=True)
    latents = state["latents"].float()
    mean, spread = measure(latents)
    return (latents - mean) / spread, state["captions"]


def measure(latents: Tensor) -> tuple[Tensor, Tensor]:
    """What the autoencoder's latents are shifted and scaled by, so that each channel has mean 0 and spread 1."""
    return latents.mean((0, 2, 3), keepdim=True), latents.std((0, 2, 3), keepdim=True)


def train_denoiser(directory: Path, steps: int, batch: int) -> None:
    """The text encoder and the U-Net learn to predict noise; levels of little noise count less (min-SNR, Hang et al. 2023)."""
    latents, captions = latents_of(directory)
    modules = nn.ModuleDict({"unet": build_unet(), "text": build_text_encoder()})
    stage = Stage(directory / "denoiser.pt", modules, 1.5e-3, steps)
    kept = torch.linspace(0.00085**0.5, 0.012**0.5, LEVELS).square().neg().add(1).cumprod(0)
    empty = torch.tensor(tokens_of(""))
    length = int((captions != empty[-1]).sum(1).max()) + 1

    def loss(step: int) -> Tensor:
        torch.manual_seed(step)
        chosen = torch.randint(0, len(latents), (batch,))
        clean, words = latents[chosen], captions[chosen]
        words = torch.where(torch.rand(batch, 1) < WITHOUT_CAPTION, empty, words)
        if step % 4:  # what follows the end of a caption is alike in all; most of the time it is left out
            words = words[:, :length]
        level = torch.randint(0, LEVELS, (batch,))
        signal = kept[level].reshape(-1, 1, 1, 1)
        noise = torch.randn_like(clean)
        noisy = signal.sqrt() * clean + (1 - signal).sqrt() * noise
        found = modules["unet"](noisy, level, modules["text"](words).last_hidden_state).sample.float()
        ratio = kept[level] / (1 - kept[level])
        weight = ratio.clamp(max=5) / ratio
        return ((found - noise).square().mean((1, 2, 3)) * weight).mean()

    stage.train(loss)


def with_latents_of_spread(vae: AutoencoderKL, mean: Tensor, spread: Tensor) -> AutoencoderKL:
    """The same autoencoder, whose latents times its scaling factor have mean 0 and spread 1 in each channel."""
    mean, spread = mean.flatten(), spread.flatten() * SCALING_FACTOR
    into, out_of = vae.quant_conv, vae.post_quant_conv
    out_of.bias += out_of.weight.flatten(1) @ mean
    out_of.weight *= spread.reshape(1, -1, 1, 1)
    into.weight[:4] /= spread.reshape(-1, 1, 1, 1)
    into.bias[:4] = (into.bias[:4] - mean) / spread
    into.bias[4:] -= 2 * spread.log()
    return vae


def write(directory: Path, output: Path) -> None:
    """One file as Stable Diffusion 1 is published, in float16."""
    latents = torch.load(directory / "latents.pt", weights_only=True)["latents"].float()
    state = torch.load(directory / "denoiser.pt", weights_only=True)["averages"]
    vae = with_latents_of_spread(trained_autoencoder(directory), *measure(latents))
    write_checkpoint(under_name(state, "unet."), vae.state_dict(), under_name(state, "text."), output)


def write_checkpoint(unet: State, vae: State, text: State, output: Path) -> None:
    """Write tensors under the names of Stable Diffusion 1's own layout, in float16."""
    parts = {
        "model.diffusion_model.": (UNET, unet),
        "first_stage_model.": (VAE, vae),
        "cond_stage_model.transformer.": (
            CLIP,
            {f"text_model.{name.removeprefix('text_model.')}": text[name] for name in text},
        ),
    }
    tensors = {}
    for prefix, (table, named) in parts.items():
        for ours, source in table.theirs(named).items():
            tensor = named[ours].half().contiguous()
            if any(isinstance(step, Flat) for step in source.steps) and tensor.ndim == 2:
                tensor = tensor[:, :, None, None]
            tensors[prefix + source.name] = tensor
    save_file(tensors, output, {"format": "pt", "modelspec.title": "coloured shapes", "modelspec.license": "MIT"})


def under_name(state: State, prefix: str) -> State:
    """The tensors of one module of several."""
    return {name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)}


def main() -> None:
    """Run a stage."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stage", choices=("autoencoder", "denoiser", "write"))
    parser.add_argument("directory", type=Path)
    parser.add_argument("--steps", type=int, default=4000)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("-o", "--output", type=Path)
    settings = parser.parse_args()
    torch.set_num_threads(settings.threads)
    settings.directory.mkdir(parents=True, exist_ok=True)
    if settings.stage == "autoencoder":
        train_autoencoder(settings.directory, settings.steps)
    elif settings.stage == "denoiser":
        train_denoiser(settings.directory, settings.steps, settings.batch)
    else:
        write(settings.directory, settings.output)


if __name__ == "__main__":
    main()
