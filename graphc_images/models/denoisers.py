"""How each kind of denoiser takes its inputs: latents, times and conditioning to the arrays that its engine wants, and back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from graphc_images.errors import SettingError
from graphc_images.models.free_u import free_inputs
from graphc_images.sampling.guided import Weakening

Arrays = dict[str, np.ndarray]
WHOLE = Weakening()


@dataclass(frozen=True)
class Conditioning:
    """What a denoiser looks at besides the latent; all float32, and as many rows as the latent has, or one for all of them.

    `words` [batch, tokens, width] are the text's states. `pooled` [batch, width] is one vector for the text. `sizes` are
    Stable Diffusion XL's numbers [batch, 6]: height, width, crop from the top, from the left, target height, width; the
    refiner's 5: height, width, crops, aesthetic score. `guidance` [batch] is the distilled one of Flux dev. `latents` [batch,
    extra, height, width] are joined to the latent, for models with more channels (`Architecture.extra`). `mask` [batch,
    tokens] is 1 for the words that Chroma looks at, and for those of Z-Image that are no padding. `references` are latents
    [batch, channels, height, width] of pictures that Flux Kontext, Flux.2 and Qwen-Image-Edit look at. `residuals` are what
    ControlNets add to a U-Net's skips, the middle's last, and `features` what T2I-Adapters add within its encoder; there are
    both or none. `positive` [batch] is 1 for what the prompt says and 0 for the negative prompt, None for 1: some controls
    are for the prompt alone. `free` [batch, 6] are the numbers of FreeU (`FreeU.numbers`). `looked` are what a
    U-Net's layers look at besides words: of each width of layers keys, and then values [batch, layers, pictures, tokens, width],
    the narrowest first; `shares` say how much each picture counts where, for each size that places are halved to [batch,
    pictures, places].
    """

    words: np.ndarray
    pooled: np.ndarray | None = None
    sizes: np.ndarray | None = None
    guidance: np.ndarray | None = None
    latents: np.ndarray | None = None
    mask: np.ndarray | None = None
    references: tuple[np.ndarray, ...] = ()
    residuals: tuple[np.ndarray, ...] = ()
    features: tuple[np.ndarray, ...] = ()
    positive: np.ndarray | None = None
    free: np.ndarray | None = None
    looked: tuple[np.ndarray, ...] = ()
    shares: tuple[np.ndarray, ...] = ()


@dataclass(frozen=True)
class Takes:
    """How a kind of denoiser is run: `inputs` makes its arrays of a latent, times and conditioning, `result` the latent that it
    predicts of what it gives and the latent's shape."""

    inputs: Callable[[np.ndarray, np.ndarray, Conditioning], Arrays]
    result: Callable[[np.ndarray, tuple[int, ...]], np.ndarray]


def run(
    kind: str,
    inputs: Mapping[str, tuple[Any, ...]],
    engine: Callable[[Arrays], Mapping[str, np.ndarray]],
    x: np.ndarray,
    time: float | np.ndarray,
    conditioning: Conditioning,
    weakening: Weakening = WHOLE,
) -> np.ndarray:
    """What the network predicts for a latent x [batch, channels, height, width]; float32, of the same shape.

    `inputs` are the sizes of what the engine takes, by name. `time` is one for all, or one each: the step of training, 0 to 999,
    or for a flow its sigma, 0 to 1. Raises SettingError for what does not fit the model.
    """
    x = np.ascontiguousarray(x, np.float32)
    times = np.ascontiguousarray(np.broadcast_to(np.asarray(time, np.float32), (len(x),)))
    shape = x.shape
    if conditioning.latents is not None:
        x = np.concatenate([x, each(conditioning.latents, len(x), "latents")], axis=1)
    takes = KINDS[kind]
    switches = switches_of(inputs, len(x), weakening)
    free = conditioning.free
    scaled = {} if free is None else free_inputs(inputs, each(free, len(x), "free"), shape)
    looked = looked_inputs(inputs, conditioning, len(x)) if conditioning.looked else {}
    (found,) = engine({**takes.inputs(x, times, conditioning), **switches, **scaled, **looked}).values()
    return takes.result(found, shape)


