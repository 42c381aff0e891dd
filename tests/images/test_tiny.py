"""Tiny autoencoders, for previews and in place of the model's own, beside their layers one after the other in torch."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
sys.path.insert(0, str(Path(__file__).parent))

from test_recognize import FILES, arrays  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from graphc_images.errors import ModelError, SettingError  # noqa: E402
from graphc_images.models import load_model  # noqa: E402
from graphc_images.models.latents import packed, unpacked  # noqa: E402
from graphc_images.models.parts import Tiles  # noqa: E402

pytestmark = pytest.mark.torch

BLOCKS = "block block block"
TAESD = {
    "encoder": f"conv block down {BLOCKS} down {BLOCKS} down {BLOCKS} conv",
    "decoder": f"limit conv relu {BLOCKS} up half {BLOCKS} up half {BLOCKS} up half block conv",
}
LOOKS = "look look look"
TAEF2 = {
    "encoder": f"conv block down {BLOCKS} down {BLOCKS} down {LOOKS} conv",
    "decoder": f"limit conv relu {LOOKS} up half {BLOCKS} up half {BLOCKS} up half block conv",
}
MEMORY = "memory memory memory"
TAEW = {
    "encoder": f"conv relu pool2 down {MEMORY} pool2 down {MEMORY} pool1 down {MEMORY} conv",
    "decoder": f"limit conv relu {MEMORY} up grow1 half {MEMORY} up grow2 half {MEMORY} up grow2 half relu conv",
}
"""The layers of each half, as the files number them."""


@dataclass(frozen=True)
class Tiny:
    """A kind of tiny autoencoder, with the widths of its decoder's levels."""

    layers: dict
    latents: int
    widths: tuple[int, ...] = (64, 64, 64, 64)
    split: bool = True
    """True if its halves are in files of their own, whose names do not begin with them."""

    def shapes(self, half):
        widths = list(self.widths if half == "decoder" else (64,) * 4)
        width = widths.pop(0)
        found = {}
        kinds = self.layers[half].split()
        for place, kind in enumerate(kinds):
            ends = place in (0, 1) or place == len(kinds) - 1
            if kind == "conv":
                first = place < 2
                inputs = (self.latents if half == "decoder" else 3) if first else width
                outputs = width if first else (3 if half == "decoder" else self.latents)
                assert ends
                found |= {f"{place}.weight": (outputs, inputs, 3, 3), f"{place}.bias": (outputs,)}
            elif kind in ("down", "half"):
                after = widths.pop(0)
                found[f"{place}.weight"] = (after, width, 3, 3)
                width = after
            elif kind[:-1] in ("pool", "grow"):
                count = int(kind[-1])
                sizes = (width, count * width) if kind.startswith("pool") else (count * width, width)
                found[f"{place}.conv.weight"] = (*sizes, 1, 1)
            elif kind in ("block", "look", "memory"):
                for layer in (0, 2, 4):
                    inputs = width * (2 if kind == "memory" and layer == 0 else 1)
                    found |= {
                        f"{place}.conv.{layer}.weight": (width, inputs, 3, 3),
                        f"{place}.conv.{layer}.bias": (width,),
                    }
                if kind == "look":
                    found |= {
                        f"{place}.pool.0.weight": (4 * width, width, 1, 1),
                        f"{place}.pool.1.weight": (4 * width,),
                    }
                    found |= {f"{place}.pool.1.bias": (4 * width,), f"{place}.pool.3.weight": (width, 4 * width, 1, 1)}
        return found

    def file(self, *halves, seed=3):
        """Tensors, drawn so that numbers neither grow nor vanish."""
        draw, found = np.random.default_rng(seed), {}
        for half in halves:
            for name, shape in self.shapes(half).items():
                spread = (2 / np.prod(shape[1:])) ** 0.5 if len(shape) > 1 else 0.1
                numbers = (spread * draw.standard_normal(shape)).astype(np.float32)
                found[name if self.split else f"{half}.{name}"] = numbers
        return found


KINDS = {
    "Stable Diffusion XL": Tiny(TAESD, 4),
    "Flux dev": Tiny(TAESD, 16),
    "Flux.2 klein 4B": Tiny(TAEF2, 32),
    "Qwen-Image": Tiny(TAEW, 16, (256, 128, 64, 64), split=False),
}


