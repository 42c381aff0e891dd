"""What all stages of training have: scenes without an end, steps that go on where they were stopped, predicted velocities."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
import torch.distributed
from torch import Tensor, nn

from examples.shapes.scenes import PLAIN, Scene, Style, draw_scene

SIDE = 128
"""Pixels of the pictures that are learnt."""
LEVELS = 1000
KEPT = torch.linspace(0.00085**0.5, 0.012**0.5, LEVELS).square().neg().add(1).cumprod(0)
"""How much of a latent's variance is left at each level of noise: Stable Diffusion's."""
OFFSET = 0.2
"""How far the noise of a channel is from 0 as a whole (Guttenberg 2023). Without it the mean of a noisy latent tells the
background at every level, also in the noise that pictures begin with, where it means nothing."""
SAVE_EVERY = 100


def pixels_of(scene: Scene, style: Style = PLAIN) -> Tensor:
    """A scene's picture [3, SIDE, SIDE] from -1 to 1."""
    return torch.from_numpy(np.asarray(draw_scene(scene, SIDE, style), np.float32).transpose(2, 0, 1) / 127.5 - 1)


class Stage:
    """Modules that learn together, with averages of their weights, in a file that training goes on from."""

    def __init__(self, path: Path, modules: nn.ModuleDict, rate: float, steps: int) -> None:
        self.path, self.modules, self.steps = path, modules, steps
        self.averages = copy.deepcopy(modules).requires_grad_(False).eval()
        self.optimizer = torch.optim.AdamW(
            modules.parameters(), lr=rate, betas=(0.9, 0.98), weight_decay=0.01, fused=True
        )
        warm = torch.optim.lr_scheduler.LinearLR(self.optimizer, 0.01, 1.0, total_iters=200)
        cool = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, max(steps - 200, 1), eta_min=rate / 50)
        self.schedule = torch.optim.lr_scheduler.SequentialLR(self.optimizer, [warm, cool], [200])
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
        """Minimize `loss(draw)`, which draws its own examples: others for each number. Processes that train together draw apart,
        and take their steps by the mean of their gradients."""
        together = torch.distributed.get_world_size() if torch.distributed.is_initialized() else 1
        own = torch.distributed.get_rank() if together > 1 else 0
        begun, losses = time.monotonic(), []
        weights = list(self.modules.parameters())
        for step in range(self.done, self.steps):
            with torch.autocast("cpu", torch.bfloat16):
                value = loss(step * together + own)
            self.optimizer.zero_grad()
            value.backward()
            if together > 1:
                average([each.grad for each in weights if each.grad is not None], together)
            nn.utils.clip_grad_norm_(weights, 1.0)
            self.optimizer.step()
            self.schedule.step()
            keep = min(0.999, (step + 1) / (step + 10))
            torch._foreach_lerp_(list(self.averages.parameters()), [each.detach() for each in weights], 1 - keep)
            losses.append(float(value.detach()))
            if (step + 1) % SAVE_EVERY == 0 or step + 1 == self.steps:
                self.done = step + 1
                if own:
                    continue
                self.save()
                pace = (time.monotonic() - begun) / len(losses)
                mean = np.mean(losses[-SAVE_EVERY:])
                print(f"{self.path.stem} {self.done}: loss {mean:.5f}, {pace:.2f} s a step", flush=True)

    def save(self) -> None:
        """Write the file that training goes on from."""
        beside = self.path.with_suffix(".new")
        torch.save({**{name: part.state_dict() for name, part in self.parts.items()}, "done": self.done}, beside)
        beside.replace(self.path)


def average(gradients: list[Tensor], processes: int) -> None:
    """Make the gradients of each of several processes their mean, in place."""
    whole = torch.cat([each.flatten() for each in gradients])
    torch.distributed.all_reduce(whole)
    parts = (whole / processes).split([each.numel() for each in gradients])
    torch._foreach_copy_(gradients, [part.view_as(each) for part, each in zip(parts, gradients, strict=True)])


def velocity_error(predict: Callable[[Tensor, Tensor], Tensor], clean: Tensor) -> Tensor:
    """How far `predict(noisy, level)` is from the velocity (Salimans and Ho 2022) of latents [batch, 4, h, w].

    At the highest level the velocity is the picture that the words tell of, where the noise would hardly show it. There the
    latents hold as little of the picture as a sampler's do, which begins with noise alone: by the usual mixture they still show
    what is where, and nobody learns to read that in the words (Lin et al. 2024). Levels of much noise, where it is decided, are
    drawn more often.
    """
    level = (LEVELS * (1 - torch.rand(len(clean)) ** 2)).long().clamp(max=LEVELS - 1)
    signal, rest = (each.sqrt().reshape(-1, 1, 1, 1) for each in (KEPT[level], 1 - KEPT[level]))
    noise = torch.randn_like(clean) + OFFSET * torch.randn((*clean.shape[:2], 1, 1))
    least = (KEPT[-1] / (1 - KEPT[-1])).sqrt()  # of the clean latents beside noise of 1, which a sampler has not
    added = noise - least * clean
    found = predict(signal * clean + rest * added, level).float()
    return (found - (signal * added - rest * clean)).square().mean()