def switches_of(inputs: Mapping[str, tuple[Any, ...]], batch: int, weakening: Weakening) -> Arrays:
    """What an engine with these inputs, whose sizes are given, is told to leave out of itself. Raises SettingError."""
    found: Arrays = {}
    if "perturbed" in inputs:
        found["perturbed"] = np.full(batch, bool(weakening.attention), np.float32)
    if weakening.attention and ("perturbed" not in inputs or weakening.attention != ("middle",)):
        raise SettingError("perturbed attention: only U-Nets can do that, in their middle block, if it has attention")
    if "kept" in inputs:
        found["kept"] = np.ones((batch, int(inputs["kept"][1])), np.float32)
        if beyond := [layer for layer in weakening.layers if not 0 <= layer < found["kept"].shape[1]]:
            raise SettingError(f"layer {beyond[0]} cannot be skipped: the model has 0 to {found['kept'].shape[1] - 1}")
        found["kept"][:, list(weakening.layers)] = 0
    elif weakening.layers:
        raise SettingError("this model can skip no layers: those of Stable Diffusion 3.5, Flux and Chroma can")
    return found


def looked_inputs(inputs: Mapping[str, tuple[Any, ...]], given: Conditioning, batch: int) -> Arrays:
    """What an engine with these inputs is told of pictures that it looks at. Raises SettingError for what is for other models."""
    widths, levels = (
        sorted(int(name.removeprefix(kind)) for name in inputs if name.startswith(kind))
        for kind in ("keys_", "words_share_")
    )
    names = [f"{kind}_{width}" for width in widths for kind in ("keys", "values")]
    if len(names) != len(given.looked):
        raise SettingError("an IP-Adapter is for another kind of U-Net than the model's")
    found = {
        name: np.ascontiguousarray(each(one, batch, name).swapaxes(0, 1))
        for name, one in zip(names, given.looked, strict=True)
    }
    for level in levels:
        shares = each(given.shares[level], batch, "shares")
        found[f"pictures_share_{level}"] = shares
        found[f"words_share_{level}"] = np.ones((batch, shares.shape[2]), np.float32)
    return found


def each(array: np.ndarray | None, batch: int, name: str) -> np.ndarray:
    """An array with a row for each latent. Raises SettingError if it is not there, or has another number of them."""
    if array is None:
        raise SettingError(f"the model also wants {name}")
    array = np.asarray(array, np.float32)
    if len(array) not in (1, batch):
        raise SettingError(f"{name}: {len(array)} rows for {batch} latents")
    return np.ascontiguousarray(np.broadcast_to(array, (batch, *array.shape[1:])))


def _unet(x: np.ndarray, times: np.ndarray, given: Conditioning) -> Arrays:
    found = {"sample": x, "timestep": times, "encoder_hidden_states": each(given.words, len(x), "words")}
    if given.sizes is not None:
        found |= {"text_embeds": each(given.pooled, len(x), "pooled"), "time_ids": each(given.sizes, len(x), "sizes")}
    for name, added in (("residual", given.residuals), ("feature", given.features)):
        found |= {f"{name}_{number}": each(one, len(x), f"{name}s") for number, one in enumerate(added)}
    return found


def _sd3(x: np.ndarray, times: np.ndarray, given: Conditioning) -> Arrays:
    _check_even(x)
    return {
        "sample": x,
        "timestep": times * np.float32(1000),
        "encoder_hidden_states": each(given.words, len(x), "words"),
        "pooled": each(given.pooled, len(x), "pooled"),
    }


def _flux(x: np.ndarray, times: np.ndarray, given: Conditioning) -> Arrays:
    found = {**_shared(x, times, given), "pooled": each(given.pooled, len(x), "pooled")}
    return found if given.guidance is None else found | {"guidance": each(given.guidance, len(x), "guidance")}


