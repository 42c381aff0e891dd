"""Writes oracles.json: what k-diffusion and torchsde give for the cases of the tests.

    python tests/images/record_oracles.py FOLDER

FOLDER has k-diffusion 0.1.1.post1, torchsde 0.2.6 and trampoline, installed without what they depend on (k-diffusion asks
for CLIP, torchvision and more, which sampling does not use):

    pip install --no-deps --target FOLDER k-diffusion==0.1.1.post1 torchsde==0.2.6 trampoline
"""

from __future__ import annotations

import importlib.util
import json
import sys
import types
import warnings
from pathlib import Path

import numpy as np
import torch

HERE = Path(__file__).parent


def k_diffusion(folder: Path):
    """k_diffusion.sampling alone: its package imports torchvision and others, and odeint is for likelihoods."""
    package = types.ModuleType("k_diffusion")
    package.__path__ = [str(folder / "k_diffusion")]
    sys.modules["k_diffusion"] = package
    utils = types.ModuleType("k_diffusion.utils")
    utils.append_dims = lambda x, dimensions: x[(...,) + (None,) * (dimensions - x.ndim)]
    sys.modules["k_diffusion.utils"] = package.utils = utils
    odeint = types.ModuleType("torchdiffeq")
    odeint.odeint = None
    sys.modules["torchdiffeq"] = odeint
    spec = importlib.util.spec_from_file_location("k_diffusion.sampling", folder / "k_diffusion" / "sampling.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def brownian():
    """Increments of a tree between random times, some at its ends, some very near each other."""
    import torchsde

    warnings.simplefilter("ignore")
    cases = []
    for seed, shape in ((0, [4, 2, 2]), (1, [5]), (2**40 + 3, [4, 8, 8])):
        random = np.random.default_rng(seed)
        low, high = 0.0291671582, 14.6146412
        tree = torchsde.BrownianTree(low, torch.zeros(shape), high, entropy=seed)
        increments = []
        for index in range(24):
            start, end = sorted(float(each) for each in np.float32(random.uniform(low, high, 2)))
            start = low - 1 if index % 5 == 0 else start
            end = high + 1 if index % 7 == 0 else start + 2e-6 if index % 11 == 0 else end
            increments.append([start, end, tree(start, end).reshape(-1)[:3].tolist()])
        cases.append({"seed": seed, "shape": shape, "ends": [low, high], "increments": increments})
    return cases


def toy(x, sigma):
    """The model of the tests (samplers.py)."""
    sigma = sigma.reshape(-1)[0]
    return torch.sin(x) / (1 + sigma)


CASES = {
    "euler": {"s_churn": 3.0, "s_tmin": 0.1, "s_noise": 1.01},
    "heun": {"s_churn": 3.0, "s_tmin": 0.1, "s_noise": 1.01},
    "dpm_2": {"s_churn": 3.0, "s_tmax": 5.0, "s_noise": 1.01},
    "euler_ancestral": {"eta": 0.7, "s_noise": 1.1},
    "dpm_2_ancestral": {"eta": 0.7, "s_noise": 1.1},
    "dpmpp_2s_ancestral": {"eta": 0.7, "s_noise": 1.1},
    "dpmpp_sde": {"eta": 0.7, "s_noise": 1.1, "r": 0.4},
    "dpmpp_2m": {},
    "dpmpp_2m_sde": {"eta": 0.7, "s_noise": 1.1},
    "dpmpp_3m_sde": {"eta": 0.7, "s_noise": 1.1},
    "lms": {"order": 3},
}


def schedules(sampling):
    """Two lists of noise levels: Karras' of 7 steps, and one that neither starts at the top nor ends at 0."""
    karras = sampling.get_sigmas_karras(7, 0.0291671585, 14.6146412).double()
    return [karras, torch.tensor([5.0, 3.0, 2.5, 1.0, 0.4], dtype=torch.float64)]


def samplers(sampling):
    """Results of k-diffusion's samplers with settings that are not their defaults; each noise is half of the last, from 1."""
    found = []
    for sigmas in schedules(sampling):
        for name, settings in CASES.items():
            noise = iter(0.5 ** np.arange(100))

            def draw(*_, noise=noise):
                return torch.full((1, 2), next(noise), dtype=torch.float64)

            x = torch.tensor([[1.0, -0.3]], dtype=torch.float64) * sigmas[0]
            plain = "order" in settings or "s_churn" in settings or name == "dpmpp_2m" or "s_tmax" in settings
            sampling.torch = Hijacked(draw)
            extra = {} if plain else {"noise_sampler": draw}
            result = getattr(sampling, f"sample_{name}")(toy, x, sigmas, disable=True, **settings, **extra)
            found.append({"sampler": name, "settings": settings, "sigmas": sigmas.tolist(), "x": result[0].tolist()})
            sampling.torch = torch
    return found


class Hijacked:
    """torch, but for randn_like."""

    def __init__(self, draw) -> None:
        self.randn_like = draw

    def __getattr__(self, name: str):
        return getattr(torch, name)


def main() -> None:
    folder = Path(sys.argv[1])
    sys.path.insert(0, str(folder))
    found = {"brownian": brownian(), "samplers": samplers(k_diffusion(folder))}
    (HERE / "oracles.json").write_text(json.dumps(found, indent=0) + "\n")


if __name__ == "__main__":
    main()
