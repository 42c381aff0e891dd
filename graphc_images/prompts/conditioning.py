"""From the vectors of text encoders to what each family's denoiser takes.

Arrays are float32: hidden vectors [batch, tokens, channels], pooled ones [batch, channels].
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from graphc_images.modes import Mode

ZEROED_FAMILIES = ("sdxl", "sdxl-refiner", "sd3")
SD3_CHANNELS = 4096
SD3_ROWS_WITHOUT_T5 = {"a1111": 77, "forge": 256, "diffusers": 256, "comfyui": 0}


def sinusoids(values: Iterable[float], size: int = 256, longest: float = 10_000.0) -> np.ndarray:
    """Cosines, then sines, of each number at `size` / 2 frequencies from 1 to almost 1 / `longest`: [values * size].

    Source: generative-models' Timestep; Vaswani et al. 2017.
    """
    half = size // 2
    frequencies = np.exp(-math.log(longest) * np.arange(half, dtype=np.float32) / np.float32(half))
    angles = np.array([*values], np.float32)[:, None] * frequencies
    return np.concatenate([np.cos(angles), np.sin(angles)], 1).astype(np.float32).reshape(-1)


def is_zeroed(family: str, mode: Mode, negative_prompts: Iterable[str]) -> bool:
    """True if all of a negative conditioning is zeros: in A1111's mode, where all its stages are the empty text."""
    return mode == "a1111" and family in ZEROED_FAMILIES and all(text == "" for text in negative_prompts)


def sdxl_context(clip_l: np.ndarray, clip_g: np.ndarray) -> np.ndarray:
    """CLIP-L's 768 channels, then CLIP-G's 1280: [batch, tokens, 2048]."""
    return np.concatenate([clip_l, clip_g], -1)


def sdxl_vector(
    pooled: np.ndarray,
    *,
    size: tuple[int, int],
    crop: tuple[int, int] = (0, 0),
    target: tuple[int, int] | None = None,
) -> np.ndarray:
    """CLIP-G's projected vector and the sinusoids of six numbers: [batch, 2816].

    `size` is (height, width) of the picture that training had, `crop` (top, left), `target` what is made, `size` if not given.
    """
    return _with_numbers(pooled, [*size, *crop, *(target or size)])


def refiner_vector(
    pooled: np.ndarray, *, size: tuple[int, int], crop: tuple[int, int] = (0, 0), aesthetic_score: float
) -> np.ndarray:
    """As `sdxl_vector`, with a score (6 for the prompt, 2.5 for the negative) in place of the target: [batch, 2560]."""
    return _with_numbers(pooled, [*size, *crop, aesthetic_score])


def _with_numbers(pooled: np.ndarray, numbers: list[float]) -> np.ndarray:
    vectors = np.broadcast_to(sinusoids(numbers), (len(pooled), 256 * len(numbers)))
    return np.concatenate([pooled, vectors], -1).astype(np.float32)


def sd3_context(
    clip_l: np.ndarray, clip_g: np.ndarray, t5: np.ndarray | None, *, rows_without_t5: int = 0
) -> np.ndarray:
    """CLIP's 2048 channels with zeros up to 4096, then T5's vectors as further tokens: [batch, tokens, 4096].

    Without T5 some programs put rows of zeros there: `SD3_ROWS_WITHOUT_T5`.
    """
    clip = np.concatenate([clip_l, clip_g], -1)
    width = SD3_CHANNELS if t5 is None else t5.shape[-1]
    clip = np.pad(clip, ((0, 0), (0, 0), (0, width - clip.shape[-1])))
    rest = np.zeros((len(clip), rows_without_t5, SD3_CHANNELS), clip.dtype) if t5 is None else t5
    return np.concatenate([clip, rest], 1)


def sd3_vector(clip_l: np.ndarray, clip_g: np.ndarray) -> np.ndarray:
    """Both pooled vectors: [batch, 2048]."""
    return np.concatenate([clip_l, clip_g], -1)


def text_mask(ids: np.ndarray, *, visible_pads: int = 0, pad: int = 0) -> np.ndarray:
    """Which tokens [batch, tokens] count: all but the padding behind the text, of which some may be visible.

    Chroma was trained with one pad that is (diffusers); ComfyUI gives it the text alone, without padding.
    """
    ids = np.asarray(ids)
    texts = np.where((ids != pad).any(1), ids.shape[1] - (ids != pad)[:, ::-1].argmax(1), 0)
    return np.arange(ids.shape[1]) < (texts + visible_pads)[:, None]