def _shared(x: np.ndarray, times: np.ndarray, given: Conditioning) -> Arrays:
    images = [x, *(each(reference, len(x), "references") for reference in given.references)]
    words = each(given.words, len(x), "words")
    return {
        "patches": np.concatenate([patches(image) for image in images], axis=1),
        "timestep": times,
        "encoder_hidden_states": words,
        "patch_places": np.concatenate([places(x), *map(placed, given.references, beside(given.references))]),
        "word_places": np.zeros((words.shape[1], 3), np.float32),
    }


def _chroma(x: np.ndarray, times: np.ndarray, given: Conditioning) -> Arrays:
    found = _shared(x, times, given)
    count = found["patches"].shape[1]
    mask = [each(given.mask, len(x), "a mask of words"), np.ones((len(x), count), np.float32)]
    return {**found, "attention_mask": np.concatenate(mask, axis=1)}


def _z_image(x: np.ndarray, times: np.ndarray, given: Conditioning) -> Arrays:
    words, mask = each(given.words, len(x), "words"), each(given.mask, len(x), "a mask of words")
    rows, where = patches(x, channels_last=True), places(x, words.shape[1] + 1)
    count, more = len(where), -len(where) % FULL
    above = np.zeros((words.shape[1], 3), np.float32)
    above[:, 0] = np.arange(1, len(above) + 1)
    return {
        "patches": np.pad(rows, ((0, 0), (0, more), (0, 0))),
        "timestep": 1 - times,
        "encoder_hidden_states": words,
        "patch_places": np.pad(where, ((0, more), (0, 0))),
        "word_places": above,
        "patch_mask": (np.arange(count + more) < count).astype(np.float32),
        "word_mask": mask,
    }


def _flux2(x: np.ndarray, times: np.ndarray, given: Conditioning) -> Arrays:
    words = each(given.words, len(x), "words")
    images = [x, *(each(reference, len(x), "references") for reference in given.references)]
    moments = [10 * number for number in range(len(images))]
    ordered = np.zeros((words.shape[1], 4), np.float32)
    ordered[:, 3] = np.arange(len(ordered))
    return {
        "patches": np.concatenate([pixels(image) for image in images], axis=1),
        "timestep": times,
        "encoder_hidden_states": words,
        "patch_places": np.concatenate([moved(image, moment) for image, moment in zip(images, moments, strict=True)]),
        "word_places": ordered,
    }


def _qwen_image(x: np.ndarray, times: np.ndarray, given: Conditioning) -> Arrays:
    words = each(given.words, len(x), "words")
    images = [x, *(each(reference, len(x), "references") for reference in given.references)]
    ordered = np.arange(words.shape[1], dtype=np.float32) + max(
        side // 4 for image in images for side in image.shape[2:]
    )
    return {
        "patches": np.concatenate([patches(image) for image in images], axis=1),
        "timestep": times,
        "encoder_hidden_states": words,
        "patch_places": np.concatenate([centred(image, number) for number, image in enumerate(images)]),
        "word_places": np.repeat(ordered[:, None], 3, 1),
    }


