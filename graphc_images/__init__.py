"""Pictures from words, on graphc: Stable Diffusion and its relatives, without PyTorch.

`load` opens a checkpoint; a `Pipeline` paints:

    pipeline = graphc_images.load("model.safetensors")
    pipeline("a red circle left of a blue square", steps=20, seed=1).save("out.png")
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from graphc_images.errors import ImageError, ModelError, SettingError
    from graphc_images.folders import ModelFolders
    from graphc_images.pipeline import Picture, Pictures, Pipeline, Progress, load
    from graphc_images.settings import Settings
    from graphc_images.upscalers.painting import sd_upscale

_HOMES = {
    "ImageError": "errors",
    "ModelError": "errors",
    "ModelFolders": "folders",
    "Picture": "pipeline",
    "Pictures": "pipeline",
    "Pipeline": "pipeline",
    "Progress": "pipeline",
    "SettingError": "errors",
    "Settings": "settings",
    "load": "pipeline",
    "sd_upscale": "upscalers.painting",
}
__all__ = [
    "ImageError",
    "ModelError",
    "ModelFolders",
    "Picture",
    "Pictures",
    "Pipeline",
    "Progress",
    "SettingError",
    "Settings",
    "load",
    "sd_upscale",
]


def __getattr__(name: str) -> Any:
    """Public names are imported when they are first used."""
    if name not in _HOMES:
        raise AttributeError(f"module 'graphc_images' has no attribute {name!r}")
    value = getattr(import_module(f"graphc_images.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
