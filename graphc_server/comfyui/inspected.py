"""What files of models are, in the words of Acly's comfyui-tooling-nodes (api.py), without loading them."""

from __future__ import annotations

from typing import Any

import graphc
from graphc_images.models import ARCHITECTURES, Recognized, recognize
from graphc_server.comfyui.library import Library

BASES = {
    "coloured shapes": "sd15",
    "Stable Diffusion 1": "sd15",
    "Stable Diffusion 2": "sd20",
    "Stable Diffusion XL refiner": "sdxl-refiner",
    "Stable Diffusion XL": "sdxl",
    "SSD-1B": "ssd1b",
    "Stable Diffusion 3": "sd3",
    "Flux schnell": "flux-schnell",
    "Flux.2": "flux2",
    "Flux": "flux",
    "Chroma": "chroma",
    "Z-Image": "z-image",
    "Qwen-Image": "qwen-image",
}
"""How names of architectures begin, and what they are called; the first that fits counts. The small model is asked as what it is
built like."""

TYPES = {"Flux.2 klein 4B": "klein-4b", "Flux.2 klein 9B": "klein-9b"}
PREDICTIONS = {"eps": "eps", "v": "v-prediction", "edm": "edm"}


def said_of(found: Recognized) -> dict[str, Any]:
    """A model, as the plugin knows them."""
    row = found.architecture
    base = next((name for begin, name in BASES.items() if row.name.startswith(begin)), "unknown")
    said = {"base_model": base, "is_inpaint": row.added in ("inpaint", "fill", "edit")}
    kind = PREDICTIONS.get(found.prediction) if base == "sdxl" else TYPES.get(row.name)
    return {**said, "is_refiner": base == "sdxl-refiner", **({"type": kind} if kind else {})}


class Inspected:
    """What files are, kept until they change."""

    def __init__(self, library: Library) -> None:
        self.library = library
        self._known: dict[tuple[Any, ...], dict[str, Any]] = {}

    def __call__(self, folder: str, name: str) -> dict[str, Any]:
        """What a file of one of ComfyUI's folders is."""
        key = folder, name, *self.library.stamp(folder, name)
        if key not in self._known:
            try:
                tensors = graphc.open_checkpoint(self.library.path(folder, name))
                self._known[key] = said_of(recognize(tensors, ARCHITECTURES))
            except (graphc.GraphcError, OSError) as problem:
                return {"base_model": "unknown", "error": str(problem)}
        return self._known[key]
