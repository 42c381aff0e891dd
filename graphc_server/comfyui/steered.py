"""ControlNets and adapters in a graph: a denoiser with those of each text.

Source: ComfyUI's comfy/controlnet.py.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from graphc_images import SettingError, steering
from graphc_images.control_units import ControlUnit
from graphc_images.models import ImageModel
from graphc_images.sampling import Plan
from graphc_images.steering import Steer
from graphc_server.comfyui.library import Library
from graphc_server.comfyui.pictures import scaled
from graphc_server.comfyui.values import Applied

Denoise = Callable[..., np.ndarray]


class Steering:
    """The controls of a run. Where one text has some, all texts go through the program that takes them: changing costs more."""

    def __init__(self, library: Library, model: ImageModel, way: Plan, any_controls: bool) -> None:
        self.library, self.model, self.way, self.any = library, model, way, any_controls
        self._made: dict[tuple[tuple[Applied, ...], int, int], steering.Steering] = {}

    def with_controls(self, controls: tuple[Applied, ...], rows: int, columns: int) -> Denoise:
        """The model's `denoise`, with some controls, for latents of this size."""
        if not self.any:
            return self.model.denoise
        key = controls, rows, columns
        if key not in self._made:
            steers = [self._steer(each, rows, columns) for each in controls]
            self._made[key] = steering.Steering(self.model, steers).begin(self.way)
        return self._made[key].denoise

    def _steer(self, applied: Applied, rows: int, columns: int) -> Steer:
        control = self.library.control(self.model, applied.file.path)
        pixels = self.model.architecture.latent.pixels
        if len(applied.image) > 1:
            raise SettingError(f"image: a control follows one picture, and there are {len(applied.image)}")
        hint = scaled(applied.image, rows * pixels, columns * pixels, "nearest-exact", "center")[0]
        look = control.look(hint.transpose(2, 0, 1)[None], applied.file.shows)
        added = self.model.added_shapes()[control.kind.adapter]
        unit = ControlUnit(applied.file.path, weight=1.0, guidance_start=applied.start, guidance_end=applied.end)
        scales = (applied.strength,) * len(added)
        pooled = not control.kind.adapter and "shuffle" in Path(control.file).stem.lower()
        return Steer(unit, control, look, scales, hint, "none", pooled)
