"""What weights do to the vectors that a text encoder gives.

Source: AUTOMATIC1111's modules/sd_emphasis.py; ComfyUI's comfy/sd1_clip.py (ClipTokenWeightEncoder).
"""

from __future__ import annotations

import numpy as np

from graphc_images.prompts.chunks import Emphasis


def weigh_a1111(hidden: np.ndarray, weights: np.ndarray, emphasis: Emphasis = "Original") -> np.ndarray:
    """Vectors [batch, tokens, channels] times weights [batch, tokens].

    "Original" then gives the whole its old mean; A1111 encodes all stages of a prompt as one batch, so that a stage's
    mean has a part in the others. "No norm" does not; "Ignore" and "None" leave the vectors as they are.
    """
    if emphasis in ("Ignore", "None"):
        return hidden
    weighted: np.ndarray = hidden * weights[..., None].astype(hidden.dtype)
    mean = weighted.mean()
    if emphasis == "Original" and mean != 0:
        weighted *= hidden.mean() / mean
    return weighted


def weigh_comfyui(hidden: np.ndarray, weights: np.ndarray, empty: np.ndarray) -> np.ndarray:
    """Vectors [batch, tokens, channels] moved away from those of the empty prompt [1, tokens, channels], or towards them."""
    factor = weights[..., None].astype(hidden.dtype)
    return np.where(factor == 1, hidden, (hidden - empty) * factor + empty)
