"""The mask of a picture as it is painted by, and the box of what is painted alone ("only masked")."""

from __future__ import annotations

from PIL import Image

from graphc_images.errors import SettingError
from graphc_images.pictures import masks
from graphc_images.pictures.masks import Box
from graphc_images.settings import Settings


def prepared_mask(settings: Settings) -> Image.Image:
    """The mask, rounded unless it is soft, turned round if that is asked for, and blurred. Raises SettingError if the image has
    another size."""
    assert settings.mask is not None
    assert settings.image is not None
    soft = settings.soft_inpainting is not None or settings.differential
    mask = masks.mask_of(settings.mask, rounded=not soft)
    if mask.size != settings.image.size:
        raise SettingError(
            f"mask: it has {mask.width} x {mask.height} pixels, and the image {settings.image.width} x {settings.image.height}"
        )
    if settings.invert_mask:
        mask = masks.invert(mask)
    down = settings.mask_blur if settings.mask_blur_y is None else settings.mask_blur_y
    return masks.blur_mask(mask, settings.mask_blur, down)


def box_alone(settings: Settings, mask: Image.Image) -> Box:
    """What is painted alone, with what is seen around it. Raises SettingError if that is nothing."""
    assert settings.width is not None
    assert settings.height is not None
    box = masks.masked_box(mask, settings.only_masked_padding, settings.width, settings.height)
    if box is None:
        raise SettingError("mask: nothing is white in it, so there is nothing to paint")
    return box