def centred(image: np.ndarray, number: int) -> np.ndarray:
    """Where the squares of an image lie [squares, 3]: its number, then counted from its middle; of an odd number of rows or
    columns, one more is before it (diffusers, Qwen's own code)."""
    rows, columns = image.shape[2] // 2, image.shape[3] // 2
    return places(image, number, down=rows // 2 - rows, right=columns // 2 - columns)


def pixels(image: np.ndarray) -> np.ndarray:
    """Each pixel's channels as a row [batch, pixels, channels]."""
    return np.ascontiguousarray(image.reshape(*image.shape[:2], -1).transpose(0, 2, 1))


def unrolled(rows: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """The image of such rows; those behind its own are left out."""
    return np.ascontiguousarray(rows[:, : shape[2] * shape[3]].transpose(0, 2, 1)).reshape(shape)


def moved(image: np.ndarray, moment: int) -> np.ndarray:
    """Where the pixels of an image lie [pixels, 4]: a moment, row, column, and 0 for what is not a word."""
    found = np.zeros((*image.shape[2:], 4), np.float32)
    found[..., 0] = moment
    found[..., 1] = np.arange(image.shape[2])[:, None]
    found[..., 2] = np.arange(image.shape[3])
    return found.reshape(-1, 4)


FULL = 32
"""Z-Image's words and patches are filled up to multiples of this."""


def patches(image: np.ndarray, channels_last: bool = False) -> np.ndarray:
    """Squares of 2 x 2 as rows [batch, squares, 4 * channels]: of each channel the four numbers, or of each pixel its channels.
    Raises SettingError."""
    _check_even(image)
    batch, channels, height, width = image.shape
    cut = image.reshape(batch, channels, height // 2, 2, width // 2, 2)
    cut = cut.transpose((0, 2, 4, 3, 5, 1) if channels_last else (0, 2, 4, 1, 3, 5))
    return np.ascontiguousarray(cut.reshape(batch, height // 2 * (width // 2), 4 * channels))


def unpatched(rows: np.ndarray, shape: tuple[int, ...], channels_last: bool = False) -> np.ndarray:
    """The image of such rows; those behind its own are left out."""
    batch, channels, height, width = shape
    own = rows[:, : height // 2 * (width // 2)]
    if channels_last:
        cut = own.reshape(batch, height // 2, width // 2, 2, 2, channels).transpose(0, 5, 1, 3, 2, 4)
    else:
        cut = own.reshape(batch, height // 2, width // 2, channels, 2, 2).transpose(0, 3, 1, 4, 2, 5)
    return np.ascontiguousarray(cut.reshape(shape))


def places(image: np.ndarray, number: int = 0, down: int = 0, right: int = 0) -> np.ndarray:
    """Where the squares of an image lie [squares, 3]: 0 for Flux' picture and 1 for references, row, column."""
    rows, columns = image.shape[2] // 2, image.shape[3] // 2
    found = np.empty((rows, columns, 3), np.float32)
    found[..., 0] = number
    found[..., 1] = np.arange(down, down + rows)[:, None]
    found[..., 2] = np.arange(right, right + columns)
    return found.reshape(-1, 3)


def placed(reference: np.ndarray, corner: tuple[int, int]) -> np.ndarray:
    """Where the squares of a reference lie, whose corner is there."""
    return places(reference, 1, *corner)


def beside(references: Sequence[np.ndarray]) -> list[tuple[int, int]]:
    """The corner of each reference, in squares from the top and the left: below or right of those before, where they then need
    less of a square (ComfyUI's "offset")."""
    corners, height, width = [], 0, 0
    for each in references:
        rows, columns = each.shape[2] // 2, each.shape[3] // 2
        down, right = (0, width) if rows + height > columns + width else (height, 0)
        corners.append((down, right))
        height, width = max(height, down + rows), max(width, right + columns)
    return corners


def _check_even(x: np.ndarray) -> None:
    if x.shape[2] % 2 or x.shape[3] % 2:
        raise SettingError(
            f"latents of {x.shape[3]} x {x.shape[2]}: such a model takes even sizes, pictures of multiples of 16"
        )


def _towards_noise(found: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Z-Image predicts the way from noise to picture."""
    return -unpatched(found, shape, channels_last=True)


def _same(found: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    return found


KINDS = {
    "unet": Takes(_unet, _same),
    "sd3": Takes(_sd3, _same),
    "flux": Takes(_flux, unpatched),
    "chroma": Takes(_chroma, unpatched),
    "flux2": Takes(_flux2, unrolled),
    "qwen_image": Takes(_qwen_image, unpatched),
    "z_image": Takes(_z_image, _towards_noise),
}
"""By `Architecture.kind`."""