def reference(tensors, kinds, x):
    """The last frame of what the layers make of frames [frames, channels, height, width], all of one picture."""
    tensors = {name: torch.from_numpy(each) for name, each in tensors.items()}
    for place, kind in enumerate(kinds.split()):
        own = {name.partition(".")[2]: each for name, each in tensors.items() if name.partition(".")[0] == str(place)}
        if kind == "limit":
            x = torch.tanh(x / 3) * 3
        elif kind == "relu":
            x = F.relu(x)
        elif kind == "up":
            x = x.repeat_interleave(2, 2).repeat_interleave(2, 3)
        elif kind in ("conv", "half", "down"):
            x = F.conv2d(x, own["weight"], own.get("bias"), stride=2 if kind == "down" else 1, padding=1)
        elif kind[:-1] in ("pool", "grow"):
            count, (frames, channels, height, width) = int(kind[-1]), x.shape
            if kind.startswith("pool"):
                x = x.reshape(frames // count, count * channels, height, width)
            x = F.conv2d(x, own["conv.weight"])
            x = x.reshape(-1, channels, height, width)
        else:
            if kind == "look":
                wide = F.group_norm(F.conv2d(x, own["pool.0.weight"]), 4, own["pool.1.weight"], own["pool.1.bias"])
                x = x + F.conv2d(F.relu(wide), own["pool.3.weight"])
            y = torch.cat([x, torch.cat([torch.zeros_like(x[:1]), x[:-1]])], 1) if kind == "memory" else x
            for layer in (0, 2, 4):
                y = F.conv2d(y, own[f"conv.{layer}.weight"], own[f"conv.{layer}.bias"], padding=1)
                y = F.relu(y) if layer < 4 else y
            x = F.relu(y + x)
    return x[-1:].numpy()


def opened(name, **files):
    shapes = {f"model.diffusion_model.{each}": shape for each, shape in FILES[name].items()}
    return load_model(arrays(shapes), threads=1, **files)


def drawn(name, seed=5):
    model, tiny = opened(name), KINDS[name]
    packing = model.architecture.latent.packed
    own = np.random.default_rng(seed).standard_normal((1, tiny.latents, 6, 4)).astype(np.float32)
    return own, packed(own, packing)


def near(found, expected):
    assert found.shape == expected.shape
    assert np.isfinite(found).all()
    assert np.abs(found - expected).max() <= 3e-5 * np.abs(expected).max()


@pytest.mark.parametrize("name", KINDS)
def test_latents_become_pictures(name):
    tiny, (own, latent) = KINDS[name], drawn(name)
    file = tiny.file("decoder") if tiny.split else tiny.file("encoder", "decoder")
    tensors = {each.removeprefix("decoder."): array for each, array in file.items() if not each.startswith("encoder.")}
    expected = reference(tensors, tiny.layers["decoder"], torch.from_numpy(own)) * 2 - 1
    near(opened(name, tiny=file).decode_preview(latent), expected)
    model = opened(name, vae=file)
    near(model.decode_latent(latent), expected)
    near(model.decode_preview(latent), expected)
    assert opened(name).decode_preview(latent).shape != expected.shape, "without one, it is rough"


@pytest.mark.parametrize("name", ["Flux.2 klein 4B", "Qwen-Image"])
def test_pictures_become_latents(name):
    tiny = KINDS[name]
    halves = {half: tiny.file(half, seed=7) for half in ("encoder", "decoder")}
    if tiny.split:  # one file for both, as diffusers writes them
        shift = {"encoder": 0, "decoder": 1}
        file = {
            f"{half}.layers.{int(place) - shift[half]}.{rest}": array
            for half, own in halves.items()
            for each, array in own.items()
            for place, _, rest in [each.partition(".")]
        }
    else:
        file = halves["encoder"] | halves["decoder"]
    tensors = {each.removeprefix("encoder."): array for each, array in halves["encoder"].items()}
    image = np.random.default_rng(2).uniform(-1, 1, (1, 3, 48, 32)).astype(np.float32)
    expected = reference(tensors, tiny.layers["encoder"], torch.from_numpy(image / 2 + 0.5).repeat(4, 1, 1, 1))
    model = opened(name, vae=file)
    found = model.encode_image(image)
    near(unpacked(found, model.architecture.latent.packed), expected)
    noise = np.ones_like(found)
    assert model.encode_image(image, noise).tobytes() == found.tobytes(), "there is no other latent"


def test_one_that_is_pooled_is_decoded_in_tiles():
    _, latent = drawn("Flux.2 klein 4B")
    model = opened("Flux.2 klein 4B", vae=KINDS["Flux.2 klein 4B"].file("decoder"))
    whole = model.decode_latent(latent)
    model.tiles = Tiles("on", 32, 0)
    assert model.decode_latent(latent).shape == whole.shape


def test_packing_is_undone():
    latent = np.arange(2 * 3 * 4 * 6, dtype=np.float32).reshape(2, 3, 4, 6)
    assert packed(latent, 2).shape == (2, 12, 2, 3)
    assert (unpacked(packed(latent, 2), 2) == latent).all()
    assert (packed(latent, 1) == latent).all()


def test_files_that_do_not_fit():
    _, latent = drawn("Flux dev")
    with pytest.raises(
        ModelError, match=r"decoder\.layers\.0\.weight: shape \[64, 4, 3, 3\], must be \[64, 16, 3, 3\]"
    ):
        opened("Flux dev", vae=KINDS["Stable Diffusion XL"].file("decoder")).decode_latent(latent)
    model = opened("Flux dev", vae=KINDS["Flux dev"].file("decoder"))
    with pytest.raises(
        ModelError, match=r"\(TAESD's decoder: tiny\) does not fit the model:\n  .*, but 1\.weight, .*…$"
    ):
        model.encode_image(np.zeros((1, 3, 32, 32), np.float32))
    with pytest.raises(SettingError, match="no tiny autoencoder for the latents of coloured shapes"):
        opened("coloured shapes", vae=KINDS["Flux dev"].file("decoder"))
